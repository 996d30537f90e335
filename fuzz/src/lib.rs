//! Fuzz targets as plain functions: bytes in, a panic where a rule is broken.
//!
//! Each module is one target: `check` judges any bytes, `seeds` gives some that reach deep. What is judged is more than
//! "does not panic": results must not depend on how input was cut, must agree with a slow reading of the standard
//! written here, and a shard must hold its invariants after every step and nothing at the end.
//!
//! `tests/hostile` drives these functions over mutated seeds on a stable compiler; `cargo fuzz` drives them with coverage.

pub mod body;
pub mod envelope;
pub mod head;
pub mod ids;
pub mod shard;

#[path = "../../tests/world/mod.rs"]
pub mod world;

/// The corpus of hostile HTTP, each case without its first line.
pub fn corpus() -> Vec<Vec<u8>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/http");
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus/http");
    let files = std::fs::read_dir(directory).or_else(|_| std::fs::read_dir(beside));
    let mut paths: Vec<_> = files
        .expect("the corpus is part of the repository")
        .map(|file| file.expect("the directory can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "http"))
        .collect();
    paths.sort();
    paths.iter().map(|path| case_of(&std::fs::read(path).expect("the file can be read"))).collect()
}

fn case_of(file: &[u8]) -> Vec<u8> {
    let line = file.iter().position(|&byte| byte == b'\n').expect("the first line says what must come back");
    file[line + 1..].to_vec()
}

/// Takes decisions out of bytes; when they are used up every decision is 0.
pub(crate) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Choices(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Below `end`, which is 1 to 256.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Up to `count` bytes as they are.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}
