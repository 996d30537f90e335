//! The hostile side of the tests: fuzz targets over mutated seeds, and attacks on a core whose counters can be read.
//!
//! The targets are those of `fuzz/`, so that what `cargo fuzz` finds can be repeated here. The same seed gives the same
//! bytes on every machine. `MOORLINE_FUZZ_FACTOR` multiplies the rounds.

mod attacks;
mod confusion;
#[path = "../../fuzz/src/lib.rs"]
#[allow(dead_code, unreachable_pub, reason = "a crate of its own, of which this is one user")]
mod fuzz;
mod known_failures;
mod mutator;
mod strangers;
mod targets;
