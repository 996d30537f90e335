//! One line per check, with a deadline each.

use std::{future::Future, process::ExitCode, time::Duration};

const DEADLINE: Duration = Duration::from_secs(60);

/// What a check says of its failure.
pub type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Runs named checks in order; a failed one does not stop the next.
pub struct Checks {
    client: &'static str,
    passed: u32,
    failed: u32,
}

impl Checks {
    pub fn new(client: &'static str) -> Self {
        Checks { client, passed: 0, failed: 0 }
    }

    pub async fn check(&mut self, name: &str, body: impl Future<Output = Outcome>) {
        let outcome = tokio::time::timeout(DEADLINE, body).await.unwrap_or_else(|late| Err(late.into()));
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("ok   {}: {name}", self.client);
            }
            Err(error) => {
                self.failed += 1;
                println!("FAIL {}: {name}: {error}", self.client);
            }
        }
    }

    pub fn finish(self) -> ExitCode {
        println!("{}: {} passed, {} failed", self.client, self.passed, self.failed);
        ExitCode::from(u8::from(self.failed > 0))
    }
}

/// Fails unless both are equal.
pub fn equal<T: PartialEq + std::fmt::Debug>(actual: T, expected: T, what: &str) -> Outcome {
    if actual == expected {
        Ok(())
    } else {
        Err(format!("{what}: {actual:?} instead of {expected:?}").into())
    }
}

/// Waits until `count()` is `expected`, and sees that it stays so.
pub async fn settles_at(count: impl Fn() -> usize, expected: usize, what: &str) -> Outcome {
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    while count() < expected && tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    equal(count(), expected, what)
}
