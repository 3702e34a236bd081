//! Accesses of a program: traced, stored, or of a graph kernel, and fed to the simulators.
//!
//! [`source`] delivers the accesses of a program, of a stored trace or of a log of another tool;
//! [`graph`] those of a graph kernel. [`simulate`] feeds them to the simulators of `sim`, and makes
//! its reports.

#![forbid(unsafe_code)]

mod error;
pub mod graph;
pub mod simulate;
pub mod source;

pub use error::TraceError;
