//! Obstacles to huge pages that concern a whole process.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel_reason::from_first_touch;
use crate::{Pid, Sentence};

/// Property of a process that keeps huge pages, or samples, from its memory. JSON carries the
/// variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Obstacle {
    /// The kernel holds pages for io_uring or a device (`VmPin`): they can be neither collapsed nor
    /// split.
    #[text(
        "{pinned_bytes} is pinned, as for io_uring or RDMA; the kernel can neither collapse nor \
         split pinned pages"
    )]
    #[help("{}", from_first_touch("it is pinned"))]
    PinnedMemory {
        /// Pinned memory.
        pinned_bytes: Bytes,
    },
    /// An ancestor set `PR_SET_THP_DISABLE`, and the process inherited it.
    // The reason of its memory has the help.
    #[text("huge pages are disabled by PR_SET_THP_DISABLE, inherited from {command} (pid {pid})")]
    ThpDisabledBy {
        /// The first ancestor that has it.
        pid: Pid,
        /// Its name, control characters escaped.
        command: String,
    },
    /// The process runs a virtual machine: samples do not show what stalls inside.
    #[text("the process runs a virtual machine; samples do not show what stalls inside")]
    #[help("promote by the policy that needs no samples: sudo hugepilot tune -p PID --policy all")]
    KvmGuest,
}
