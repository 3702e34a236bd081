//! Mappings of a process: `/proc/PID/maps` with the fields of smaps.

use std::fmt;

use hugepilot_units::{AddrRange, Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Access permissions of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Whether it is readable.
    pub read: bool,
    /// Whether it is writable.
    pub write: bool,
    /// Whether it is executable.
    pub execute: bool,
    /// Whether writes are shared with other processes (`MAP_SHARED`).
    pub shared: bool,
}

/// Backing of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MappingKind {
    /// Private anonymous memory, including the brk heap.
    Anonymous,
    /// A stack that the kernel marks as one (that of the main thread).
    Stack,
    /// A file.
    File,
    /// Shared anonymous memory, memfd, SysV or tmpfs.
    SharedMemory,
    /// A hugetlb mapping, always huge.
    Hugetlb,
    /// vdso, vvar, vsyscall, and device mappings.
    Special,
}

/// The two-letter flags of the `VmFlags:` line, kept as one text: kernels add new flags, and a
/// process may have 100,000 mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmFlags(Box<str>);

impl VmFlags {
    /// Parses the rest of a `VmFlags:` line.
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

/// A mapping. Sizes are in bytes, from smaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    /// Address range.
    pub range: AddrRange,
    /// Access permissions.
    pub protection: Protection,
    /// Backing.
    pub kind: MappingKind,
    /// Offset into the file.
    pub offset: Bytes,
    /// Inode of the file; 0 for none.
    pub inode: u64,
    /// Path or kernel label, control characters escaped; empty for plain anonymous memory.
    pub name: String,
    /// Resident memory.
    pub resident: Bytes,
    /// Resident memory, each page divided by the number of processes that map it.
    pub proportional: Bytes,
    /// Resident memory that other processes also map.
    pub shared: Bytes,
    /// Memory mapped by huge page-table entries: THP of any backing, and hugetlb.
    pub huge: Bytes,
    /// Memory swapped out.
    pub swapped: Bytes,
    /// Locked memory.
    pub locked: Bytes,
    /// Resident memory that the program freed lazily (`MADV_FREE`) and has not written since.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub lazily_freed: Bytes,
    /// Resident memory that KSM merged with equal pages; zero before Linux 6.7.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub merged: Bytes,
    /// Whether the kernel would use huge pages here with its present settings (`THPeligible`).
    pub thp_eligible: bool,
    /// Kernel flags.
    pub flags: VmFlags,
    /// Whether the program does not have it: its memory was used, then unmapped, or has no known
    /// mapping. Only in simulations.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unmapped: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Mapping {
    /// Creates a private, readable and writable anonymous mapping, all of it resident.
    pub fn anonymous(range: AddrRange) -> Self {
        Self {
            range,
            protection: Protection { read: true, write: true, execute: false, shared: false },
            kind: MappingKind::Anonymous,
            offset: Bytes::ZERO,
            inode: 0,
            name: String::new(),
            resident: range.len(),
            proportional: range.len(),
            shared: Bytes::ZERO,
            huge: Bytes::ZERO,
            swapped: Bytes::ZERO,
            locked: Bytes::ZERO,
            lazily_freed: Bytes::ZERO,
            merged: Bytes::ZERO,
            thp_eligible: true,
            flags: VmFlags::default(),
            unmapped: false,
        }
    }
    /// Returns the memory that the program may still touch without another request to the kernel:
    /// none in stacks, and none where the program asked for address space only (`MAP_NORESERVE`).
    pub fn untouched(&self) -> Bytes {
        let may_grow = self.kind == MappingKind::Anonymous
            && self.protection.write
            && !self.protection.shared
            && !self.is_stack()
            && !self.flags.has("nr");
        if may_grow { self.range.len() - self.resident - self.swapped } else { Bytes::ZERO }
    }
    /// Returns the name, or the kind of memory if it has none.
    pub fn label(&self) -> &str {
        match self.kind {
            _ if !self.name.is_empty() => &self.name,
            MappingKind::Anonymous => "[anon]",
            MappingKind::SharedMemory => "[shmem]",
            _ => "[unnamed]",
        }
    }
    /// Whether it is a stack: the kernel's mark, a mapping that grows down, or an allocator's
    /// label. Thread stacks without these are known by sampled stack pointers
    /// ([`crate::ProcessMemory::stacks`]).
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
