//! What waits to be written on one connection.
//!
//! Owns pieces in order, each marked when it ends a frame. Exists only while it holds something (the shard
//! keeps a few emptied ones for reuse). Invariants: `bytes` is the sum of the pieces; the first piece starts at
//! the first unwritten byte; the first `lent` bytes are with the kernel and are never taken back, nor are the first
//! `pinned` ones; a frame of which a byte was written or lent is always finished; what counts as unread ends within what
//! waits.

use super::{
    memory::Unread,
    seam::{Inline, Piece},
};
use crate::limits::SLICES_PER_WRITE_MAX;
use std::collections::VecDeque;

/// Where frames may be cut apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundary {
    Inside,
    FrameEnd,
}

/// Whether the bytes written so far end where a frame ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    FrameStart,
    MidFrame,
}

#[derive(Debug, Default)]
pub(super) struct Output {
    pieces: VecDeque<(Piece, Boundary)>,
    bytes: usize,
    lent: usize,
    pinned: usize,
    progress: Progress,
    /// Large replies among the pieces, each with how many bytes from here on it ends.
    unread: VecDeque<(usize, Unread)>,
}

impl Output {
    pub(super) fn push(&mut self, piece: Piece, boundary: Boundary) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len();
        self.pieces.push_back((piece, boundary));
    }

    /// Puts the rest of a one-piece frame, whose beginning was written past this queue, before all else.
    pub(super) fn push_rest(&mut self, rest: &'static [u8]) {
        assert!(self.progress == Progress::FrameStart && self.lent == 0, "the rest of a frame comes first");
        self.bytes += rest.len();
        self.unread.iter_mut().for_each(|(end, _)| *end += rest.len());
        self.pieces.push_front((Piece::Static(rest), Boundary::FrameEnd));
        self.progress = Progress::MidFrame;
    }

    /// What was pushed last counts as long as it waits.
    pub(super) fn hold(&mut self, unread: Unread) {
        self.unread.push_back((self.bytes, unread));
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that are with the kernel, taken or not.
    pub(super) fn lent(&self) -> usize {
        self.lent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Lends the next pieces to the kernel, until `out` is full.
    pub(super) fn lend(&mut self, out: &mut Vec<Piece>) {
        self.lent = 0;
        let room = SLICES_PER_WRITE_MAX.saturating_sub(out.len());
        for (piece, _) in self.pieces.iter().take(room) {
            self.lent += piece.len();
            out.push(piece.clone());
        }
    }

    /// `count` bytes were taken by the kernel; what else was lent is no longer.
    pub(super) fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "more written than was queued");
        self.bytes -= count;
        self.lent = 0;
        self.pinned = self.pinned.saturating_sub(count);
        self.unread.retain_mut(|(end, _)| {
            *end = end.saturating_sub(count);
            *end > 0
        });
        while count > 0 {
            let (piece, _) = self.pieces.front_mut().expect("bytes are in pieces");
            let len = piece.len();
            if count < len {
                skip(piece, count);
                self.progress = Progress::MidFrame;
                return;
            }
            count -= len;
            let (_, boundary) = self.pieces.pop_front().expect("seen above");
            self.progress = match boundary {
                Boundary::Inside => Progress::MidFrame,
                Boundary::FrameEnd => Progress::FrameStart,
            };
        }
    }

    /// What waits now is written whatever happens: a reply's head is not taken back with the events after it.
    pub(super) fn pin(&mut self) {
        self.pinned = self.bytes;
    }

    /// Takes back every frame that is not pinned and of which no byte is with the kernel or written.
    pub(super) fn retract(&mut self) {
        let kept = self.pieces_started();
        let retracted: usize = self.pieces.drain(kept..).map(|(piece, _)| piece.len()).sum();
        self.bytes -= retracted;
        self.unread.retain(|(end, _)| *end <= self.bytes);
    }

    /// How many pieces, from the front, belong to frames already started, or pinned.
    fn pieces_started(&self) -> usize {
        let fixed = self.lent.max(self.pinned);
        let (mut seen, mut progress) = (0, self.progress);
        for (index, (piece, boundary)) in self.pieces.iter().enumerate() {
            if progress == Progress::FrameStart && seen >= fixed {
                return index;
            }
            seen += piece.len();
            progress = match boundary {
                Boundary::Inside => Progress::MidFrame,
                Boundary::FrameEnd => Progress::FrameStart,
            };
        }
        self.pieces.len()
    }
}

