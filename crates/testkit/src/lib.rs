//! For tests only: golden files, loud skips, victim processes.
//!
//! - [`assert_golden`] compares a text with a file; `BLESS=1` rewrites the file.
//! - [`requires!`] ends a test early where the machine lacks something, and says so: on stderr, and as a line in the
//!   file that `HUGEPILOT_SKIP_LOG` names, because cargo hides the output of a test that passes. `cargo xtask test`
//!   prints all of them. A skip that nobody sees is a hole in the tests.
//! - [`Victim`] is a process that a test owns. It dies with the test.
//! - [`make_room`] sees to it that huge pages are to be had.

#![forbid(unsafe_code)]

mod cached;
pub mod cgroup;
mod compile;
mod golden;
pub mod need;
mod room;
mod skip;
mod victim;

pub use cached::cached;
pub use compile::compiled;
pub use golden::assert_golden;
pub use need::Need;
pub use room::make_room;
#[doc(hidden)]
pub use skip::{skip, test_of};
pub use victim::{Ready, Victim};
