#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::super::rig::{Rig, call, method, session};
use super::super::{ServerInfo, notification, service};
use super::*;
use crate::core::seam::{ClientFeatures, LogLevel, NotificationKind, Notified, Revision};
use serde_json::json;
use std::{
    cell::{Cell, RefCell},
    task::Poll,
    time::Duration,
};
use tokio::sync::oneshot;

/// A service whose handlers do what the method says.
#[derive(Default)]
struct Puppet {
    gates: RefCell<HashMap<u32, oneshot::Receiver<()>>>,
    contexts: RefCell<Vec<Context>>,
    seen: Rc<RefCell<Vec<String>>>,
    outlet: Rc<Cell<Option<Outlet>>>,
    /// Says something when it starts.
    speaks: bool,
}

impl Puppet {
    fn with_gates(slots: impl IntoIterator<Item = u32>) -> (Self, Vec<oneshot::Sender<()>>) {
        let puppet = Puppet::default();
        let senders = slots
            .into_iter()
            .map(|slot| {
                let (sender, receiver) = oneshot::channel();
                puppet.gates.borrow_mut().insert(slot, receiver);
                sender
            })
            .collect();
        (puppet, senders)
    }
}

impl Service for Puppet {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("puppet", "9")
    }

    async fn call(&self, request: Request, context: Context) -> Result<Reply, RpcError> {
        match request.method.as_str() {
            "ready" => Reply::of(&json!("ready")),
            "panic" => panic!("on purpose"),
            "panic later" => {
                yield_once().await;
                panic!("on purpose, later")
            }
            "gate" => {
                let gate = self.gates.borrow_mut().remove(&context.key().slot).unwrap();
                gate.await.unwrap();
                Reply::of(&json!("opened"))
            }
            "until cancelled" => {
                context.cancelled().await;
                self.seen.borrow_mut().push(format!("cancelled {}", context.key().slot));
                Ok(Reply::empty())
            }
            "yield" => {
                yield_once().await;
                Ok(Reply::empty())
            }
            "talk" => {
                context.progress(1.0, Some(2.0), Some("one"));
                context.progress(1.0, Some(2.0), Some("again"));
                context.progress(f64::NAN, None, None);
                context.progress(0.5, None, None);
                context.progress(1.5, Some(f64::INFINITY), None);
                context.log(LogLevel::Error, None, &json!({"k": 1}));
                context.notify_session(notification::tools_list_changed());
                context.notify_all(notification::prompts_list_changed());
                self.contexts.borrow_mut().push(context);
                Ok(Reply::empty())
            }
            "subscribe" => Ok(Reply::subscribed("a:b")),
            "unsubscribe" => Ok(Reply::unsubscribed("a:b")),
            "meta" => Reply::of(&json!([context.meta(), request.meta()])),
            "close" => {
                context.close_stream(Duration::from_millis(1500));
                context.close_listeners(Duration::from_secs(2));
                context.resource_updated("a:b");
                Ok(Reply::empty())
            }
            "keep" => {
                self.contexts.borrow_mut().push(context.clone());
                context.unless_cancelled(std::future::pending::<()>()).await;
                Ok(Reply::empty())
            }
            _ => Err(service::method_not_found(&request.method)),
        }
    }

    fn started(&self, outlet: Outlet) {
        if self.speaks {
            outlet.notify_all(notification::tools_list_changed());
        }
        self.outlet.set(Some(outlet));
    }

    fn session_started(&self, initialize: &Request) {
        self.seen.borrow_mut().push(format!("began at {}", initialize.revision.date()));
    }

    fn notified(&self, notified: &Notified) {
        assert_ne!(notified.method.as_str(), "panic", "on purpose");
        self.seen.borrow_mut().push(notified.method.as_str().to_owned());
    }

    fn session_ended(&self, session: SessionKey) {
        self.seen.borrow_mut().push(format!("ended {}", session.slot));
    }
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_ready_handler_answers_at_once_and_keeps_no_worker() {
    let mut rig = Rig::new(Puppet::default());
    for slot in 0..100 {
        rig.call(slot, "ready", None);
        assert_eq!(rig.answer(slot).unwrap(), "ready");
    }
    assert_eq!((rig.host.workers.len(), rig.host.pending_count()), (1, 0));
    assert_eq!(rig.wakes(), 0);
}

