//! Report of `hugepilot pool set`.

use hugepilot_record::sentence::{Sentence, numbered};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PoolMemory, PoolPages};

/// Outcome of `pool set`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolChange {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: String,
    /// `set`.
    pub action: String,
    /// Whether this was a dry run.
    pub dry_run: bool,
    /// Page size.
    pub page_bytes: Bytes,
    /// NUMA node; `None` for the whole pool.
    pub node: Option<u32>,
    /// Requested persistent pages.
    pub requested: u64,
    /// Page counts before.
    pub before: PoolPages,
    /// Page counts afterwards, as read back; `None` if nothing was changed.
    pub after: Option<PoolPages>,
    /// Time that the kernel took; `None` if nothing was changed.
    pub seconds: Option<f64>,
    /// Whether memory was compacted first.
    pub compacted: bool,
    /// Memory that had to stay available.
    pub floor_bytes: Bytes,
    /// Memory afterwards; of the node, if one was given.
    pub memory: PoolMemory,
    /// Whether a signal ended it early.
    pub interrupted: bool,
    /// Causes of a shortfall; empty if there is none.
    pub causes: Vec<PoolShortfall>,
    /// Configuration that sets the count after each boot; `None` for a count of 0.
    pub permanent: Option<Permanent>,
    /// Command that restores the former count; `None` if it is unchanged.
    pub undo: Option<String>,
    /// Further facts.
    pub warnings: Vec<PoolNote>,
}

impl PoolChange {
    /// Whether the pool is as requested; in a dry run, whether no obstacle is known.
    pub const fn is_complete(&self) -> bool {
        self.causes.is_empty()
    }
}

/// Cause of a difference between the requested and the actual count. JSON carries the variant as
/// `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum PoolShortfall {
    /// The request exceeds total memory; nothing was changed.
    #[text(
        "{requested_bytes} requested, but total memory is {total_bytes}{}; nothing was changed",
        on_node(*node)
    )]
    ExceedsMemory {
        /// Requested memory.
        requested_bytes: Bytes,
        /// Total memory, of the node if one was given.
        total_bytes: Bytes,
        /// NUMA node.
        node: Option<u32>,
    },
    /// Less than the floor would stay available.
    #[text(
        "another {growth_bytes} would leave {left_bytes} of {available_bytes} available{}, less \
         than the floor of {floor_bytes}{}",
        on_node(*node), if max_pages.is_some() { "; nothing was changed" } else { "" }
    )]
    #[help(all = max_pages.map(at_most))]
    #[help(if max_pages.is_some(), "a smaller --floor, or --force")]
    BelowFloor {
        /// Memory that the pool would grow by.
        growth_bytes: Bytes,
        /// Memory that would stay available.
        left_bytes: Bytes,
        /// Available memory.
        available_bytes: Bytes,
        /// Floor.
        floor_bytes: Bytes,
        /// NUMA node.
        node: Option<u32>,
        /// Largest count within the floor, if nothing was changed; `None` after partial growth.
        max_pages: Option<u64>,
    },
    /// The kernel allocates pages of this size only at boot (EINVAL).
    #[text("this kernel allocates pages of {page_bytes} only at boot (EINVAL)")]
    #[help(all = at_boot(boot_parameters.as_deref()))]
    BootOnly {
        /// Page size.
        page_bytes: Bytes,
        /// Parameters for the kernel command line.
        boot_parameters: Option<String>,
    },
    /// The kernel rejected the count.
    #[text("{error}")]
    WriteFailed {
        /// Error.
        error: String,
    },
    /// A signal ended the request; pages allocated by then stay.
    #[text("a signal ended the request; pages allocated by then stay")]
    Interrupted,
    /// The pool has more pages than requested.
    #[text(
        "the pool has {} more than requested: another process may have resized it meanwhile",
        numbered(*extra_pages, "page", "pages")
    )]
    ChangedMeanwhile {
        /// Excess pages.
        extra_pages: u64,
    },
    /// Pages in use or reserved became surplus pages.
    #[text(
        "the pool keeps {} of {page_bytes}: {} in use or reserved, and each returns to the system \
         when its program frees it",
        numbered(*surplus_pages, "surplus page", "surplus pages"),
        numbered(*held_pages, "page is", "pages are")
    )]
    #[help("end the programs that hugepilot pool show lists")]
    PagesHeld {
        /// Page size.
        page_bytes: Bytes,
        /// New surplus pages.
        surplus_pages: u64,
        /// Pages in use or reserved.
        held_pages: u64,
    },
    /// The kernel found no contiguous memory for pages beyond its largest block.
    #[text(
        "pages of {page_bytes} need contiguous memory without unmovable pages, and the kernel \
         found no more{} ({free_bytes} free, in blocks of at most {largest_block_bytes})",
        on_node(*node)
    )]
    #[help(all = at_boot(boot_parameters.as_deref()))]
    NotContiguous {
        /// Page size.
        page_bytes: Bytes,
        /// Free memory.
        free_bytes: Bytes,
        /// Largest block that the kernel keeps free.
        largest_block_bytes: Bytes,
        /// NUMA node.
        node: Option<u32>,
        /// Parameters for the kernel command line.
        boot_parameters: Option<String>,
    },
    /// Less memory is available than is missing.
    #[text(
        "memory is in use: {missing_bytes} are missing, and {available_bytes} of {total_bytes} are \
         available{}",
        on_node(*node)
    )]
    #[help("end programs that use much memory, and repeat the command")]
    #[help(all = at_boot(boot_parameters.as_deref()))]
    MemoryInUse {
        /// Missing memory.
        missing_bytes: Bytes,
        /// Available memory.
        available_bytes: Bytes,
        /// Total memory.
        total_bytes: Bytes,
        /// NUMA node.
        node: Option<u32>,
        /// Parameters for the kernel command line.
        boot_parameters: Option<String>,
    },
    /// Enough memory is free, but too little in blocks of the page size.
    #[text(
        "memory is fragmented: {free_bytes} are free{}, but only {free_block_bytes} in blocks of \
         at least {page_bytes}, and unmovable pages separate the rest",
        on_node(*node)
    )]
    #[help(if !compacted, "compact memory first, for seconds: --compact")]
    #[help(all = at_boot(boot_parameters.as_deref()))]
    Fragmented {
        /// Page size.
        page_bytes: Bytes,
        /// Free memory.
        free_bytes: Bytes,
        /// Free memory in blocks of at least the page size.
        free_block_bytes: Bytes,
        /// NUMA node.
        node: Option<u32>,
        /// Whether memory was compacted first.
        compacted: bool,
        /// Parameters for the kernel command line.
        boot_parameters: Option<String>,
    },
}

