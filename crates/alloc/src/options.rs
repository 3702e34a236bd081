//! What memory should be like, apart from its length.

use hugepilot_units::Bytes;

use crate::{Backing, Chain, Label, Numa, Result};

/// What a process made by `fork` sees of the memory. A program started by `exec` never sees any of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fork {
    /// The same contents, copied page by page when either writes.
    ///
    /// On a hugetlb pool the set-aside pages are the parent's: where the pool has no more, a child that writes gets
    /// SIGBUS, and a page that the parent writes first is taken from the child, which then gets SIGBUS for reading it,
    /// too. The parent is never harmed.
    #[default]
    Inherit,
    /// Nothing: there the addresses are not mapped, and touching them is SIGSEGV (`MADV_DONTFORK`). Right for memory on a
    /// pool whose children call `exec` or never look at it: `fork` then copies no page table, and no write of the
    /// parent's costs it a page more.
    Absent,
}

/// What was asked for: which pages, where, and what they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The backings to try, in this order.
    pub chain: Chain,
    /// The address is a multiple of this power of two; at least that of the pages in any case.
    pub align: Bytes,
    /// The name in `/proc/PID/maps`. Memory on a hugetlb pool takes none: the kernel shows it as `/anon_hugepage`.
    pub name: Option<Label>,
    /// Which memory nodes it comes from. Memory on a pool that is bound is prefaulted at once, because the kernel sets
    /// pages aside without regard to nodes, and a lack found later would be SIGBUS.
    pub numa: Numa,
    /// What children see.
    pub fork: Fork,
    /// Of a [`Heap`](crate::Heap), which then checks what the program does with its objects.
    pub check: bool,
}

impl Options {
    /// These backings, and for the rest what `mmap` does by itself.
    pub const fn new(chain: Chain) -> Self {
        Self {
            chain,
            align: Bytes::new(1),
            name: None,
            numa: Numa::Default,
            fork: Fork::Inherit,
            check: false,
        }
    }
    /// That backing or an error.
    pub const fn only(backing: Backing) -> Self {
        Self::new(Chain::only(backing))
    }
    /// The same with a name.
    ///
    /// # Errors
    /// [`AllocError::Label`](crate::AllocError::Label) for a name the kernel would refuse.
    pub fn named(mut self, name: &str) -> Result<Self> {
        self.name = Some(Label::new(name)?);
        Ok(self)
    }
    /// The same, aligned to `align`, a power of two.
    #[must_use]
    pub const fn aligned(mut self, align: Bytes) -> Self {
        self.align = align;
        self
    }
    /// The same from these nodes.
    #[must_use]
    pub const fn on(mut self, numa: Numa) -> Self {
        self.numa = numa;
        self
    }
    /// The same with what children see.
    #[must_use]
    pub const fn forked(mut self, fork: Fork) -> Self {
        self.fork = fork;
        self
    }
    /// The same for a heap that checks what the program does: see [`Heap`](crate::Heap#checking).
    #[must_use]
    pub const fn checked(mut self) -> Self {
        self.check = true;
        self
    }
}

/// Transparent huge pages, else base pages.
impl Default for Options {
    fn default() -> Self {
        Self::new(Chain::THP_OR_BASE)
    }
}