#[test]
fn a_pending_handler_is_polled_only_when_woken() {
    let (puppet, gates) = Puppet::with_gates([7]);
    let mut rig = Rig::new(puppet);
    rig.call(7, "gate", None);
    rig.poll();
    assert!(rig.take().is_empty());
    assert_eq!((rig.host.pending_count(), rig.wakes()), (1, 0));

    gates.into_iter().for_each(|gate| gate.send(()).unwrap());
    assert_eq!(rig.wakes(), 1);
    assert!(rig.take().is_empty(), "waking alone polls nothing");
    rig.poll();
    assert_eq!(rig.answer(7).unwrap(), "opened");
    assert_eq!(rig.host.pending_count(), 0);
}

#[test]
fn many_wakes_in_one_turn_wake_the_driver_once() {
    let (puppet, gates) = Puppet::with_gates(0..50);
    let mut rig = Rig::new(puppet);
    (0..50).for_each(|slot| rig.call(slot, "gate", None));
    rig.poll();
    gates.into_iter().for_each(|gate| gate.send(()).unwrap());
    assert_eq!(rig.wakes(), 1);
    rig.poll();
    assert_eq!(rig.take().len(), 50);
    assert!(rig.host.by_call.is_empty() && rig.host.by_session.is_empty());
}

#[test]
fn a_wake_from_another_thread_counts() {
    let (puppet, mut gates) = Puppet::with_gates([0]);
    let mut rig = Rig::new(puppet);
    rig.call(0, "gate", None);
    rig.poll();
    let gate = gates.pop().unwrap();
    std::thread::spawn(move || gate.send(()).unwrap()).join().unwrap();
    assert_eq!(rig.wakes(), 1);
    rig.poll();
    assert_eq!(rig.answer(0).unwrap(), "opened");
}

#[test]
fn a_handler_that_wakes_itself_waits_for_the_next_poll() {
    let mut rig = Rig::new(Puppet::default());
    rig.call(0, "yield", None);
    assert!(rig.take().is_empty());
    assert_eq!(rig.wakes(), 1);
    rig.poll();
    assert_eq!(rig.answer(0).unwrap(), json!({}));
}

#[test]
fn idle_workers_are_bounded() {
    let count = u32::try_from(IDLE_WORKERS_MAX).unwrap() * 2;
    let (puppet, gates) = Puppet::with_gates(0..count);
    let mut rig = Rig::new(puppet);
    (0..count).for_each(|slot| rig.call(slot, "gate", None));
    assert_eq!(rig.host.workers.len(), IDLE_WORKERS_MAX * 2);
    gates.into_iter().for_each(|gate| gate.send(()).unwrap());
    rig.poll();
    assert_eq!(rig.host.workers.len(), IDLE_WORKERS_MAX);
}

#[test]
fn a_panic_costs_its_own_call_only() {
    let (puppet, gates) = Puppet::with_gates([1]);
    let mut rig = Rig::new(puppet);
    rig.call(1, "gate", None);
    rig.call(2, "panic", None);
    assert_eq!(rig.refusal(2), (-32603, "Internal error".to_owned()));
    rig.call(3, "panic later", None);
    assert!(rig.take().is_empty());
    rig.poll();
    assert_eq!(rig.refusal(3), (-32603, "Internal error".to_owned()));
    gates.into_iter().for_each(|gate| gate.send(()).unwrap());
    rig.poll();
    assert_eq!(rig.answer(1).unwrap(), "opened");
    rig.call(4, "ready", None);
    assert_eq!(rig.answer(4).unwrap(), "ready");
    assert_eq!(rig.host.workers.len(), 1, "panicked workers are gone");
}

#[test]
fn a_cancelled_handler_sees_it() {
    let puppet = Puppet::default();
    let seen = Rc::clone(&puppet.seen);
    let mut rig = Rig::new(puppet);
    rig.call(1, "until cancelled", None);
    rig.call(2, "until cancelled", None);
    rig.ask(Ask::Cancel(call(2)));
    rig.ask(Ask::Cancel(call(99)));
    assert_eq!(rig.wakes(), 1);
    rig.poll();
    assert_eq!(*seen.borrow(), ["cancelled 2"]);
    assert_eq!(rig.answer(2).unwrap(), json!({}));
    rig.ask(Ask::Cancel(call(2)));
    assert_eq!(rig.host.pending_count(), 1);
}

