//! `tlb-sweep`: latency against the number of pages, for each kind of page.
//!
//! A random cycle visits one cache line of each page, at another offset in each, so that the lines
//! spread over the sets of the caches. A second cycle visits as many lines packed into few huge
//! pages. Both take the same space in the caches, so the difference is the time of the translation.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hugepilot_alloc::HugeVec;
use hugepilot_kernel::{Root, cpu};
use hugepilot_reports::lab::{
    KnownTlb, NotAvailable, PageKind, TLB_SWEEP_SCHEMA, TlbCurve, TlbPoint, TlbSweepReport,
};
use hugepilot_units::Bytes;

use super::clock::clock_ghz;
use super::levels::levels;
use super::random::{after, chase, cycle_length, link};
use super::{LINE_BYTES, Progress, allocate, huge_bytes};
use crate::rng::Rng;
use crate::{MemoryLimits, Result, WorkloadError};

const NAME: &str = "tlb-sweep";
/// Flag of the memory of a curve.
const FLAG: &str = "--max-footprint";
const LINE: usize = LINE_BYTES as usize;
/// Most pages: more than any TLB has entries, and their lines fill a second-level cache of 1 MiB.
const MAX_PAGES: u64 = 16 << 10;
const MIN_PAGES: u64 = 8;
/// Rounds of a point, of which the fastest counts: an interrupt can only slow a round down.
const ROUNDS: usize = 9;
/// Fewest steps of a round.
const MIN_STEPS: u64 = 100_000;

/// Kinds of pages and memory of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbSweepConfig {
    /// Kinds of pages.
    pub pages: Vec<PageKind>,
    /// Most memory for a curve.
    pub max_footprint: Bytes,
    /// Seed of the random order.
    pub seed: u64,
}

/// Measures a curve for each kind of page. Kinds that are not available have the cause instead.
///
/// # Errors
/// [`WorkloadError::Damaged`] if a cycle is not single; too little memory for the packed lines.
pub fn tlb_sweep(
    config: &TlbSweepConfig,
    machine: &MemoryLimits,
    progress: Progress<'_>,
) -> Result<TlbSweepReport> {
    let clock_ghz = clock_ghz();
    let lines = MAX_PAGES as usize * LINE;
    let mut packed: HugeVec<u8> = match allocate(lines, PageKind::Thp, machine, FLAG) {
        Err(WorkloadError::Pages(_)) => allocate(lines, PageKind::Base, machine, FLAG)?,
        allocated => allocated?,
    };
    let mut curves = Vec::new();
    for &pages in &config.pages {
        progress(pages.name());
        let mut curve = TlbCurve {
            pages,
            page_bytes: page_bytes(pages, machine),
            points: Vec::new(),
            levels: Vec::new(),
            unavailable: None,
        };
        match measure(config, &curve, &mut packed, machine) {
            Ok((points, unavailable)) => {
                curve.levels = levels(&points, clock_ghz);
                (curve.points, curve.unavailable) = (points, unavailable);
            }
            Err(error @ WorkloadError::Damaged { .. }) => return Err(error),
            Err(error) => {
                let help = error.help().into_iter().collect();
                curve.unavailable = Some(NotAvailable { cause: error.to_string(), help });
            }
        }
        curves.push(curve);
    }
    let known = cpu::read(&Root::live()).ok().map(|cpu| known(cpu::tlb(&cpu)));
    Ok(TlbSweepReport {
        schema: TLB_SWEEP_SCHEMA.to_owned(),
        clock_ghz,
        known,
        seed: config.seed,
        curves,
    })
}

fn known(tlb: hugepilot_reports::doctor::TlbSizes) -> KnownTlb {
    KnownTlb {
        l1d_4k_entries: tlb.l1d_4k_entries,
        l2_4k_entries: tlb.l2_4k_entries,
        l2_2m_entries: tlb.l2_2m_entries,
        source: tlb.source,
        assumed: tlb.assumed,
    }
}

const fn page_bytes(pages: PageKind, machine: &MemoryLimits) -> Bytes {
    match pages {
        PageKind::Base => machine.sizes.base,
        PageKind::Thp => machine.sizes.huge,
        PageKind::Hugetlb2M => Bytes::mib(2),
        PageKind::Hugetlb1G => Bytes::gib(1),
    }
}

type Measured = (Vec<TlbPoint>, Option<NotAvailable>);

