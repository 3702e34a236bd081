//! Sentences for obstacles to huge pages that concern a whole process.

use hugepilot_record::Obstacle;

use crate::kernel_reason::from_first_touch;
use crate::sentence::{Sentence, lines};

/// A line for each obstacle, with its help.
pub(crate) fn obstacles(all: &[Obstacle]) -> String {
    all.iter().map(|one| lines("obstacle", one)).collect()
}

impl Sentence for Obstacle {
    fn text(&self) -> String {
        match self {
            Self::PinnedMemory { pinned_bytes } => format!(
                "{pinned_bytes} is pinned, as for io_uring or RDMA; the kernel can neither \
                 collapse nor split pinned pages"
            ),
            Self::ThpDisabledBy { pid, command } => format!(
                "huge pages are disabled by PR_SET_THP_DISABLE, inherited from {command} (pid \
                 {pid})"
            ),
            Self::KvmGuest => "the process runs a virtual machine; samples do not show what \
                               stalls inside"
                .to_owned(),
        }
    }

    fn help(&self) -> Vec<String> {
        let help = match self {
            Self::PinnedMemory { .. } => return vec![from_first_touch("it is pinned")],
            // The reason of its memory has it.
            Self::ThpDisabledBy { .. } => return Vec::new(),
            Self::KvmGuest => {
                "promote by the policy that needs no samples: sudo hugepilot tune -p PID --policy \
                 all"
            }
        };
        vec![help.to_owned()]
    }
}
