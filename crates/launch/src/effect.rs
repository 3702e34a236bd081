//! Effect of a page mode on a finished run, and the cause if there is none.

mod obstacles;

use hugepilot_record::Mode;
use hugepilot_reports::run::{Effect, EffectCause, PageOwner, Peak, Run};
use hugepilot_units::Bytes;

pub use obstacles::{Holder, Obstacles, PromotionObstacle, Promotions};

/// Memory below which a program hardly fills a huge page.
const SMALL: Bytes = Bytes::mib(8);

/// Judges the effect of `mode` by sampled memory first, and by obstacles only without evidence.
pub fn effect(mode: Mode, run: &Run, obstacles: &Obstacles) -> Effect {
    let effect = judge(mode, run, obstacles);
    Effect { allocator_serves: allocator_serves(mode, run, obstacles), ..effect }
}

fn judge(mode: Mode, run: &Run, obstacles: &Obstacles) -> Effect {
    let peak = &run.peak;
    let serves = !obstacles.not_preloaded && obstacles.loader_bypassed.is_none();
    match mode {
        Mode::Base => return without_huge_pages(peak),
        Mode::HugepilotBase if serves => return without_huge_pages(peak),
        Mode::Mimalloc if serves => {
            let cause = EffectCause::AllocatorLoaded { pages: peak.huge_memory() };
            return Effect::new(Some(true), cause);
        }
        _ => {}
    }
    let mode_bytes = pages_of_mode(mode, of_all(peak));
    let owner = page_owner(mode, &obstacles.holders).filter(|_| mode_bytes > Bytes::ZERO);
    if mode_bytes > Bytes::ZERO && owner.is_none() {
        let memory_bytes = peak.rss_peak_bytes + peak.hugetlb_peak_bytes;
        let pages = peak.huge_memory();
        let cause = EffectCause::HugePages { pages, mode_bytes, memory_bytes };
        return Effect::new(Some(true), cause);
    }
    let known = known_cause(mode, peak, obstacles);
    let is_known = known.is_some() || owner.is_some() || peak.is_sampled();
    let cause = known.unwrap_or_else(|| likely_cause(mode, run));
    Effect { owner, ..Effect::new(is_known.then_some(false), cause) }
}

fn allocator_serves(mode: Mode, run: &Run, obstacles: &Obstacles) -> Option<bool> {
    match (mode.preloads(), obstacles.not_preloaded) {
        (false, _) => None,
        (true, _) if obstacles.loader_bypassed.is_some() => Some(false),
        (true, false) => Some(true),
        (true, true) => run.peak.is_sampled().then_some(false),
    }
}

fn without_huge_pages(peak: &Peak) -> Effect {
    let (none, pages) = (peak.anonymous_thp_peak_bytes == Bytes::ZERO, peak.huge_memory());
    let cause = match (peak.rss_samples, none) {
        (0, _) => EffectCause::ThpOffNotSampled,
        (_, true) if peak.all_huge() > Bytes::ZERO => EffectCause::OtherHugePages { pages },
        (_, true) => EffectCause::NoHugePages,
        (_, false) => EffectCause::UnexpectedThp { pages },
    };
    Effect::new(Some(none), cause)
}

/// Memory on anonymous transparent huge pages, on 2 MiB and on 1 GiB hugetlb pages. No mode causes
/// huge pages of files and shared memory.
type Kinds = [Bytes; 3];

const fn of_all(peak: &Peak) -> Kinds {
    [peak.anonymous_thp_peak_bytes, peak.hugetlb_2m_peak_bytes, peak.hugetlb_1g_peak_bytes]
}

const fn of_one(holder: &Holder) -> Kinds {
    [holder.thp, holder.hugetlb_2m, holder.hugetlb_1g]
}

