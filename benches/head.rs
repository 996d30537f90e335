//! What HTTP costs per request: parsing a typical head, taking a small body, writing the reply's head.
//!
//! The grammar alone (`httparse`) is measured beside it, so that the price of our own rules is visible.
#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]

use bytes::BytesMut;
use criterion::{Criterion, criterion_group, criterion_main};
use moorline::core::http::{
    Content, DateText, Decoder, Exchange, HeadLimits, Parsed, Persistence, ReplyHead, Status, Version, head,
};
use std::hint::black_box;

/// What an SDK client sends with a small tools/call.
const REQUEST: &[u8] = b"POST /mcp HTTP/1.1\r\n\
    Host: localhost:8080\r\n\
    Connection: keep-alive\r\n\
    Content-Type: application/json\r\n\
    Accept: application/json, text/event-stream\r\n\
    Mcp-Session-Id: 0001f3a9c2d4e5b60718293a4b5c6d7e8f90a1b2c3d4\r\n\
    MCP-Protocol-Version: 2025-11-25\r\n\
    Accept-Language: *\r\n\
    Sec-Fetch-Mode: cors\r\n\
    User-Agent: node\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Content-Length: 98\r\n\
    \r\n\
    {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"message\":\"hi\"}}}";

fn request(criterion: &mut Criterion) {
    let limits = HeadLimits::default();
    criterion.bench_function("head/grammar alone", |bencher| {
        bencher.iter(|| {
            let mut fields = [httparse::EMPTY_HEADER; 64];
            let mut request = httparse::Request::new(&mut fields);
            request.parse(black_box(REQUEST)).is_ok_and(|status| status.is_complete())
        });
    });
    criterion.bench_function("head/parse", |bencher| {
        bencher.iter(|| matches!(head::parse(black_box(REQUEST), &limits), Ok(Parsed::Complete { .. })));
    });
    criterion.bench_function("body/length", |bencher| {
        let Ok(Parsed::Complete { head, consumed }) = head::parse(REQUEST, &limits) else {
            panic!("the request of this bench is valid")
        };
        let mut input = BytesMut::with_capacity(8192);
        bencher.iter(|| {
            input.extend_from_slice(&REQUEST[consumed..]);
            let mut body = BytesMut::new();
            let decoder = Decoder::new(black_box(head.framing), 4 << 20);
            decoder.and_then(|mut decoder| decoder.decode(&mut input, &mut body))
        });
    });
}

fn reply(criterion: &mut Criterion) {
    let date = DateText::from_unix_s(784_111_777);
    criterion.bench_function("reply/json", |bencher| {
        let mut out = BytesMut::with_capacity(4096);
        bencher.iter(|| {
            out.clear();
            let exchange = Exchange {
                version: Version::Http11,
                persistence: Persistence::Keep,
                cors: None,
                date: black_box(&date),
            };
            ReplyHead::new(Status::Ok, Content::Json(72), exchange).write(&mut out);
        });
    });
}

criterion_group!(benches, request, reply);
criterion_main!(benches);
