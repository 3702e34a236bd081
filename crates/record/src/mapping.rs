//! One mapping of a process: a line of `/proc/PID/maps` with what smaps adds.

use std::fmt;

use hugepilot_units::{AddrRange, Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What may be done with the memory, and who sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub execute: bool,
    /// Shared with other processes on purpose (`MAP_SHARED`).
    pub shared: bool,
}

/// What stands behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MappingKind {
    /// Private anonymous memory, the brk heap among it.
    Anonymous,
    /// A stack the kernel marks as one (the main thread's).
    Stack,
    /// A file.
    File,
    /// Shared anonymous memory, memfd, SysV or tmpfs.
    SharedMemory,
    /// A hugetlb mapping: huge by birth.
    Hugetlb,
    /// vdso, vvar, vsyscall, and device mappings.
    Special,
}

/// The two-letter flags of the `VmFlags:` line, kept as one text: kernels add new ones, and a process may have
/// 100,000 mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmFlags(Box<str>);

impl VmFlags {
    /// Reads the rest of a `VmFlags:` line.
    pub fn parse(line: &str) -> Self {
        Self(line.trim().into())
    }
    /// Whether `flag` (two letters, as in proc(5)) is set.
    pub fn has(&self, flag: &str) -> bool {
        self.0.split_ascii_whitespace().any(|set| set == flag)
    }
}

impl fmt::Display for VmFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One mapping. Sizes are what the kernel's smaps says, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    /// Its addresses.
    pub range: AddrRange,
    /// Its rights.
    pub protection: Protection,
    /// What stands behind it.
    pub kind: MappingKind,
    /// Offset into the file.
    pub offset: Bytes,
    /// Inode of the file; 0 for none.
    pub inode: u64,
    /// The path or the kernel's label, control characters escaped; empty for plain anonymous memory.
    pub name: String,
    /// Resident.
    pub resident: Bytes,
    /// Resident, each page divided by the number of processes that map it.
    pub proportional: Bytes,
    /// Resident pages that other processes map too.
    pub shared: Bytes,
    /// Mapped by huge page-table entries: THP of any backing, and hugetlb.
    pub huge: Bytes,
    /// Swapped out.
    pub swapped: Bytes,
    /// Locked into memory.
    pub locked: Bytes,
    /// Whether the kernel, as it is set now, would use huge pages here (`THPeligible`).
    pub thp_eligible: bool,
    /// The kernel's flags.
    pub flags: VmFlags,
}

impl Mapping {
    /// The name to print: the label, or what kind of memory it is.
    pub fn label(&self) -> &str {
        match self.kind {
            _ if !self.name.is_empty() => &self.name,
            MappingKind::Anonymous => "[anon]",
            MappingKind::SharedMemory => "[shmem]",
            _ => "[unnamed]",
        }
    }
    /// Whether a stack lies here: the kernel's mark, a mapping that grows down, or an allocator's label. Thread
    /// stacks that carry none of these are known by the sampled stack pointers ([`crate::Snapshot::stacks`]).
    pub fn is_stack(&self) -> bool {
        self.kind == MappingKind::Stack
            || self.flags.has("gd")
            || self.name.starts_with("[anon:stack")
    }
    /// Whether userfaultfd watches it (missing, write-protect or minor mode).
    pub fn is_userfaultfd(&self) -> bool {
        ["um", "uw", "ui"].iter().any(|flag| self.flags.has(flag))
    }
}
