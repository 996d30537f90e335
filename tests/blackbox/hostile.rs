//! The corpus of hostile HTTP over real sockets; its README says what the first line of a file means.

use super::{
    server::Server,
    session::Session,
    wire::{Connection, Fill},
};
use std::path::Path;

/// What a file asks for.
struct Case {
    name: String,
    status: u16,
    then: Then,
    bytes: Vec<u8>,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Close,
    Keep,
    Either,
}

#[test]
fn every_file_gets_its_status_and_no_second_reply() {
    let server = Server::start(&["--shards", "2"]);
    let session = Session::open(server.address());
    let cases = corpus();
    assert!(cases.len() > 100, "{} files", cases.len());
    let failures: Vec<String> = cases.iter().filter_map(|case| try_case(&server, case).err()).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert_eq!(session.ping_status(), 200, "the server is unharmed");
}

#[test]
fn arbitrary_bytes_end_nothing_but_their_connection() {
    let server = Server::start(&["--shards", "2", "--header-timeout", "300ms", "--body-timeout", "300ms"]);
    let session = Session::open(server.address());
    let seeds: Vec<Vec<u8>> = corpus().into_iter().map(|case| case.bytes).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..400 {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..4 {
            state = next_random(state);
            let at = usize::try_from(state >> 33).expect("31 bits fit") % bytes.len();
            bytes[at] = state.to_le_bytes()[0];
        }
        let mut connection = server.connect();
        connection.send_unheard(&bytes);
    }
    assert_eq!(session.ping_status(), 200, "the server is unharmed");
}

fn try_case(server: &Server, case: &Case) -> Result<(), String> {
    let complain = |what: String| Err(format!("  {}: {what}", case.name));
    let mut connection: Connection = server.connect();
    connection.send_unheard(&case.bytes);
    // The server waits for the rest of what looks incomplete, but never after it has refused it.
    let method = if case.bytes.starts_with(b"HEAD ") { "HEAD" } else { "GET" };
    let response =
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| connection.response(method))) {
            Ok(response) => response,
            Err(_) => return complain("no well-formed response".to_owned()),
        };
    if response.status() != case.status {
        return complain(format!("status {} instead of {}", response.status(), case.status));
    }
    if case.then == Then::Close && !response.head.closes() {
        return complain("does not say that it closes".to_owned());
    }
    if case.then == Then::Keep {
        return if response.head.closes() { complain("closes".to_owned()) } else { Ok(()) };
    }
    if !response.head.closes() {
        connection.finish_sending();
    }
    match connection.rest() {
        (rest, Fill::Closed | Fill::Reset) if rest.is_empty() => Ok(()),
        (rest, _) if !rest.is_empty() => {
            complain(format!("goes on with {:?}", String::from_utf8_lossy(&rest)))
        }
        (_, end) => complain(format!("ends with {end:?}")),
    }
}

fn corpus() -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/http");
    let mut files: Vec<_> = std::fs::read_dir(&directory)
        .expect("the corpus is part of the repository")
        .map(|entry| entry.expect("the directory can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "http"))
        .collect();
    files.sort();
    files.iter().map(|path| case_of(path)).collect()
}

fn case_of(path: &Path) -> Case {
    let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
    let bytes = std::fs::read(path).expect("the file can be read");
    let end = bytes.iter().position(|&byte| byte == b'\n').expect("the first line ends");
    let line = std::str::from_utf8(&bytes[..end]).expect("the first line is ASCII");
    let (status, then) = line.trim().split_once(' ').unwrap_or_else(|| panic!("{name}: {line:?}"));
    let then = match then {
        "close" => Then::Close,
        "keep" => Then::Keep,
        "either" => Then::Either,
        other => panic!("{name}: {other:?}"),
    };
    Case { status: status.parse().expect("a status"), name, then, bytes: bytes[end + 1..].to_vec() }
}

/// One step of a xorshift generator: the same bytes in every run.
fn next_random(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}
