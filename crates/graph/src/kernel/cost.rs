//! What a kernel took: time by phase, and memory by array.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hugepilot_alloc::{Got, HugeVec};

use crate::{Array, Result};

/// Time and memory of one run of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCost {
    /// Mapping its arrays.
    pub allocate: Duration,
    /// Writing each property the first time: what page faults cost.
    pub first_touch: Duration,
    /// The rest.
    pub kernel: Duration,
    /// On which pages its arrays were when it ended.
    pub arrays: Vec<ArrayUsage>,
}

impl KernelCost {
    /// This and what came after it, with the arrays of that.
    #[must_use]
    pub(super) fn then(self, after: Self) -> Self {
        Self {
            allocate: self.allocate + after.allocate,
            first_touch: self.first_touch + after.first_touch,
            kernel: self.kernel + after.kernel,
            arrays: after.arrays,
        }
    }
}

/// An array and its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayUsage {
    /// Which.
    pub array: Array,
    /// By kind of page; untouched memory among it.
    pub got: Got,
}

impl ArrayUsage {
    /// Looks, which takes up to 10 ms a GiB.
    ///
    /// # Errors
    /// [`GraphError::Memory`](crate::GraphError::Memory) where the page map cannot be read.
    pub fn read<T>(array: Array, values: &HugeVec<T>) -> Result<Self> {
        Ok(Self { array, got: values.got()? })
    }
}

/// A run under way.
pub(super) struct PhaseTimer {
    began: Instant,
    allocated: OnceLock<Instant>,
    touched: OnceLock<Instant>,
}

impl PhaseTimer {
    pub(super) fn start() -> Self {
        Self { began: Instant::now(), allocated: OnceLock::new(), touched: OnceLock::new() }
    }

    /// All arrays are mapped.
    pub(super) fn allocated(&self) {
        self.allocated.get_or_init(Instant::now);
    }

    /// All properties are written; any thread may say so, after the barrier.
    pub(super) fn touched(&self) {
        self.touched.get_or_init(Instant::now);
    }

    /// The end.
    pub(super) fn stop(&self) -> KernelCost {
        let now = Instant::now();
        let allocated = self.allocated.get().copied().unwrap_or(self.began);
        let touched = self.touched.get().copied().unwrap_or(allocated);
        KernelCost {
            allocate: allocated - self.began,
            first_touch: touched - allocated,
            kernel: now - touched,
            arrays: Vec::new(),
        }
    }
}
