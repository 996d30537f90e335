//! What waits to be written to a child.
//!
//! Owns the messages and the count of their bytes. One message is always admitted, whatever its length: the bound is on
//! what waits behind it. Invariant: `bytes` is the sum of what is left of all messages.

use bytes::{Buf as _, Bytes};
use std::{collections::VecDeque, io::IoSlice};

/// Slices of one write.
const SLICES_MAX: usize = 16;

/// The bound is reached; nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    messages: VecDeque<Bytes>,
    bytes: usize,
}

impl Outbox {
    /// Takes a message, unless more than `bytes_max` would wait behind another.
    pub(super) fn push(&mut self, message: Bytes, bytes_max: usize) -> Result<(), Full> {
        if self.bytes > 0 && self.bytes + message.len() > bytes_max {
            return Err(Full);
        }
        self.bytes += message.len();
        self.messages.push_back(message);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The next bytes to write.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        self.messages.iter().take(SLICES_MAX).map(|message| IoSlice::new(message)).collect()
    }

    /// That many of them were written.
    pub(super) fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(front) = self.messages.front_mut()
            && count > 0
        {
            let step = count.min(front.len());
            front.advance(step);
            count -= step;
            if front.is_empty() {
                self.messages.pop_front();
            }
        }
        if self.messages.is_empty() {
            self.messages = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_always_admitted() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.push(Bytes::from_static(&[0; 100]), 10), Ok(()));
        assert_eq!(outbox.push(Bytes::from_static(&[0; 1]), 10), Err(Full));
        outbox.advance(95);
        assert_eq!(outbox.push(Bytes::from_static(&[0; 5]), 10), Ok(()));
        assert_eq!(outbox.push(Bytes::from_static(&[0; 1]), 10), Err(Full));
        outbox.advance(10);
        assert!(outbox.is_empty());
    }

    #[test]
    fn short_writes_continue_where_they_stopped() {
        let mut outbox = Outbox::default();
        for text in ["abc", "def", "ghi"] {
            assert_eq!(outbox.push(Bytes::from_static(text.as_bytes()), 100), Ok(()));
        }
        let mut seen = Vec::new();
        while !outbox.is_empty() {
            let all: Vec<u8> = outbox.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            let count = all.len().min(2);
            seen.extend_from_slice(&all[..count]);
            outbox.advance(count);
        }
        assert_eq!(seen, b"abcdefghi");
        assert_eq!(outbox.bytes, 0);
    }
}
