//! The hugetlb pools: what is there, and setting how many pages there are.
//!
//! The kernel takes any number and allocates what it can, so what it got is read back. It is asked for a gigabyte at a time:
//! between two requests a signal and the memory left are looked at, and a signal ends a request that is under way, with
//! what it got so far.

mod advice;

use std::cmp::Ordering;
use std::time::Instant;

use hugepilot_kernel::{KernelError, Root, Unsupported, hugetlb};
use hugepilot_record::Errno;
use hugepilot_record::pool::{Pool, PoolChange, PoolMemory, PoolPages, PoolReport, SCHEMA};
use hugepilot_units::{Amount, Bytes};

use crate::SettingsError;
use crate::lent_pool;

type Result<T> = std::result::Result<T, SettingsError>;

const EROFS: Errno = Errno(30);
/// What is asked of the kernel at a time, in pages of any size at least one.
const STEP: Bytes = Bytes::gib(1);

/// How many pages a pool, or one node's part of it, shall have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolRequest {
    /// The size of a page.
    pub size: Bytes,
    /// How many that stay.
    pub count: u64,
    /// Only on this NUMA node.
    pub node: Option<u32>,
    /// Memory that must stay available, in bytes or as a share of all.
    pub floor: Amount,
    /// Go below the floor.
    pub force: bool,
    /// Have memory compacted first.
    pub compact: bool,
    /// Change nothing.
    pub dry_run: bool,
}

/// Where pools are read, and what is written to change them: the running kernel, or a test's.
pub trait PoolKernel {
    /// The root to read under.
    fn root(&self) -> &Root;
    /// Writes a setting.
    ///
    /// # Errors
    /// As [`Root::write`].
    fn write(&mut self, path: &str, text: &str) -> std::result::Result<(), KernelError>;
}

impl PoolKernel for Root {
    fn root(&self) -> &Root {
        self
    }
    fn write(&mut self, path: &str, text: &str) -> std::result::Result<(), KernelError> {
        Self::write(self, path, text)
    }
}

/// Looks at every pool, at who uses them, and at the memory they are made of. A few milliseconds.
///
/// # Errors
/// When `/proc` or a pool that is there cannot be read.
pub fn show(root: &Root) -> Result<PoolReport> {
    let pools = hugetlb::pools(root)?;
    let processes = hugetlb::users(root)?;
    let mut report = PoolReport {
        schema: SCHEMA.to_owned(),
        action: "show".to_owned(),
        memory: hugetlb::memory_of(root, None)?,
        mounts: hugetlb::mounts(root),
        pools,
        processes,
        warnings: Vec::new(),
    };
    report.warnings = advice::of_use(&report);
    Ok(report)
}

/// Sets how many pages a pool has, and reads back what came of it. `interrupted` is asked between two requests.
///
/// # Errors
/// [`SettingsError::Refused`] where there is no such size or node, or this user may not; [`KernelError`] of what cannot be
/// read. What the kernel does not give is no error, but said in the report.
pub fn set(
    kernel: &mut dyn PoolKernel,
    request: &PoolRequest,
    interrupted: &dyn Fn() -> bool,
) -> Result<PoolChange> {
    let pool = find(kernel.root(), request)?;
    if !request.dry_run {
        may_set(kernel.root(), request)?;
    }
    let mut setter = Setter::new(kernel, *request, &pool)?;
    setter.refuse_what_is_too_much();
    if !request.dry_run && setter.change.why.is_empty() {
        setter.act(interrupted)?;
    }
    setter.finish()
}

/// The pool that is meant.
fn find(root: &Root, request: &PoolRequest) -> Result<Pool> {
    let pools = hugetlb::pools(root)?;
    let sizes: Vec<String> = pools.iter().map(|pool| pool.page_bytes.to_string()).collect();
    let Some(pool) = pools.into_iter().find(|pool| pool.page_bytes == request.size) else {
        return Err(advice::no_such_size(root, request.size, &sizes).into());
    };
    let nodes: Vec<String> = pool.nodes.iter().map(|node| node.node.to_string()).collect();
    match request.node {
        Some(node) if !pool.nodes.iter().any(|part| part.node == node) => {
            Err(Unsupported::because(format!(
                "there is no NUMA node {node} with pages of {}",
                request.size
            ))
            .fixed_by(format!("one of --node {}, or leave --node out", nodes.join(", ")))
            .into())
        }
        _ => Ok(pool),
    }
}

