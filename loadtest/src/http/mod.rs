//! HTTP/1.1 as a client sees it: requests written, responses read.
//!
//! Written for this program alone and sharing nothing with any server: a client built from a
//! server's own parser cannot find that parser's faults.

pub(crate) mod request;
pub(crate) mod response;
