//! Report of `hugepilot knobs prefetch show`: the hardware prefetchers of each processor.

pub(crate) mod text;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of [`PrefetchReport::schema`].
pub const SCHEMA: &str = "hugepilot.knobs/1";

/// Hardware prefetchers, and their state on each processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefetchReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Product name of the processor; empty if the kernel has none.
    pub model_name: String,
    /// Model-specific register, such as `0x1a4`.
    pub register: String,
    /// Prefetchers that the register controls.
    pub prefetchers: Vec<Prefetcher>,
    /// Online processors, by ID.
    pub cpus: Vec<CpuPrefetch>,
}

/// Hardware prefetcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prefetcher {
    /// Name for `knobs prefetch set`.
    pub name: String,
    /// Bit of the register; 1 disables the prefetcher.
    pub bit: u32,
    /// Lines that it fetches.
    pub description: String,
}

/// State of the prefetchers of a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuPrefetch {
    /// Processor.
    pub cpu: u32,
    /// Value of the register.
    pub value: String,
    /// Names of the enabled prefetchers.
    pub enabled: Vec<String>,
}
