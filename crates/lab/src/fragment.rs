//! Fragmentation: keeps a base page in a share of all huge-page-sized blocks of memory.
//!
//! Huge pages are allocated and split; of each, the kernel frees all base pages but one. Pinned
//! pages resist compaction. The level is verified by frame numbers that are read after the pin: it
//! counts distinct blocks, and tops up until the level holds. The memory between the pages is free
//! for base pages. After the end, other processes' pages may be in these blocks, and the kernel
//! keeps scattered free pages in lists: free huge pages return only in part, also by compaction.
//!
//! Manocha et al. (2022), section 4.4, define the level as a share of available memory and use a
//! kernel module. Here it is a share of all memory or of the free blocks at the start.

mod level;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hugepilot_kernel::{Root, memory};
use hugepilot_record::Pid;
use hugepilot_reports::lab::weather::{
    FRAGMENT_SCHEMA, FragmentBase, FragmentKind, FragmentReport, Obtainable, Shortfall,
};
use hugepilot_units::{Bytes, PageSizes, Share};

use crate::condition::Condition;
use crate::holder::Holder;
use crate::{LabError, Result};

pub use level::{Build, CHUNK, GUARD, Next, blocks_of, distinct_blocks};

/// Time in which the kernel unpins the pages of a process that ended: 55 ms in the worst case seen.
const UNPINNED: Duration = Duration::from_millis(100);
/// Memory that is touched at most, to join scattered free pages.
const MOST_FLUSHED: Bytes = Bytes::gib(4);
/// Times that a movable level, of which the kernel moves pages, is counted again.
const RECOUNTS: u32 = 5;

/// Requested fragmentation.
#[derive(Clone, Debug)]
pub struct FragmentConfig {
    /// Share of the blocks that get a page.
    pub level: Share,
    /// Blocks that are the whole.
    pub of: FragmentBase,
    /// Kind of the pages.
    pub kind: FragmentKind,
    /// Whether to allocate huge pages at the end, to count those that can be obtained.
    pub probe: bool,
    /// Executable of the holder: see [`crate::holder`].
    pub executable: PathBuf,
}

/// Fragmentation that holds. Dropping it frees the pages, and takes up to 2 s to join a part of
/// the memory between them.
#[derive(Debug)]
pub struct Fragmentation {
    /// `None` only on drop.
    holder: Option<Holder>,
    executable: PathBuf,
    report: FragmentReport,
}

impl Fragmentation {
    /// Fragments memory up to the level: 1.5 to 4 ms of CPU time for each block. If free blocks run
    /// out below the level, compacts all memory; otherwise the report has the cause. Keeps 1.5 GiB
    /// available meanwhile.
    ///
    /// # Errors
    /// [`LabError::Refused`] without root or io_uring; [`LabError::Interrupted`]; those of the
    /// holder.
    pub fn begin(config: &FragmentConfig, stopped: &dyn Fn() -> bool) -> Result<Self> {
        let (root, began) = (Root::live(), Instant::now());
        let sizes = memory::page_sizes(&root)?;
        let movable = config.kind == FragmentKind::Movable;
        let mut holder = Holder::start(&config.executable)?;
        if config.of == FragmentBase::Free {
            flush(&mut holder, MOST_FLUSHED)?;
        }
        let before = free_huge_pages(&root, sizes)?;
        let base = match config.of {
            FragmentBase::Machine => memory::mem_info(&root)?.total.get() / sizes.huge.get(),
            FragmentBase::Free => before,
        };
        holder.ask(&format!("ring {}", u8::from(movable)))?;
        let wanted = blocks_of(config.level, base);
        let mut builder = Builder { holder, sizes, frames: Vec::new(), build: Build::new(wanted) };
        let shortfall = builder.reach(movable, stopped)?;
        let seconds = began.elapsed().as_secs_f64();
        let obtainable = config.probe.then(|| builder.obtainable()).transpose()?;
        let zones = memory::free_blocks(&root)?;
        let orders = zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(0);
        let of_order = |order| zones.iter().filter_map(|zone| zone.free_blocks.get(order)).sum();
        let Builder { holder, frames, build, .. } = builder;
        let report = FragmentReport {
            schema: FRAGMENT_SCHEMA.to_owned(),
            kind: config.kind,
            of: config.of,
            requested_ratio: config.level,
            reached_ratio: build.distinct as f64 / base.max(1) as f64,
            fragmented_blocks: build.distinct,
            kept_pages: frames.len() as u64,
            base_blocks: base,
            block_bytes: sizes.huge,
            free_huge_pages_before: before,
            free_huge_pages: free_huge_pages(&root, sizes)?,
            free_blocks_by_order: (0..orders).map(of_order).collect(),
            obtainable,
            compactions: build.compactions,
            seconds,
            shortfall,
        };
        Ok(Self { holder: Some(holder), executable: config.executable.clone(), report })
    }

