//! Reasons why a hugetlb pool cannot be resized.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pid;

/// Reason why a hugetlb pool cannot be resized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PoolUnsupported {
    /// The kernel has no hugetlb pools.
    #[error("this kernel has no hugetlb pools: /sys/kernel/mm/hugepages has none")]
    NoPools,
    /// The machine has no pool of a page size.
    #[error("this machine has no huge pages of {size_bytes}, only {}", list(sizes_bytes))]
    NoSuchSize {
        /// Page size.
        size_bytes: Bytes,
        /// Page sizes of this machine.
        sizes_bytes: Vec<Bytes>,
        /// Whether the processor cannot map 1 GiB pages.
        lacks_pdpe1gb: bool,
    },
    /// A NUMA node does not exist, or has no pages of a size.
    #[error("there is no NUMA node {node} with pages of {size_bytes}")]
    NoSuchNode {
        /// Node.
        node: u32,
        /// Page size.
        size_bytes: Bytes,
        /// Nodes with such pages.
        nodes: Vec<u32>,
    },
    /// The user may not write the pool's files.
    #[error("only root may resize a pool: {error}")]
    RootRequired {
        /// Failed access.
        error: String,
        /// Command for root.
        command: String,
    },
    /// The pool's files are read-only.
    #[error("the pools are read-only here: {error}")]
    ReadOnly {
        /// Failed access.
        error: String,
    },
    /// A run has raised the pool, and would undo the change.
    #[error(
        "hugepilot (pid {pid}) has raised the pool of {size_bytes} pages from {before} to {raised} \
         until its program ends"
    )]
    RaisedByRun {
        /// Process ID of the run.
        pid: Pid,
        /// Page size.
        size_bytes: Bytes,
        /// Pages before.
        before: u64,
        /// Pages now.
        raised: u64,
    },
}

impl PoolUnsupported {
    pub(super) fn help(&self) -> Option<String> {
        Some(match self {
            Self::NoPools => {
                "a kernel with CONFIG_HUGETLBFS; or use transparent huge pages (MADV_HUGEPAGE)"
                    .to_owned()
            }
            Self::NoSuchSize { lacks_pdpe1gb: true, .. } => {
                "a processor with the flag pdpe1gb; in a virtual machine, a CPU model with it \
                 (QEMU: -cpu host)"
                    .to_owned()
            }
            Self::NoSuchSize { sizes_bytes, .. } => format!("one of --size {}", list(sizes_bytes)),
            // A kernel without NUMA has no pools of nodes.
            Self::NoSuchNode { nodes, .. } if nodes.is_empty() => "omit --node".to_owned(),
            Self::NoSuchNode { nodes, .. } => {
                format!("one of --node {}, or omit --node", list(nodes))
            }
            Self::RootRequired { command, .. } => command.clone(),
            Self::ReadOnly { .. } => {
                "run it on the host: containers mount /sys read-only".to_owned()
            }
            Self::RaisedByRun { .. } => {
                "wait until it ends; if it was killed: sudo hugepilot doctor".to_owned()
            }
        })
    }
}

fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
