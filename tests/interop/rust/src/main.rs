//! The Rust SDK against a Moorline server.
//!
//! `moorline-interop modern URL FIXTURES-URL` and `moorline-interop legacy URL` run the scenario of an era and end
//! with a line of counts; `moorline-interop crowd URL COUNT` is this SDK's part of a crowd.

mod checks;
mod client;
mod crowd;
mod scenario;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["modern", url, fixtures] => scenario::modern(url, fixtures).await,
        ["legacy", url] => scenario::legacy(url).await,
        ["crowd", url, count] => crowd::join(url, count.parse().expect("COUNT is a number")).await,
        _ => {
            eprintln!("usage: moorline-interop modern URL FIXTURES-URL | legacy URL | crowd URL COUNT");
            std::process::ExitCode::from(2)
        }
    }
}
