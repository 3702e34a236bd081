//! Cost of a kernel: time by phase, pages by array.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hugepilot_alloc::{HugeVec, PageUsage};

use crate::{Array, Result};

/// Time and memory of one run of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCost {
    /// Time to map the arrays.
    pub allocate: Duration,
    /// Time of the first write to each property array, dominated by page faults.
    pub first_touch: Duration,
    /// Remaining time.
    pub kernel: Duration,
    /// Pages of the arrays at the end.
    pub arrays: Vec<ArrayUsage>,
}

impl KernelCost {
    /// Returns the time of all phases.
    pub fn total(&self) -> Duration {
        self.allocate + self.first_touch + self.kernel
    }

    /// Adds the times of a later run. Keeps the arrays of the later run.
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

/// Array and its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayUsage {
    /// Array.
    pub array: Array,
    /// Bytes by kind of page, including untouched memory.
    pub pages: PageUsage,
}

impl ArrayUsage {
    /// Reads the pagemap, which takes up to 10 ms per GiB.
    ///
    /// # Errors
    /// [`GraphError::Memory`](crate::GraphError::Memory) if the pagemap cannot be read.
    pub fn read<T>(array: Array, values: &HugeVec<T>) -> Result<Self> {
        Ok(Self { array, pages: values.usage()? })
    }
}

/// Timer of the phases of a run.
pub(super) struct PhaseTimer {
    began: Instant,
    allocated: OnceLock<Instant>,
    touched: OnceLock<Instant>,
}

impl PhaseTimer {
    pub(super) fn start() -> Self {
        Self { began: Instant::now(), allocated: OnceLock::new(), touched: OnceLock::new() }
    }

    /// Ends the mapping phase.
    pub(super) fn allocated(&self) {
        self.allocated.get_or_init(Instant::now);
    }

    /// Ends the first-touch phase. Any thread may call this after the barrier.
    pub(super) fn touched(&self) {
        self.touched.get_or_init(Instant::now);
    }

    /// Ends the run.
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