fn may_set(root: &Root, request: &PoolRequest) -> Result<()> {
    if let Some(lent) = lent_pool(root, request.size) {
        return Err(advice::is_lent(request, lent).into());
    }
    match hugetlb::may_set(root, request.size, request.node) {
        Ok(()) => Ok(()),
        Err(error) if error.is_denied() => {
            Err(Unsupported::because(format!("only root may set a pool: {error}"))
                .fixed_by(advice::command(request, request.count))
                .into())
        }
        Err(error) if error.errno() == Some(EROFS) => {
            Err(Unsupported::because(format!("the pools cannot be set from in here: {error}"))
                .fixed_by("run it on the host: in containers /sys is mounted read-only")
                .into())
        }
        Err(error) => Err(error.into()),
    }
}

/// A change under way.
struct Setter<'a> {
    kernel: &'a mut dyn PoolKernel,
    request: PoolRequest,
    change: PoolChange,
}

impl<'a> Setter<'a> {
    fn new(kernel: &'a mut dyn PoolKernel, request: PoolRequest, pool: &Pool) -> Result<Self> {
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

    /// How much memory `count` pages take besides those that are there; surplus ones become lasting ones first.
    fn growth(&self, count: u64, now: &PoolPages) -> Bytes {
        self.request.size.times(count.saturating_sub(now.total))
    }

    fn refuse_what_is_too_much(&mut self) {
        let (size, count) = (self.request.size, self.request.count);
        let growth = self.growth(count, &self.change.before);
        let memory = &self.change.memory;
        let wanted = size.times(count);
        if wanted > memory.total_bytes {
            self.change.why.push(format!(
                "{count} pages of {size} are {wanted}, and there are {} of memory{}; nothing was changed",
                memory.total_bytes,
                advice::on_node(self.request.node)
            ));
            return;
        }
        if let Some(why) = self.below_floor(growth, memory) {
            self.change.why.push(format!("{why}; nothing was changed"));
            let room = (memory.available_bytes - self.change.floor_bytes).get() / size.get();
            let fits = self.change.before.total.saturating_add(room);
            self.change
                .fixes
                .push(format!("at most --count {fits}, a smaller --floor, or --force"));
        }
    }

    /// Why `growth` more is too much, if it is.
    fn below_floor(&self, growth: Bytes, memory: &PoolMemory) -> Option<String> {
        let left = memory.available_bytes - growth;
        let floor = self.change.floor_bytes;
        (growth > Bytes::ZERO && left < floor && !self.request.force).then(|| {
            format!(
                "{growth} more would leave {left} of {} available{}, and {floor} are to stay (--floor)",
                memory.available_bytes,
                advice::on_node(self.request.node)
            )
        })
    }

    fn act(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let begin = Instant::now();
        let grows = self.request.count > self.change.before.persistent();
        if grows && self.request.compact {
            match self.kernel.write(&hugetlb::compact_file(self.request.node), "1") {
                Ok(()) => self.change.compacted = true,
                Err(error) => {
                    self.change.warnings.push(format!("memory was not compacted: {error}"))
                }
            }
        }
        let done = match self.request.count.cmp(&self.change.before.persistent()) {
            Ordering::Greater => self.grow(interrupted),
            Ordering::Less => self.ask(self.request.count),
            Ordering::Equal => Ok(()),
        };
        // What was got before something failed must be told, too.
        self.change.after = Some(self.now()?);
        self.change.memory = self.memory()?;
        self.change.seconds = Some(begin.elapsed().as_secs_f64());
        match done {
            Err(SettingsError::Kernel(error @ KernelError::Write { .. })) => {
                advice::of_write(&mut self.change, &error);
                Ok(())
            }
            done => done,
        }
    }

    /// Asks for a little more at a time until all is there, or the kernel has no more.
    fn grow(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let step = (STEP.get() / self.request.size.get()).max(1);
        let mut now = self.change.before;
        while now.persistent() < self.request.count {
            if interrupted() {
                break;
            }
            let target = now.persistent().saturating_add(step).min(self.request.count);
            if let Some(why) = self.below_floor(self.growth(target, &now), &self.memory()?) {
                self.change.why.push(why);
                break;
            }
            self.ask(target)?;
            now = self.now()?;
            if now.persistent() < target {
                break;
            }
        }
        self.change.interrupted = interrupted() && now.persistent() < self.request.count;
        Ok(())
    }

    fn ask(&mut self, count: u64) -> Result<()> {
        let path = hugetlb::count_file(self.request.size, self.request.node);
        Ok(self.kernel.write(&path, &count.to_string())?)
    }

    /// Says why it came short, and how to undo it.
    fn finish(mut self) -> Result<PoolChange> {
        let (before, change) = (self.change.before, &mut self.change);
        if let Some(after) = change.after {
            if change.why.is_empty() {
                advice::of_result(change, &after);
            }
            let differs = after.persistent() != before.persistent();
            change.undo = differs.then(|| advice::command(&self.request, before.persistent()));
        } else if self.request.dry_run && change.why.is_empty() {
            change.warnings.extend(advice::forecast(change));
        }
        Ok(self.change)
    }
}

#[cfg(test)]
mod tests;
