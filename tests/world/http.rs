//! The client's own reading of HTTP and SSE: slow, obvious, and nothing of the server's.

use serde_json::Value;

/// A response: for a stream, as much of its content as has arrived.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body has ended.
    pub complete: bool,
}

impl Response {
    /// The first response in `bytes` and what follows it.
    pub fn parse(bytes: &[u8]) -> Option<(Self, Vec<u8>)> {
        let end = find(bytes, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let fields: Vec<(String, String)> = lines
            .map(|line| {
                let (name, value) = line.split_once(':').expect("a field");
                (name.to_ascii_lowercase(), value.trim().to_owned())
            })
            .collect();
        let rest = &bytes[end + 4..];
        if status == 100 {
            return Response::parse(rest);
        }
        let field = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let (body, complete, rest) = if field("transfer-encoding") == Some("chunked") {
            let (body, complete, used) = dechunk_counted(rest);
            (body, complete, rest[used..].to_vec())
        } else if let Some(length) = field("content-length") {
            let length: usize = length.parse().ok()?;
            let body = rest.get(..length)?.to_vec();
            (body, true, rest[length..].to_vec())
        } else if status == 204 {
            (Vec::new(), true, rest.to_vec())
        } else {
            (rest.to_vec(), false, Vec::new())
        };
        Some((Response { status, fields: fields.clone(), body, complete }, rest))
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    pub fn events(&self) -> Vec<Event> {
        events(&self.body)
    }

    pub fn is_stream(&self) -> bool {
        self.field("content-type") == Some("text/event-stream")
    }
}

/// One block of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: Option<String>,
    pub retry: Option<String>,
    pub comments: Vec<String>,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(self.data.as_deref().unwrap_or_default())
            .unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The `text` of a numbered message.
    pub fn text(&self) -> Option<String> {
        let data = self.data.as_deref().filter(|data| !data.is_empty())?;
        let json: Value = serde_json::from_str(data).ok()?;
        Some(json["params"]["text"].as_str()?.to_owned())
    }

    pub fn is_comment(&self) -> bool {
        !self.comments.is_empty() && self.data.is_none() && self.id.is_none()
    }

    pub fn is_keep_alive(&self) -> bool {
        self.is_comment() && self.comments == ["keepalive"]
    }
}

/// The blocks in `content`; an unfinished one is an error.
pub fn events(content: &[u8]) -> Vec<Event> {
    let text = std::str::from_utf8(content).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with("\n\n"), "an unfinished event in {text:?}");
    text.split_terminator("\n\n").filter(|block| !block.is_empty()).map(event).collect()
}

fn event(block: &str) -> Event {
    let mut event = Event::default();
    for line in block.split('\n') {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match name {
            "" => event.comments.push(value),
            "id" => event.id = Some(value),
            "event" => event.name = Some(value),
            "retry" => event.retry = Some(value),
            "data" => {
                event.data = Some(match event.data.take() {
                    None => value,
                    Some(data) => data + "\n" + &value,
                });
            }
            other => panic!("unknown field {other:?}"),
        }
    }
    event
}

/// Decodes chunks; says whether the last one was there.
pub fn dechunk(bytes: &[u8]) -> (Vec<u8>, bool) {
    let (body, complete, _) = dechunk_counted(bytes);
    (body, complete)
}

fn dechunk_counted(bytes: &[u8]) -> (Vec<u8>, bool, usize) {
    let (mut body, mut at) = (Vec::new(), 0);
    while let Some(line) = find(&bytes[at..], b"\r\n") {
        let size = std::str::from_utf8(&bytes[at..at + line]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("not a chunk size: {size:?}"));
        let start = at + line + 2;
        let Some(chunk) = bytes.get(start..start + size + 2) else { break };
        assert_eq!(&chunk[size..], b"\r\n", "a chunk ends with CRLF");
        body.extend_from_slice(&chunk[..size]);
        at = start + size + 2;
        if size == 0 {
            return (body, true, at);
        }
    }
    (body, false, at)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
