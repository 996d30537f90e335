//! Whether the generator itself kept up.
//!
//! A generator that is busy sends late and reads late, and would blame the server for both. So a tick is
//! due every few milliseconds, and how late each comes is recorded: it is what any other due action
//! would have waited too.

use crate::clock::Moment;

/// Distance of the ticks, in milliseconds.
const TICK_MS: u64 = 10;

/// The tick of a worker's loop.
#[derive(Debug)]
pub(crate) struct Tick {
    due: Moment,
}

impl Tick {
    /// Ticks from `now` on.
    pub(crate) fn new(now: Moment) -> Self {
        Self { due: now.plus_ms(TICK_MS) }
    }

    /// When the next tick is due.
    pub(crate) fn due(&self) -> Moment {
        self.due
    }

    /// If the tick is due: how late it is, in microseconds. The next one counts from now.
    pub(crate) fn take(&mut self, now: Moment) -> Option<u64> {
        if now < self.due {
            return None;
        }
        let late_us = now.us_since(self.due);
        self.due = now.plus_ms(TICK_MS);
        Some(late_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_recorded_once_at_its_length() {
        let start = Moment::default();
        let mut tick = Tick::new(start);
        assert_eq!(tick.take(start.plus_ms(9)), None);
        assert_eq!(tick.take(start.plus_ms(510)), Some(500_000));
        assert_eq!(tick.take(start.plus_ms(511)), None);
    }
}
