//! Test support: golden files, reported skips, victim processes, random numbers.
//!
//! - [`assert_golden`] compares a text with a file; `BLESS=1` rewrites the file.
//! - [`requires!`] ends a test early if the machine lacks something. It reports the skip on stderr
//!   and appends a line to the file in `HUGEPILOT_SKIP_LOG`, because cargo hides the output of a
//!   test that passes. `cargo xtask test` prints all skips.
//! - [`Victim`] is a process that a test owns. It dies with the test.
//! - [`LIVE_JOURNAL`] has snapshots of live processes.
//! - [`Rng`] draws the random numbers of simulations.
//! - [`make_room`] compacts memory so that huge pages are available.

#![forbid(unsafe_code)]

mod cached;
pub mod cgroup;
mod compile;
mod golden;
mod live;
pub mod need;
mod rng;
mod room;
mod skip;
mod victim;

pub use cached::cached;
pub use compile::compiled;
pub use golden::assert_golden;
pub use live::LIVE_JOURNAL;
pub use need::Need;
pub use rng::Rng;
pub use room::make_room;
#[doc(hidden)]
pub use skip::{skip, test_of};
pub use victim::{Ready, Victim};
