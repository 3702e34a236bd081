//! Obstacles to huge pages that concern a whole process.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pid;

/// Property of a process that keeps huge pages, or samples, from its memory. JSON carries the
/// variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Obstacle {
    /// The kernel holds pages for io_uring or a device (`VmPin`): they can be neither collapsed nor
    /// split.
    PinnedMemory {
        /// Pinned memory.
        pinned_bytes: Bytes,
    },
    /// An ancestor set `PR_SET_THP_DISABLE`, and the process inherited it.
    ThpDisabledBy {
        /// The first ancestor that has it.
        pid: Pid,
        /// Its name, control characters escaped.
        command: String,
    },
    /// The process runs a virtual machine: samples do not show what stalls inside.
    KvmGuest,
}
