//! Requests to clients that wait for their answers.
//!
//! Owns the numbers of a shard's requests and whoever waits for each. It must never keep an answer nobody waits for: a
//! dropped [`Answer`] takes its place with it, and what comes then is forgotten. Bounded by the handlers that run, since each
//! waits for what it asked. About 100 bytes while a request waits, O(1) for everything.

use super::context::Link;
use crate::core::jsonrpc::RpcError;
use crate::core::seam::ServerRequestId;
use bytes::Bytes;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// A shard's requests to clients.
#[derive(Debug, Default)]
pub(super) struct Asks {
    last: Cell<u64>,
    waiting: RefCell<HashMap<ServerRequestId, Place>>,
}

#[derive(Debug)]
enum Place {
    Waiting(Option<Waker>),
    Answered(Result<Bytes, RpcError>),
}

impl Asks {
    /// Who waited for that request, if anybody does, has the answer now.
    pub(super) fn answered(&self, id: ServerRequestId, answer: Result<Bytes, RpcError>) {
        let place = match self.waiting.borrow_mut().get_mut(&id) {
            Some(place) => std::mem::replace(place, Place::Answered(answer)),
            None => return,
        };
        if let Place::Waiting(Some(waker)) = place {
            waker.wake();
        }
    }

    /// Whether somebody waits for the answer to that request.
    pub(super) fn is_waiting(&self, id: ServerRequestId) -> bool {
        self.waiting.borrow().contains_key(&id)
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }
}

/// The answer to a request that is about to be sent.
#[derive(Debug)]
pub(super) struct Answer {
    id: ServerRequestId,
    link: Rc<Link>,
}

impl Answer {
    /// Takes a number, for a request that the caller sends.
    pub(super) fn expect(link: &Rc<Link>) -> Self {
        let asks = &link.asks;
        asks.last.set(asks.last.get() + 1);
        let id = ServerRequestId(asks.last.get());
        asks.waiting.borrow_mut().insert(id, Place::Waiting(None));
        Answer { id, link: Rc::clone(link) }
    }

    pub(super) fn id(&self) -> ServerRequestId {
        self.id
    }
}

impl Future for Answer {
    type Output = Result<Bytes, RpcError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = self.link.asks.waiting.borrow_mut();
        let place = waiting.get_mut(&self.id).expect("the place stays until the answer is dropped or taken");
        match std::mem::replace(place, Place::Waiting(Some(cx.waker().clone()))) {
            Place::Answered(answer) => Poll::Ready(answer),
            Place::Waiting(_) => Poll::Pending,
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.link.asks.waiting.borrow_mut().remove(&self.id);
    }
}
