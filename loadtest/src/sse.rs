//! Reading server-sent events from bytes as they come (WHATWG HTML, section 9.2.6).
//!
//! Owns lines, blocks and comments. Knows nothing of HTTP or MCP. 40 bytes while no line or block is
//! cut in two; a keep-alive that arrives whole allocates nothing.

/// A block of an event stream: what a blank line ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// The `id` field, when there was one.
    pub(crate) id: Option<String>,
    /// The `retry` field, in milliseconds.
    pub(crate) retry_ms: Option<u64>,
    /// The `data` lines joined by newlines; `None` when there was no `data` line.
    pub(crate) data: Option<Vec<u8>>,
}

/// One thing found in an event stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A comment line: what keep-alives are made of.
    Comment,
    /// A complete block with at least one field.
    Block(Block),
}

/// An incremental decoder of one event stream.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    line: Vec<u8>,
    block: Option<Box<Block>>,
    after_cr: bool,
    started: bool,
}

impl Decoder {
    /// Decodes `bytes` and hands each finished item to `on_item`.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut on_item: impl FnMut(Item)) {
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, rest) = bytes.split_at(end);
            let is_cr = rest[0] == b'\r';
            bytes = &rest[1..];
            if std::mem::replace(&mut self.after_cr, is_cr)
                && !is_cr
                && line.is_empty()
                && self.line.is_empty()
            {
                continue;
            }
            if self.line.is_empty() {
                self.on_line(line, &mut on_item);
            } else {
                self.line.extend_from_slice(line);
                let line = std::mem::take(&mut self.line);
                self.on_line(&line, &mut on_item);
            }
        }
        if !bytes.is_empty() {
            self.after_cr = false;
            self.line.extend_from_slice(bytes);
        }
    }

    fn on_line(&mut self, line: &[u8], on_item: &mut impl FnMut(Item)) {
        let line = match std::mem::replace(&mut self.started, true) {
            true => line,
            false => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
        };
        match line.iter().position(|&byte| byte == b':') {
            _ if line.is_empty() => {
                if let Some(block) = self.block.take() {
                    on_item(Item::Block(*block));
                }
            }
            Some(0) => on_item(Item::Comment),
            Some(colon) => {
                let value = &line[colon + 1..];
                self.on_field(&line[..colon], value.strip_prefix(b" ").unwrap_or(value));
            }
            None => self.on_field(line, b""),
        }
    }

    fn on_field(&mut self, name: &[u8], value: &[u8]) {
        let block = self.block.get_or_insert_default();
        match name {
            b"data" => match &mut block.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => block.data = Some(value.to_vec()),
            },
            b"id" if !value.contains(&0) => block.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" => block.retry_ms = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], step: usize) -> Vec<Item> {
        let (mut decoder, mut items) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(step) {
            decoder.feed(piece, |item| items.push(item));
        }
        items
    }

    fn data(text: &str) -> Item {
        Item::Block(Block { data: Some(text.into()), ..Block::default() })
    }

    #[track_caller]
    fn check(bytes: &str, expected: &[Item]) {
        for step in 1..=bytes.len() {
            assert_eq!(decode(bytes.as_bytes(), step), expected, "step {step}");
        }
    }

    #[test]
    fn line_ends_of_all_three_kinds() {
        check(
            "data: a\n\ndata:b\r\n\r\ndata: c\r\rdata: d\n\n",
            &[data("a"), data("b"), data("c"), data("d")],
        );
    }

    #[test]
    fn comments_priming_and_several_data_lines() {
        let primed = Block { id: Some("t-l0-0".into()), retry_ms: Some(3000), data: Some(vec![]) };
        check(
            ": keepalive\n\nid: t-l0-0\nretry: 3000\ndata:\n\nevent: message\ndata: a\ndata: b\n\n",
            &[Item::Comment, Item::Block(primed), data("a\nb")],
        );
    }

    #[test]
    fn a_block_without_its_blank_line_is_not_an_event() {
        check("data: a\n\ndata: lost\n", &[data("a")]);
    }

    #[test]
    fn byte_order_mark_and_nul_in_an_id() {
        check("\u{feff}data: a\nid: x\0y\n\n", &[data("a")]);
    }

    #[test]
    fn nothing_is_held_between_whole_keep_alives() {
        let mut decoder = Decoder::default();
        decoder.feed(b": keepalive\n\n", |_| {});
        assert_eq!((decoder.line.capacity(), decoder.block.is_none()), (0, true));
    }
}
