//! Processor of a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Processor, from `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// `GenuineIntel`, `AuthenticAMD`; `ARM` for designs of ARM, the code of other ARM makers.
    pub vendor: String,
    /// Name of the product; empty if the kernel has none.
    pub model_name: String,
    /// Family; for ARM the architecture version.
    pub family: u32,
    /// Model; for ARM the part number.
    pub model: u32,
    /// Whether this is a virtual machine.
    pub hypervisor: bool,
}
