//! HTTP/1.1 as bytes: request heads in, bodies in, reply heads out (RFC 9110, RFC 9112).
//!
//! Owns the syntax and what follows from it alone: framing, persistence, negotiation, `Host` and `Origin`
//! rules, the form of replies. Knows no connection, no session and no JSON beyond the error object of a
//! refusal. It must never perform I/O, read a clock, panic on bytes, allocate before a bound was checked,
//! or guess where a message ends: a doubtful boundary is a [`Refusal`] that closes.
//!
//! A request's way: [`head::parse`] → [`policy::Policy::check`] → [`head::Head::admit_post`] →
//! [`body::Decoder`] → … → [`reply::ReplyHead`] or [`Refusal::write`].
//!
//! Invariants: heads borrow the read buffer and copy nothing; how input was cut into reads never changes a
//! result; every element of a reply that came from a client was checked to hold no line end.

pub mod authority;
pub mod body;
pub mod date;
pub mod fields;
pub mod framing;
pub mod head;
pub mod policy;
pub mod refusal;
pub mod reply;
pub mod status;

pub use authority::Authority;
pub use body::{Decoder, Progress};
pub use date::DateText;
pub use fields::{Accept, Coding, ContentType, Forms};
pub use framing::Framing;
pub use head::{Expect, Head, HeadLimits, Method, Parsed, Target, Version};
pub use policy::{Binding, Cors, Policy, Preflight};
pub use refusal::Refusal;
pub use reply::{Content, Exchange, ReplyHead};
pub use status::Status;

/// What becomes of the connection after a reply (RFC 9112 section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// The next request may follow.
    Keep,
    /// The reply is the last one; what follows on the connection is never parsed.
    Close,
}

impl Persistence {
    /// Close if either side of the exchange wants it.
    pub fn and(self, other: Persistence) -> Persistence {
        match (self, other) {
            (Persistence::Keep, Persistence::Keep) => Persistence::Keep,
            (Persistence::Close, _) | (_, Persistence::Close) => Persistence::Close,
        }
    }
}

#[cfg(test)]
mod tests;
