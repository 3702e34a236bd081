//! Sentences for the gaps in a report of `status`.

use hugepilot_record::status::StatusWarning;

use crate::sentence::Sentence;
use crate::table::counted;
use crate::tune::{HIDDEN_LIMIT_HELP, hidden_limit};

impl Sentence for StatusWarning {
    fn text(&self) -> String {
        match self {
            Self::NoFreeBlock => "no free block is large enough for a huge page; the kernel must \
                                  compact memory first"
                .to_owned(),
            Self::HiddenMemoryLimit { cgroup } => hidden_limit(cgroup),
            Self::HeadroomUnreadable { error } => {
                format!("the headroom cannot be read: {error}; eligible memory may exceed it")
            }
            Self::PagemapUnreadable { error } => {
                format!("the pagemap cannot be read: {error}; only sizes are known")
            }
            Self::HugePagesUnreadable { huge_pages } => format!(
                "{} of a mapping cannot be read, because the program forbids it (PROT_NONE) or the \
                 memory is broken; zero-filled pages are not all counted",
                counted(*huge_pages, "huge page", "huge pages")
            ),
            Self::ContentsUnreadable { error, .. } => format!(
                "the contents of huge pages cannot be read: {error}; zero-filled pages are not all \
                 counted"
            ),
        }
    }

    fn help(&self) -> Vec<String> {
        let help = match self {
            Self::NoFreeBlock => {
                "compact free memory: echo 1 | sudo tee /proc/sys/vm/compact_memory"
            }
            Self::HiddenMemoryLimit { .. } => HIDDEN_LIMIT_HELP,
            Self::ContentsUnreadable { denied: true, .. } => {
                "run as root or as the user of the process, or grant CAP_SYS_PTRACE"
            }
            Self::PagemapUnreadable { .. } => "test the permissions: hugepilot doctor",
            Self::HeadroomUnreadable { .. } => "check MemTotal and MemAvailable: cat /proc/meminfo",
            _ => return Vec::new(),
        };
        vec![help.to_owned()]
    }
}