/// Measures the points of a curve; also why there are not all of them.
fn measure(
    config: &TlbSweepConfig,
    curve: &TlbCurve,
    packed: &mut [u8],
    machine: &MemoryLimits,
) -> Result<Measured> {
    let page = curve.page_bytes;
    let is_pool = matches!(curve.pages, PageKind::Hugetlb2M | PageKind::Hugetlb1G);
    let spare = if is_pool { config.max_footprint } else { machine.memory.room() };
    let limit = config.max_footprint.min(spare).get() / page.get();
    let mut count = limit.min(MAX_PAGES);
    // A pool may have fewer pages than asked for; any number shows part of the curve.
    let mut memory: HugeVec<u8> = loop {
        match allocate(page.times(count.max(1)).as_usize(), curve.pages, machine, FLAG) {
            Err(WorkloadError::Pages(_)) if is_pool && count > 1 => count /= 2,
            allocated => break allocated?,
        }
    };
    if curve.pages == PageKind::Thp {
        let footprint = page.times(count);
        let huge = huge_bytes(&memory).unwrap_or(footprint);
        if huge < footprint {
            let cause = format!("only {huge} of {footprint} are on huge pages");
            let help = vec!["free memory, or use a smaller --max-footprint".to_owned()];
            return Ok((Vec::new(), Some(NotAvailable { cause, help })));
        }
    }
    let counts: Vec<u64> = page_counts(count).collect();
    let mut points = Vec::with_capacity(counts.len());
    for &page_count in &counts {
        let mut spread = places(page_count, page, machine.sizes.base);
        let latency_ns = latency(&mut memory, &mut spread, config.seed)?;
        let mut dense: Vec<usize> = (0..page_count as usize).map(|line| line * LINE).collect();
        let packed_latency_ns = latency(packed, &mut dense, config.seed)?;
        let translation_ns = latency_ns - packed_latency_ns;
        points.push(TlbPoint { page_count, latency_ns, packed_latency_ns, translation_ns });
    }
    let shortened = (count < MIN_PAGES).then(|| NotAvailable {
        cause: format!("{count} pages are too few to show a level"),
        help: vec![match curve.pages {
            PageKind::Hugetlb2M | PageKind::Hugetlb1G => format!(
                "sudo hugepilot pool set --size {page} --count {MIN_PAGES}; then a \
                 --max-footprint of {} or more",
                page.times(MIN_PAGES)
            ),
            PageKind::Base | PageKind::Thp => "a larger --max-footprint".to_owned(),
        }],
    });
    Ok((points, shortened))
}

/// Returns numbers of pages up to `most`: four to a doubling.
fn page_counts(most: u64) -> impl Iterator<Item = u64> {
    let between = |count: u64| (4..8).map(move |quarter| count * quarter / 4);
    let doublings = (MIN_PAGES.ilog2()..=MAX_PAGES.ilog2()).map(|bit| 1_u64 << bit);
    doublings.flat_map(between).filter(move |&count| count <= most.min(MAX_PAGES))
}

/// Returns a place in each of `pages` pages, spread over the sets of caches and TLBs.
///
/// The offset in a huge page changes by base pages, too: if the host of a virtual machine uses base
/// pages, so do the entries of the TLB, whose sets are then chosen by the bits of the offset.
fn places(pages: u64, page: Bytes, base: Bytes) -> Vec<usize> {
    let (page, base) = (page.as_usize(), base.as_usize());
    let (parts, lines) = (page / base, base / LINE);
    let place = |index: usize| {
        let line = (index + index / lines) % lines;
        index * page + index % parts * base + line * LINE
    };
    (0..pages as usize).map(place).collect()
}

/// Returns the time of a step through `places`, in nanoseconds: that of the fastest round.
fn latency(memory: &mut [u8], places: &mut [usize], seed: u64) -> Result<f64> {
    let count = places.len() as u64;
    let mut rng = Rng::new(seed, places.len());
    link(memory, places, &mut rng);
    if cycle_length(places[0], count + 1, |at| after(memory, at)) != count {
        return Err(WorkloadError::Damaged { workload: NAME });
    }
    let steps = MIN_STEPS.next_multiple_of(count);
    let round = |_| {
        let start = Instant::now();
        black_box(chase(memory, places[0], steps));
        start.elapsed()
    };
    let fastest = (0..ROUNDS).map(round).min().unwrap_or(Duration::ZERO);
    Ok(fastest.as_secs_f64() * 1e9 / steps as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Bytes = Bytes::kib(4);
    const HUGE: Bytes = Bytes::mib(2);

    /// Counts the places by a part of their address, whose granule and number of values are given.
    fn by(places: &[usize], granule: usize, values: usize) -> Vec<usize> {
        let mut counts = vec![0; values];
        places.iter().for_each(|place| counts[place / granule % values] += 1);
        counts
    }

    #[test]
    fn every_page_has_one_place() {
        for page in [BASE, HUGE] {
            let pages: Vec<usize> = places(3000, page, BASE)
                .iter()
                .map(|place| {
                    assert_eq!(place % LINE, 0);
                    place / page.as_usize()
                })
                .collect();
            assert_eq!(pages, (0..3000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn places_spread_over_the_sets_of_caches_and_of_base_page_entries() {
        let huge = places(2048, HUGE, BASE);
        // 64 sets of a first-level cache, 2048 of a second-level cache, 16 sets of a TLB.
        assert_eq!(by(&huge, LINE, 64), [32; 64]);
        assert_eq!(by(&huge, LINE, 2048), [1; 2048]);
        assert_eq!(by(&huge, BASE.as_usize(), 16), [128; 16]);
        assert_eq!(by(&places(640, BASE, BASE), LINE, 64), [10; 64]);
    }

    #[test]
    fn counts_rise_by_quarters_up_to_the_limit() {
        let counts: Vec<u64> = page_counts(40).collect();
        assert_eq!(counts, [8, 10, 12, 14, 16, 20, 24, 28, 32, 40]);
        assert_eq!(page_counts(u64::MAX).last(), Some(MAX_PAGES));
        assert_eq!(page_counts(7).count(), 0);
    }
}
