//! Perf events: attributes, rings, and the records in them.

mod record;
mod sampler;

pub use record::{Record, Regs, RegsMask, SampleFormat, parse_record, records};
pub use sampler::{Event, PerfSampler, SamplerOptions};