    /// The level as it was reached.
    pub const fn report(&self) -> &FragmentReport {
        &self.report
    }
}

impl Condition for Fragmentation {
    fn keep(&mut self, _: Option<Pid>) -> Result<()> {
        self.holder.as_mut().map_or(Ok(()), Holder::check)
    }
}

impl Drop for Fragmentation {
    fn drop(&mut self) {
        self.holder = None;
        // The kernel unpins the pages a moment later, into lists that keep them from their blocks.
        std::thread::sleep(UNPINNED);
        let flushed = Holder::start(&self.executable)
            .and_then(|mut holder| flush(&mut holder, small_blocks(self.report.kept_pages)));
        drop(flushed);
    }
}

/// Fragmentation under way.
struct Builder {
    holder: Holder,
    sizes: PageSizes,
    frames: Vec<u64>,
    build: Build,
}

impl Builder {
    fn reach(&mut self, movable: bool, stopped: &dyn Fn() -> bool) -> Result<Option<Shortfall>> {
        let root = Root::live();
        let mut blocks = HashSet::new();
        let mut recounts = 0;
        loop {
            if stopped() {
                return Err(LabError::Interrupted);
            }
            match self.build.next(memory::mem_info(&root)?.available, self.sizes) {
                Next::Keep(count) => {
                    let frames = self.holder.ask(&format!("keep {count}"))?;
                    let before = blocks.len();
                    blocks.extend(distinct_blocks(&frames, self.sizes));
                    let gained = (blocks.len() - before) as u64;
                    self.build.kept(count, frames.len() as u64, gained);
                    self.frames.extend(frames);
                }
                Next::Compact => {
                    flush(&mut self.holder, MOST_FLUSHED)?;
                    memory::compact(&root)?;
                    self.build.compacted();
                }
                Next::Done if movable && recounts < RECOUNTS => {
                    recounts += 1;
                    self.frames = self.holder.ask("recount")?;
                    blocks = distinct_blocks(&self.frames, self.sizes);
                    self.build.distinct = blocks.len() as u64;
                    if blocks.len() as u64 >= self.build.wanted {
                        recounts = RECOUNTS;
                    }
                }
                Next::Done => return Ok(None),
                Next::Stop(cause) => return Ok(Some(cause)),
            }
        }
    }

    fn obtainable(&mut self) -> Result<Obtainable> {
        let answer = self.holder.ask(&format!("obtain {}", GUARD.get()))?;
        let [huge_pages, refused] = answer[..] else { return Err(LabError::HolderEnded) };
        Ok(Obtainable { huge_pages, refused: refused != 0 })
    }
}

/// Memory in the small free blocks that `pages` left: those of 64 base pages, lists included.
fn small_blocks(pages: u64) -> Bytes {
    MOST_FLUSHED.min(Bytes::mib(128) + Bytes::kib(256).times(pages))
}

/// Frees the scattered pages that the kernel keeps in lists of processors.
fn flush(holder: &mut Holder, size: Bytes) -> Result<()> {
    holder.ask(&format!("flush {} {}", size.get(), GUARD.get())).map(drop)
}

fn free_huge_pages(root: &Root, sizes: PageSizes) -> Result<u64> {
    let free: Bytes = memory::free_huge(root, sizes)?;
    Ok(free.get() / sizes.huge.get())
}