fn skip(piece: &mut Piece, count: usize) {
    *piece = match piece {
        Piece::Static(bytes) => Piece::Static(&bytes[count..]),
        Piece::Shared(bytes) => Piece::Owned(bytes.slice(count..)),
        Piece::Owned(bytes) => Piece::Owned(bytes.slice(count..)),
        Piece::Inline(inline) => {
            let mut rest = Inline::new();
            rest.push(&inline.as_slice()[count..]);
            Piece::Inline(rest)
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{census::Census, memory::Meter};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn piece(bytes: &'static str) -> Piece {
        Piece::Static(bytes.as_bytes())
    }

    fn rest(output: &Output) -> String {
        output
            .pieces
            .iter()
            .map(|(piece, _)| String::from_utf8_lossy(piece.as_slice()).into_owned())
            .collect()
    }

    fn two_frames() -> Output {
        let mut output = Output::default();
        output.push(piece("ab"), Boundary::Inside);
        output.push(piece("cd"), Boundary::FrameEnd);
        output.push(piece("ef"), Boundary::Inside);
        output.push(piece("gh"), Boundary::FrameEnd);
        output
    }

    #[test]
    fn what_is_unread_counts_until_its_last_byte_is_written_whatever_comes_before_it() {
        let meter = Meter::new(Arc::new(Census::new()));
        let mut output = two_frames();
        output.hold(Unread::new(1_000, None, &meter));
        output.push(piece("ij"), Boundary::FrameEnd);
        output.push_rest(b"rest");
        output.advance(11);
        assert_eq!((meter.bytes(), rest(&output).as_str()), (1_000, "hij"));
        output.advance(1);
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn a_started_frame_is_finished_and_the_next_taken_back() {
        for written in 0..=8 {
            let mut output = two_frames();
            output.advance(written);
            output.retract();
            let expected = match written {
                0 => "",
                1..=3 => &"abcd"[written..],
                4 => "",
                _ => &"abcdefgh"[written..],
            };
            assert_eq!(rest(&output), expected, "{written} written");
            assert_eq!(output.bytes(), expected.len());
        }
    }

    #[test]
    fn what_the_kernel_holds_is_not_taken_back() {
        let mut output = two_frames();
        let mut lent = Vec::new();
        output.lend(&mut lent);
        assert_eq!(lent.len(), 4);
        output.push(piece("later"), Boundary::FrameEnd);
        output.retract();
        assert_eq!(rest(&output), "abcdefgh");
    }

    #[test]
    fn what_is_pinned_is_not_taken_back_until_it_is_written() {
        for written in 0..=12 {
            let mut output = two_frames();
            output.pin();
            output.push(piece("late"), Boundary::FrameEnd);
            output.advance(written);
            output.retract();
            let expected = if written <= 8 { &"abcdefgh"[written..] } else { &"abcdefghlate"[written..] };
            assert_eq!(rest(&output), expected, "{written} written");
        }
    }

    #[test]
    fn the_rest_of_a_comment_is_a_started_frame() {
        let mut output = Output::default();
        output.push(piece("next"), Boundary::FrameEnd);
        output.push_rest(b"alive");
        output.retract();
        assert_eq!(rest(&output), "alive");
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_order_whatever_the_counts(
            frames in prop::collection::vec(prop::collection::vec(prop::sample::select(vec!["a", "bc", "def"]), 1..4), 0..12),
            counts in prop::collection::vec(1usize..6, 0..60),
        ) {
            let mut output = Output::default();
            let mut expected = String::new();
            for frame in &frames {
                for (index, part) in frame.iter().enumerate() {
                    let boundary = if index + 1 == frame.len() { Boundary::FrameEnd } else { Boundary::Inside };
                    output.push(piece(part), boundary);
                    expected.push_str(part);
                }
            }
            let mut got = String::new();
            for count in counts {
                let mut lent = Vec::new();
                output.lend(&mut lent);
                let text: String = lent.iter().map(|p| String::from_utf8_lossy(p.as_slice()).into_owned()).collect();
                let count = count.min(text.len());
                got.push_str(&text[..count]);
                output.advance(count);
            }
            prop_assert_eq!(got + &rest(&output), expected);
        }
    }
}
