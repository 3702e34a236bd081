//! Perf events: attributes, rings, and the records in them.

mod chain;
pub mod counters;
pub mod groups;
pub mod hardware;
mod pmu;
mod record;
mod sampler;
#[cfg(test)]
mod stored_ring;
pub mod traffic;
pub(crate) mod trial;

pub use chain::CallChain;
pub use record::{Record, Regs, RegsMask, SampleFormat, parse_record, records};
pub use sampler::{Event, PerfSampler, SamplerOptions};
