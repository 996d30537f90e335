//! Who is served by a child.

use crate::core::seam::{CallKey, SessionKey};

/// Somebody whom a child serves, and who can be subscribed to something there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// A session, for as long as it lasts.
    Session(SessionKey),
    /// A request of 2026-07-28, which belongs to nothing; for a listen stream that is as long as the stream lasts.
    Alone(CallKey),
}