fn at_most(pages: u64) -> String {
    format!("at most --count {pages}")
}

/// Returns the help to allocate pages by the kernel command line, if they can be.
fn at_boot(parameters: Option<&str>) -> Option<String> {
    let help = |it| format!("allocate them at boot, on the kernel command line: {it}");
    parameters.map(help)
}

/// Names a node, if there is one: ` on node 1`.
pub fn on_node(node: Option<u32>) -> String {
    node.map_or_else(String::new, |node| format!(" on node {node}"))
}

/// Further fact about a change. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum PoolNote {
    /// Memory was not compacted.
    #[text("memory was not compacted: {error}")]
    NotCompacted {
        /// Error.
        error: String,
    },
    /// Pages in use or reserved would become surplus pages.
    #[text(
        "{} in use or reserved, and would stay as surplus until freed",
        numbered(*pages, "page is", "pages are")
    )]
    PagesHeld {
        /// Number of these pages.
        pages: u64,
    },
    /// The kernel does not count free blocks of the page size.
    #[text(
        "the kernel counts free blocks of at most {largest_block_bytes}, so only a real run shows \
         whether it finds {growth_bytes} in pages of {page_bytes}"
    )]
    ContiguityUnknown {
        /// Memory that the pool would grow by.
        growth_bytes: Bytes,
        /// Page size.
        page_bytes: Bytes,
        /// Largest block that the kernel counts.
        largest_block_bytes: Bytes,
    },
    /// The kernel would have to move or reclaim pages.
    #[text(
        "{free_block_bytes} of {growth_bytes} are free in blocks of at least {page_bytes}; for the \
         rest the kernel must move or reclaim pages, and may fail"
    )]
    ReclaimNeeded {
        /// Memory that the pool would grow by.
        growth_bytes: Bytes,
        /// Page size.
        page_bytes: Bytes,
        /// Free memory in blocks of at least the page size.
        free_block_bytes: Bytes,
    },
}

/// Configuration that sets a pool at each boot: the file with the line, or the boot parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Permanent {
    /// File for the line.
    pub file: String,
    /// Line.
    pub line: String,
    /// Kernel command line; safest, because at boot memory is not fragmented.
    pub kernel_command_line: String,
}
