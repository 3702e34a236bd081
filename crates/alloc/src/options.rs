//! Requested properties of memory, apart from its length.

use hugepilot_units::Bytes;

use crate::{Backing, Chain, Label, Numa, Result};

/// Memory visible to a child process after `fork`. A program started by `exec` never sees any of
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fork {
    /// The same contents, copied page by page when either process writes.
    ///
    /// On a hugetlb pool, the parent owns the reserved pages. If the pool has no free page, a child
    /// that writes gets SIGBUS. A page that the parent writes first is removed from the child,
    /// which then also gets SIGBUS on reads. The parent is never harmed.
    #[default]
    Inherit,
    /// No memory: the addresses are unmapped in the child, and access raises SIGSEGV
    /// (`MADV_DONTFORK`). Suits hugetlb memory if children call `exec` or never access it: `fork`
    /// then copies no page tables, and the parent's writes need no extra page.
    Absent,
}

/// Requested backings, placement and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Backings to try, in this order.
    pub chain: Chain,
    /// Alignment of the address in bytes, a power of two. The page size of the backing applies if
    /// larger.
    pub align: Bytes,
    /// Name in `/proc/PID/maps`. Not shown on hugetlb pools, which the kernel lists as
    /// `/anon_hugepage`.
    pub name: Option<Label>,
    /// NUMA nodes to allocate from. Bound hugetlb memory is prefaulted at once: the kernel reserves
    /// pages without regard to nodes, and a later shortage would be SIGBUS.
    pub numa: Numa,
    /// Visibility in children.
    pub fork: Fork,
}

impl Options {
    /// Creates options with this chain and otherwise the defaults of `mmap`.
    pub const fn new(chain: Chain) -> Self {
        Self { chain, align: Bytes::new(1), name: None, numa: Numa::Default, fork: Fork::Inherit }
    }
    /// Creates options with one backing and no fallback.
    pub const fn only(backing: Backing) -> Self {
        Self::new(Chain::only(backing))
    }
    /// Sets the name.
    ///
    /// # Errors
    /// [`AllocError::Label`](crate::AllocError::Label) for a name that the kernel refuses.
    pub fn named(mut self, name: &str) -> Result<Self> {
        self.name = Some(Label::new(name)?);
        Ok(self)
    }
    /// Sets the alignment, a power of two.
    #[must_use]
    pub const fn aligned(mut self, align: Bytes) -> Self {
        self.align = align;
        self
    }
    /// Sets the NUMA nodes.
    #[must_use]
    pub const fn on(mut self, numa: Numa) -> Self {
        self.numa = numa;
        self
    }
    /// Sets the visibility in children.
    #[must_use]
    pub const fn forked(mut self, fork: Fork) -> Self {
        self.fork = fork;
        self
    }
}

/// Transparent huge pages, else base pages.
impl Default for Options {
    fn default() -> Self {
        Self::new(Chain::THP_OR_BASE)
    }
}