/// Memory on the pages of `mode`.
fn pages_of_mode(mode: Mode, [thp, small, large]: Kinds) -> Bytes {
    match mode {
        Mode::Base | Mode::HugepilotBase | Mode::Mimalloc => Bytes::ZERO,
        Mode::Thp | Mode::Advised | Mode::GlibcThp => thp,
        Mode::Hugetlb => small,
        Mode::Hugetlb1g | Mode::Mimalloc1g => large,
        Mode::Mimalloc2m | Mode::Hugepilot => thp + small,
    }
}

/// The process with pages of `mode`, if the one with the most memory has none, such as a script
/// that starts the program.
fn page_owner(mode: Mode, holders: &[Holder]) -> Option<PageOwner> {
    let pages = |holder: &Holder| pages_of_mode(mode, of_one(holder));
    let largest = holders.iter().max_by_key(|holder| holder.memory)?;
    let owners = holders.iter().filter(|holder| pages(holder) > Bytes::ZERO);
    let owner = owners.max_by_key(|holder| pages(holder))?;
    let has_pages =
        holders.iter().any(|holder| holder.name == largest.name && pages(holder) > Bytes::ZERO);
    (!has_pages).then(|| PageOwner {
        process: owner.name.clone(),
        bytes: pages(owner),
        largest_process: largest.name.clone(),
        largest_bytes: largest.memory,
    })
}

/// The most likely of the known obstacles, most certain first.
fn known_cause(mode: Mode, peak: &Peak, obstacles: &Obstacles) -> Option<EffectCause> {
    static_cause(mode, obstacles).or_else(|| {
        if mode.preloads() && obstacles.not_preloaded && peak.is_sampled() {
            return Some(EffectCause::LibraryNotLoaded);
        }
        if obstacles.thp_never && matches!(mode, Mode::GlibcThp | Mode::Advised) {
            return Some(EffectCause::ThpNever);
        }
        if let Some(obstacle) = obstacles.not_promoted.filter(|_| mode == Mode::Thp) {
            return Some(obstacle.cause());
        }
        let enough = peak.is_sampled() && peak.rss_peak_bytes >= SMALL;
        if obstacles.libc_thp_bug && mode == Mode::GlibcThp && enough {
            return Some(EffectCause::LibcThpBug);
        }
        let needs_blocks =
            !matches!(mode, Mode::Hugetlb | Mode::Hugetlb1g | Mode::Mimalloc1g | Mode::Advised);
        let fragmented = obstacles.fragmented.filter(|_| needs_blocks && enough);
        fragmented.map(|free_bytes| EffectCause::Fragmented { free_bytes })
    })
}

/// The obstacle that is certain whatever the memory shows: the program, its libraries, the pool.
fn static_cause(mode: Mode, obstacles: &Obstacles) -> Option<EffectCause> {
    let by_allocator = mode.preloads() || mode.tunes_glibc();
    let program = obstacles.loader_bypassed.filter(|_| by_allocator);
    let libc = obstacles.libc_lacks_tunable.filter(|_| mode.tunes_glibc());
    let pool = obstacles.empty_pool.filter(|_| mode.needs_pool().is_some());
    let library = obstacles.own_allocator.clone().filter(|_| by_allocator);
    program
        .map(|program| EffectCause::LoaderBypassed { program })
        .or_else(|| libc.map(|libc| EffectCause::LibcLacksTunable { libc }))
        .or_else(|| pool.map(|page_bytes| EffectCause::EmptyPool { page_bytes }))
        .or_else(|| library.map(|library| EffectCause::OwnAllocator { library }))
}

/// A cause without a known obstacle.
fn likely_cause(mode: Mode, run: &Run) -> EffectCause {
    let peak = &run.peak;
    match mode {
        _ if peak.rss_samples == 0 => EffectCause::NotSampled { wall_seconds: run.wall_seconds },
        _ if !peak.is_sampled() => EffectCause::Unreadable,
        _ if peak.rss_peak_bytes < SMALL => {
            EffectCause::LittleMemory { rss_peak_bytes: peak.rss_peak_bytes }
        }
        Mode::Advised => EffectCause::NothingAdvised,
        _ => EffectCause::Unknown,
    }
}

#[cfg(test)]
mod tests;
