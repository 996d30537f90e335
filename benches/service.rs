//! A tool call from the core's question to the answer for it: what a server made with the builder adds to a request.

#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]
use criterion::{Criterion, criterion_group, criterion_main};
use moorline::{
    backend::{Builtin, Host},
    core::{Ask, Call, CallKey, ClientFeatures, Generation, Method, Revision, SessionKey, Tell},
    shell::Backend as _,
};
use std::{hint::black_box, num::NonZeroU64};

const ECHO: &[u8] = br#"{"name":"echo","arguments":{"message":"Hello, world!"}}"#;
const ADD: &[u8] = br#"{"name":"add","arguments":{"a":19,"b":23}}"#;

fn calls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("service");
    for (name, method, params) in
        [("echo", "tools/call", ECHO), ("add", "tools/call", ADD), ("list", "tools/list", b"{}")]
    {
        let mut host = Host::new(Builtin::new());
        let mut out = Vec::new();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                host.ask(Ask::Call(call(method, params)), &mut out);
                assert!(matches!(black_box(out.pop()), Some(Tell::Respond(_, Ok(_)))));
            });
        });
    }
    group.finish();
}

fn call(method: &'static str, params: &'static [u8]) -> Call {
    let generation = Generation(NonZeroU64::MIN);
    Call {
        key: CallKey { slot: 0, generation },
        session: Some(SessionKey { slot: 0, generation }),
        method: Method::new(method.as_bytes().into()).expect("text"),
        params: Some(params.into()),
        progress_token: None,
        revision: Revision::NEWEST_WITH_SESSIONS,
        client: ClientFeatures::default(),
        param_fields: Vec::new(),
        principal: None,
    }
}

criterion_group!(benches, calls);
criterion_main!(benches);
