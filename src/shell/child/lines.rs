//! Lines out of a stream of bytes, none of them longer than a bound.
//!
//! Owns the beginning of a line whose end has not come. A line that is too long is given up at once, and its rest skipped
//! as it comes: memory is bounded by the longest line allowed. Complexity: each byte is copied once and looked at once.

use bytes::Bytes;

/// How much is kept of a line that is too long, at most: enough to recognise it in a log.
const START_BYTES_MAX: usize = 8 * 1024;

/// One line, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// All of it, in memory of its own.
    Whole(Bytes),
    /// How it began; it is longer than the bound.
    TooLong(Bytes),
}

/// Cuts what comes into lines.
#[derive(Debug)]
pub(super) struct Lines {
    begun: Vec<u8>,
    is_skipping: bool,
    max: usize,
}

impl Lines {
    /// Lines of at most `max` bytes.
    pub(super) fn new(max: usize) -> Self {
        Lines { begun: Vec::new(), is_skipping: false, max }
    }

    /// Takes more bytes and gives the lines that end in them. Empty lines are none.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.append(&bytes[..end], &mut each);
            self.finish(&mut each);
            bytes = &bytes[end + 1..];
        }
        self.append(bytes, &mut each);
    }

    /// Nothing more comes: what was begun is a line, too.
    pub(super) fn finish(&mut self, mut each: impl FnMut(Line)) {
        // Freed with the line: most of the time a child says nothing.
        let mut line = std::mem::take(&mut self.begun);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if !std::mem::take(&mut self.is_skipping) && !line.is_empty() {
            each(Line::Whole(line.into_boxed_slice().into()));
        }
    }

    fn append(&mut self, bytes: &[u8], each: &mut impl FnMut(Line)) {
        if self.is_skipping {
            return;
        }
        if self.begun.len() + bytes.len() <= self.max {
            self.begun.extend_from_slice(bytes);
            return;
        }
        self.begun.extend_from_slice(&bytes[..bytes.len().min(START_BYTES_MAX)]);
        self.begun.truncate(self.max.min(START_BYTES_MAX));
        self.is_skipping = true;
        each(Line::TooLong(std::mem::take(&mut self.begun).into_boxed_slice().into()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &str) -> Line {
        Line::Whole(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn too_long(text: &str) -> Line {
        Line::TooLong(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn cut(max: usize, pieces: &[&[u8]]) -> Vec<Line> {
        let (mut lines, mut out) = (Lines::new(max), Vec::new());
        for piece in pieces {
            lines.feed(piece, |line| out.push(line));
        }
        lines.finish(|line| out.push(line));
        out
    }

    #[test]
    fn ends_are_cut_off_and_empty_lines_are_none() {
        assert_eq!(cut(9, &[b"a\r\n\n\r\nb\n", b"c"]), [whole("a"), whole("b"), whole("c")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_skipped() {
        assert_eq!(cut(3, &[b"abc\nabcd", b"efgh\nx\n"]), [whole("abc"), too_long("abc"), whole("x")]);
        assert_eq!(cut(3, &[b"abcdef", b"gh"]), [too_long("abc")]);
        let long = vec![b'a'; 3 * START_BYTES_MAX];
        let [Line::TooLong(start)] = &cut(2 * START_BYTES_MAX, &[&long])[..] else { panic!("one line") };
        assert_eq!(start.len(), START_BYTES_MAX);
    }

    #[test]
    fn nothing_is_kept_between_lines() {
        let mut lines = Lines::new(100);
        lines.feed(b"something\n", |_| ());
        assert_eq!(lines.begun.capacity(), 0);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[ab\r\n]{0,80}", cuts in prop::collection::vec(1usize..9, 0..40), max in 1usize..12) {
            let mut pieces = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            pieces.push(rest);
            let expected: Vec<Line> = text
                .split('\n')
                .filter_map(|line| {
                    if line.len() > max {
                        return Some(too_long(&line[..max]));
                    }
                    let line = line.strip_suffix('\r').unwrap_or(line);
                    (!line.is_empty()).then(|| whole(line))
                })
                .collect();
            prop_assert_eq!(cut(max, &pieces), expected);
        }
    }
}
