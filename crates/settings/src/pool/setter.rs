//! Change of one pool.

use std::cmp::Ordering;
use std::time::Instant;

use hugepilot_kernel::{KernelError, hugetlb};
use hugepilot_reports::pool::{
    Pool, PoolChange, PoolMemory, PoolNote, PoolPages, PoolShortfall, SCHEMA,
};
use hugepilot_units::Bytes;

use super::{PoolKernel, PoolRequest, Result, advice};
use crate::SettingsError;

/// Memory that one request to the kernel asks for, but at least one page.
const STEP: Bytes = Bytes::gib(1);

/// Change in progress.
pub(super) struct Setter<'a> {
    kernel: &'a mut dyn PoolKernel,
    request: PoolRequest,
    pub(super) change: PoolChange,
}

impl<'a> Setter<'a> {
    pub(super) fn new(
        kernel: &'a mut dyn PoolKernel,
        request: PoolRequest,
        pool: &Pool,
    ) -> Result<Self> {
        let root = kernel.root();
        let memory = hugetlb::memory_of(root, request.node)?;
        let change = PoolChange {
            schema: SCHEMA.to_owned(),
            action: "set".to_owned(),
            dry_run: request.dry_run,
            page_bytes: request.size,
            node: request.node,
            requested: request.count,
            before: hugetlb::pages(root, request.size, request.node)?,
            floor_bytes: request.floor.of(memory.total_bytes),
            memory,
            permanent: advice::permanent(&request, pool.is_default),
            ..PoolChange::default()
        };
        Ok(Self { kernel, request, change })
    }

    fn now(&self) -> Result<PoolPages> {
        Ok(hugetlb::pages(self.kernel.root(), self.request.size, self.request.node)?)
    }

    fn memory(&self) -> Result<PoolMemory> {
        Ok(hugetlb::memory_of(self.kernel.root(), self.request.node)?)
    }

    /// Memory that `count` persistent pages add; surplus pages become persistent first.
    fn growth(&self, count: u64, now: &PoolPages) -> Bytes {
        self.request.size.times(count.saturating_sub(now.total))
    }

    /// Rejects a request beyond total memory, or below the floor.
    pub(super) fn reject_excess(&mut self) {
        let PoolRequest { size, count, node, .. } = self.request;
        let (requested_bytes, total_bytes) = (size.times(count), self.change.memory.total_bytes);
        if requested_bytes > total_bytes {
            let cause = PoolShortfall::ExceedsMemory { requested_bytes, total_bytes, node };
            return self.change.causes.push(cause);
        }
        let (before, memory) = (&self.change.before, &self.change.memory);
        let room = (memory.available_bytes - self.change.floor_bytes).get() / size.get();
        let max_pages = before.total.saturating_add(room);
        let cause = self.below_floor(self.growth(count, before), memory, Some(max_pages));
        self.change.causes.extend(cause);
    }

    fn below_floor(
        &self,
        growth_bytes: Bytes,
        memory: &PoolMemory,
        max_pages: Option<u64>,
    ) -> Option<PoolShortfall> {
        let available_bytes = memory.available_bytes;
        let left_bytes = available_bytes - growth_bytes;
        let (floor_bytes, node) = (self.change.floor_bytes, self.request.node);
        let is_below =
            growth_bytes > Bytes::ZERO && left_bytes < floor_bytes && !self.request.force;
        is_below.then_some(PoolShortfall::BelowFloor {
            growth_bytes,
            left_bytes,
            available_bytes,
            floor_bytes,
            node,
            max_pages,
        })
    }

    pub(super) fn act(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let begun = Instant::now();
        let grows = self.request.count > self.change.before.persistent();
        if grows && self.request.compact {
            match self.kernel.write(&hugetlb::compact_file(self.request.node), "1") {
                Ok(()) => self.change.compacted = true,
                Err(error) => {
                    let error = error.to_string();
                    self.change.warnings.push(PoolNote::NotCompacted { error });
                }
            }
        }
        let done = match self.request.count.cmp(&self.change.before.persistent()) {
            Ordering::Greater => self.grow(interrupted),
            Ordering::Less => self.write(self.request.count),
            Ordering::Equal => Ok(()),
        };
        // The report includes the pages allocated before an error.
        self.change.after = Some(self.now()?);
        self.change.memory = self.memory()?;
        self.change.seconds = Some(begun.elapsed().as_secs_f64());
        match done {
            Err(SettingsError::Kernel(error @ KernelError::Write { .. })) => {
                advice::note_write_error(&mut self.change, &error);
                Ok(())
            }
            done => done,
        }
    }

    /// Requests a little more at a time until the pool is complete, or the kernel has no more
    /// memory.
    fn grow(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let step = (STEP.get() / self.request.size.get()).max(1);
        let mut now = self.change.before;
        while now.persistent() < self.request.count {
            if interrupted() {
                break;
            }
            let target = now.persistent().saturating_add(step).min(self.request.count);
            let growth = self.growth(target, &now);
            if let Some(cause) = self.below_floor(growth, &self.memory()?, None) {
                self.change.causes.push(cause);
                break;
            }
            self.write(target)?;
            now = self.now()?;
            if now.persistent() < target {
                break;
            }
        }
        self.change.interrupted = interrupted() && now.persistent() < self.request.count;
        Ok(())
    }

    fn write(&mut self, count: u64) -> Result<()> {
        let path = hugetlb::count_file(self.request.size, self.request.node);
        Ok(self.kernel.write(&path, &count.to_string())?)
    }

    /// Completes the report with the causes of a shortfall, and the command that undoes the change.
    pub(super) fn finish(mut self) -> PoolChange {
        let (before, change) = (self.change.before, &mut self.change);
        if let Some(after) = change.after {
            if change.causes.is_empty() {
                change.causes.extend(advice::shortfall(change, &after));
            }
            let differs = after.persistent() != before.persistent();
            change.undo = differs.then(|| advice::command(&self.request, before.persistent()));
        } else if self.request.dry_run && change.causes.is_empty() {
            change.warnings.extend(advice::forecast(change));
        }
        self.change
    }
}
