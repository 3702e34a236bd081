//! The laboratory: programs whose memory behaviour is known, to test the sampler against and to measure gains with.
//!
//! ```
//! use hugepilot_lab::workload::{self, Machine, MemoryConfig, RunConfig, Spec};
//! use hugepilot_units::{Bytes, Nanos};
//!
//! # fn main() -> Result<(), hugepilot_lab::LabError> {
//! let spec = Spec::PointerChase(MemoryConfig { footprint: Bytes::mib(4), ..MemoryConfig::DEFAULT });
//! let run = RunConfig { seconds: Some(Nanos::millis(20)), ..RunConfig::DEFAULT };
//! let (mut stdin, mut out) = (std::io::empty(), std::io::sink());
//! let summary = workload::run(&spec, &run, &Machine::live()?, &mut stdin, &mut out)?;
//! assert!(summary.ops > 0);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod error;
pub mod workload;

pub use error::LabError;

/// This crate's result.
pub type Result<T> = std::result::Result<T, LabError>;
