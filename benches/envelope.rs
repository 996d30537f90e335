//! JSON-RPC envelopes: a small call read and answered, beside a full parse into a tree; and a large body.
#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use moorline::core::jsonrpc::{self, Meta};
use std::hint::black_box;

const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello, world"},"_meta":{"progressToken":17}}}"#;

fn small_call(c: &mut Criterion) {
    let mut group = c.benchmark_group("envelope/small_call");
    group.throughput(Throughput::Bytes(CALL.len() as u64));
    group.bench_function("parse", |b| b.iter(|| jsonrpc::parse(black_box(CALL)).is_ok()));
    group.bench_function("parse_with_meta", |b| {
        b.iter(|| match jsonrpc::parse(black_box(CALL)) {
            Ok(jsonrpc::Body::Single(jsonrpc::Message::Request { params, .. })) => {
                Meta::of(params).progress_token.is_some()
            }
            other => panic!("not a request: {other:?}"),
        });
    });
    group.bench_function("tree", |b| {
        b.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(CALL)).is_ok())
    });
    group.bench_function("write_result", |b| {
        let mut out = Vec::with_capacity(256);
        b.iter(|| {
            out.clear();
            jsonrpc::write_result(
                &mut out,
                b"17",
                black_box(br#"{"content":[{"type":"text","text":"hello, world"}]}"#),
            );
            out.len()
        });
    });
    group.finish();
}

fn large_body(c: &mut Criterion) {
    let params = vec![r#"{"name":"a \"quoted\" name","values":[1,2,3.5,true,null]}"#; 10_000].join(",");
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"items":[{params}]}}}}"#);
    let mut group = c.benchmark_group("envelope/large_body");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("parse", |b| b.iter(|| jsonrpc::parse(black_box(body.as_bytes())).is_ok()));
    group.finish();
}

criterion_group!(benches, small_call, large_body);
criterion_main!(benches);