#[test]
fn the_end_of_a_session_cancels_its_calls_and_no_others() {
    let puppet = Puppet::default();
    let seen = Rc::clone(&puppet.seen);
    let mut rig = Rig::new(puppet);
    rig.call(1, "until cancelled", None);
    rig.call(2, "until cancelled", None);
    rig.ask(Ask::Call(Call {
        key: call(3),
        session: Some(session(5)),
        method: method("until cancelled"),
        params: None,
        progress_token: None,
        revision: Revision::NEWEST_WITH_SESSIONS,
        client: ClientFeatures::default(),
        param_fields: Vec::new(),
        principal: None,
    }));
    rig.ask(Ask::SessionEnded(session(0)));
    rig.poll();
    assert_eq!(*seen.borrow(), ["ended 0", "cancelled 1", "cancelled 2"]);
    assert_eq!(rig.host.pending_count(), 1);
    rig.ask(Ask::SessionEnded(session(6)));
    rig.ask(Ask::SessionEnded(session(5)));
    rig.poll();
    assert_eq!(rig.host.pending_count(), 0);
    assert!(rig.host.by_session.is_empty());
}

#[test]
fn what_a_handler_says_comes_in_order_and_before_its_answer() {
    let mut rig = Rig::new(Puppet::default());
    rig.call(4, "talk", None);
    let told = rig.take();
    let texts: Vec<_> = told.iter().map(|tell| format!("{tell:?}")).collect();
    assert_eq!(told.len(), 6, "{texts:#?}");
    let Tell::Notify(key, first) = &told[0] else { panic!("{texts:#?}") };
    assert_eq!(*key, call(4));
    assert_eq!(
        first.json,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1,"total":2,"message":"one"}}"#
    );
    let Tell::Notify(_, second) = &told[1] else { panic!("{texts:#?}") };
    assert!(second.json.ends_with(br#""progress":1.5}}"#), "neither repeated nor infinite: {second:?}");
    assert!(matches!(&told[2], Tell::Notify(_, log) if log.json.ends_with(br#""data":{"k":1}}}"#)));
    assert!(matches!(&told[3], Tell::Announce(key, _) if *key == session(0)));
    assert!(matches!(&told[4], Tell::Broadcast(_)));
    assert!(matches!(&told[5], Tell::Respond(..)));
}

#[test]
fn progress_without_a_token_is_nothing_and_old_clients_get_no_message() {
    let mut rig = Rig::new(Puppet::default());
    let mut request = Call {
        key: call(0),
        session: Some(session(0)),
        method: method("talk"),
        params: None,
        progress_token: None,
        revision: Revision::V2024_11_05,
        client: ClientFeatures::default(),
        param_fields: Vec::new(),
        principal: None,
    };
    let is_progress =
        |tell: &Tell| matches!(tell, Tell::Notify(_, n) if n.kind == NotificationKind::Progress);
    rig.ask(Ask::Call(Call { method: request.method.clone(), ..request }));
    assert!(!rig.take().iter().any(is_progress));

    request = Call {
        key: call(1),
        session: Some(session(0)),
        method: method("talk"),
        params: None,
        progress_token: Some("7".into()),
        revision: Revision::V2024_11_05,
        client: ClientFeatures::default(),
        param_fields: Vec::new(),
        principal: None,
    };
    rig.ask(Ask::Call(request));
    let told = rig.take();
    let Tell::Notify(_, first) = &told[0] else { panic!("{told:?}") };
    assert!(first.json.ends_with(br#"{"progressToken":7,"progress":1,"total":2}}"#), "{first:?}");
}

#[test]
fn a_context_is_dumb_after_the_answer_and_wakes_the_driver_before_it() {
    let mut rig = Rig::new(Puppet::default());
    rig.call(0, "talk", None);
    rig.take();
    let kept = rig.host.service.contexts.borrow_mut().pop().unwrap();
    kept.progress(2.0, None, None);
    kept.notify_all(notification::tools_list_changed());
    rig.poll();
    assert!(rig.take().is_empty());

    rig.call(1, "keep", None);
    rig.poll();
    rig.wakes();
    let kept = rig.host.service.contexts.borrow_mut().pop().unwrap();
    kept.progress(1.0, None, None);
    assert_eq!(rig.wakes(), 1, "nobody was polling");
    rig.poll();
    assert_eq!(rig.take().len(), 1);
    assert!(!kept.is_cancelled());
    rig.ask(Ask::Cancel(call(1)));
    assert!(kept.is_cancelled());
    rig.poll();
    assert_eq!(rig.answer(1).unwrap(), json!({}));
}

#[test]
fn the_host_answers_initialize() {
    let mut rig = Rig::new(Puppet::default());
    for (slot, revision) in (0..).zip(Revision::WITH_SESSIONS) {
        rig.call_at(revision, slot, "initialize", Some(r#"{"protocolVersion":"whatever"}"#));
        let answer = rig.answer(slot).unwrap();
        assert_eq!(answer["protocolVersion"], revision.date());
        assert_eq!(answer["serverInfo"]["name"], "puppet");
    }
    let seen = rig.host.service.seen.borrow().join(" ");
    assert_eq!(seen, "began at 2024-11-05 began at 2025-03-26 began at 2025-06-18 began at 2025-11-25");
    assert_eq!(rig.host.workers.len(), 0, "no handler ran");
}

#[test]
fn an_unknown_method_is_named() {
    let mut rig = Rig::new(Puppet::default());
    rig.call(0, "tools/dance", None);
    assert_eq!(rig.refusal(0), (-32601, "Method not found: tools/dance".to_owned()));
}

#[test]
fn notifications_reach_the_service_and_may_panic() {
    let puppet = Puppet::default();
    let seen = Rc::clone(&puppet.seen);
    let mut rig = Rig::new(puppet);
    for name in ["panic", "notifications/roots/list_changed"] {
        rig.ask(Ask::Notified(Notified { session: session(0), method: method(name), params: None }));
    }
    assert_eq!(*seen.borrow(), ["notifications/roots/list_changed"]);
    assert!(rig.take().is_empty());
}

#[test]
fn a_service_speaks_on_its_own_once_the_shard_runs() {
    let puppet = Puppet { speaks: true, ..Puppet::default() };
    let outlet = Rc::clone(&puppet.outlet);
    let mut rig = Rig::new(puppet);
    assert!(matches!(&rig.take()[..], [Tell::Broadcast(_)]), "it spoke as soon as it could");

    let outlet = outlet.take().expect("the service has started");
    rig.wakes();
    outlet.resource_updated("a:b");
    outlet.notify_session(session(3), notification::tools_list_changed());
    assert_eq!(rig.wakes(), 1);
    rig.poll();
    let told = rig.take();
    assert!(
        matches!(&told[0], Tell::Broadcast(it) if it.kind == NotificationKind::ResourceUpdated("a:b".into()))
    );
    assert!(matches!(&told[1], Tell::Announce(key, _) if *key == session(3)));
}

#[test]
fn subscriptions_are_answers_for_the_core_to_make() {
    let mut rig = Rig::new(Puppet::default());
    rig.call(1, "subscribe", None);
    rig.call(2, "unsubscribe", None);
    let told = rig.take();
    assert!(matches!(&told[0], Tell::Subscribe(key, uri) if *key == call(1) && **uri == *"a:b"), "{told:?}");
    assert!(
        matches!(&told[1], Tell::Unsubscribe(key, uri) if *key == call(2) && **uri == *"a:b"),
        "{told:?}"
    );
}

#[test]
fn the_meta_of_a_request_is_read_when_it_is_wanted() {
    let mut rig = Rig::new(Puppet::default());
    rig.call(0, "meta", Some(r#"{"_meta":{"progressToken":1,"a":{}},"b":2}"#));
    assert_eq!(rig.answer(0).unwrap(), json!([{"progressToken": 1, "a": {}}, {"progressToken": 1, "a": {}}]));
    for params in [None, Some("{}"), Some("[]"), Some(r#"{"_meta":3}"#)] {
        rig.call(0, "meta", params);
        assert_eq!(rig.answer(0).unwrap(), json!([{}, {}]));
    }
}

#[test]
fn streams_are_closed_and_updates_told_before_the_answer() {
    let mut rig = Rig::new(Puppet::default());
    rig.call(0, "close", None);
    let told = rig.take();
    assert!(matches!(told[0], Tell::CloseStream(key, 1500) if key == call(0)), "{told:?}");
    assert!(matches!(told[1], Tell::CloseListeners(key, 2000) if key == session(0)), "{told:?}");
    assert!(
        matches!(&told[2], Tell::Broadcast(it) if it.kind == NotificationKind::ResourceUpdated("a:b".into()))
    );
    assert!(matches!(told[3], Tell::Respond(..)), "{told:?}");
}
