//! Random bytes from the system, a buffer at a time.
//!
//! Owns one buffer per shard. Bytes are handed out once and wiped; a session id costs no system call of
//! its own.

use crate::core::Entropy;

/// Bytes fetched at once: 16 session ids. The kernel serves up to 256 without being interrupted.
const BUFFER_BYTES: usize = 256;

/// The system's random bytes.
pub(crate) struct SystemEntropy {
    buffer: [u8; BUFFER_BYTES],
    used: usize,
}

impl SystemEntropy {
    /// With an empty buffer; nothing is fetched before it is asked for.
    pub(crate) fn new() -> Self {
        SystemEntropy { buffer: [0; BUFFER_BYTES], used: BUFFER_BYTES }
    }

    fn refill(&mut self) {
        getrandom::fill(&mut self.buffer).expect("Linux has random bytes once it has booted");
        self.used = 0;
    }
}

impl Entropy for SystemEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(BUFFER_BYTES) {
            if BUFFER_BYTES - self.used < chunk.len() {
                self.refill();
            }
            let taken = &mut self.buffer[self.used..self.used + chunk.len()];
            chunk.copy_from_slice(taken);
            taken.fill(0);
            self.used += chunk.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_handed_out_twice() {
        let mut entropy = SystemEntropy::new();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut id = [0; 16];
            entropy.fill(&mut id);
            assert!(seen.insert(id));
        }
    }

    #[test]
    fn more_than_a_buffer_is_filled_whole() {
        let mut out = [0; 3 * BUFFER_BYTES + 5];
        SystemEntropy::new().fill(&mut out);
        assert!(out.chunks(64).all(|chunk| chunk.iter().any(|byte| *byte != 0) || chunk.len() < 8));
    }
}
