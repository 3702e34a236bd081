//! Measures a live process: which addresses it waits for, and how hot that makes each 2 MiB region.

#![forbid(unsafe_code)]

pub mod calibrate;
mod census;
pub mod code;
mod codemap;
mod cost;
mod hardware;
mod observe;
mod source;
mod stall;
mod streams;

pub use census::{Scanner, ZeroFilled, zero_filled};
pub use cost::sample_cost;
pub use observe::{Observation, ProcessView};
pub use source::{AddressSource, Chosen, choose};
pub use stall::{Attached, StallSampler};
