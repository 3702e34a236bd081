//! Huge pages to split so that the kernel frees their zero-filled base pages, and their order.
//!
//! Every order has two steps. First, each huge page gets a *class*; a higher class is split first.
//! The class is the order's estimate of cost and gain. Second, processes with huge pages in the
//! same class share it fairly. The orders differ only in the class:
//!
//! | order | class | from |
//! |---|---|---|
//! | `hawkeye` | none: address order, process by process | HawkEye (ASPLOS'19), as in EMD section 3
//! |
//! | `emd` | one of ten buckets of bloat density | EMD (ISMM'25), sections 4.2 and 4.3 |
//! | `exact` | the density itself | the ideal that EMD section 4.2 approximates |
//! | `heat` | freed bytes per lost time, equal within a factor of two | hugepilot |
//!
//! Stranded memory, held by large pages of which the process maps a part, comes before all these,
//! since it costs the program nothing.
//!
//! A plan lists every candidate. The caller stops when enough memory is free, so the next
//! candidates make up for a process that frees less than the census promised.

pub(crate) mod explain;
mod fairness;
mod order;
pub mod round;
mod stall;

use std::borrow::Cow;
use std::collections::BTreeMap;

use hugepilot_record::{Census, SkipReason, Split, SplitPlan, Stranded};
use hugepilot_units::{Nanos, Region, Share};
use serde::{Deserialize, Serialize};

pub use fairness::Fairness;
pub use order::Order;

use crate::daemon::{CoolDown, RegionHistory};

/// Priority of a process among those that free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// All its candidates come before those of other processes.
    Preferred,
    /// No preference.
    #[default]
    Normal,
    /// No huge page of it is split.
    Protected,
}

/// A process, as the policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct DebloatView<'a> {
    /// Its huge pages.
    pub census: &'a Census,
    /// Stall samples per region that huge pages help; `None` if it was not sampled. All views have
    /// the same observation time.
    pub stalls: Option<&'a BTreeMap<Region, u32>>,
    /// Priority set by the user.
    pub priority: Priority,
    /// Weight for [`Fairness::Weight`]: twice the weight frees twice the bytes.
    pub weight: f64,
    /// Earlier changes of its bloated regions, which may rest; `None` if they are not known.
    pub past: Option<&'a BTreeMap<Region, RegionHistory>>,
}

/// The policy and its parameters.
///
/// ```
/// use hugepilot_policy::{DebloatPolicy, DebloatView, Order, Priority};
/// use hugepilot_record::{BloatedPage, Census, Pid, ProcessId, Skips};
/// use hugepilot_units::{Bytes, Nanos, PageSizes, Region};
///
/// let sizes = PageSizes::X86_64;
/// // Two huge pages: all but 100 and all but 400 of their 512 base pages are zero-filled.
/// let zeros = |used: u32| (used..512).collect::<Vec<_>>();
/// let bloated = [(Region::new(7), 400), (Region::new(9), 100)]
///     .map(|(region, used)| BloatedPage::of(region, &zeros(used), sizes).expect("zeros"));
/// let census = Census {
///     process: ProcessId { pid: Pid(4711), start_ticks: 1, command: "db".into() },
///     sizes,
///     bloated: bloated.to_vec(),
///     huge_pages: 2,
///     read_pages: 2,
///     unread_pages: 0,
///     stranded: None,
///     skipped: Skips::new(),
///     took: Nanos::ZERO,
/// };
/// let (priority, weight) = (Priority::Normal, 1.0);
/// let view = DebloatView { census: &census, stalls: None, priority, weight, past: None };
/// let plan = DebloatPolicy::new(Order::EMD).plan(&[view], Nanos::ZERO);
/// let order: Vec<u64> = plan.splits.iter().map(|split| split.region.get()).collect();
/// assert_eq!(order, [9, 7], "the higher bloat density first");
/// assert_eq!(plan.enough_for(Bytes::mib(1)), 1, "one split frees 1.6 MiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DebloatPolicy {
    /// The order.
    pub order: Order,
    /// Fairness among processes.
    pub fairness: Fairness,
    /// Huge pages of one process in a row before the next one's turn.
    pub quantum: usize,
    /// Smallest zero-filled part of a huge page; with less, the huge page is worth more.
    pub min_bloat: Share,
    /// Limits on repeated changes of a region; `None` without a history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cool_down: Option<CoolDown>,
}

impl DebloatPolicy {
    /// Policy with the default parameters of `order`.
    pub fn new(order: Order) -> Self {
        Self {
            order,
            fairness: order.fairness(),
            quantum: order.quantum(),
            // HawkEye and EMD also split a huge page with a single zero-filled page.
            min_bloat: if order.is_from_the_paper() {
                Share::percent(0.0)
            } else {
                Share::percent(5.0)
            },
            cool_down: None,
        }
    }

    /// Whether a census must detect every zero-filled page, because bloat below 5 % counts.
    pub fn needs_exact_census(&self) -> bool {
        self.min_bloat < Share::percent(5.0)
    }

    /// Returns every candidate at `now`, best first. Costs a sort of all huge pages.
    pub fn plan<'a>(&self, views: &[DebloatView<'a>], now: Nanos) -> SplitPlan {
        let awake = |view: &DebloatView<'a>| match self.cool_down.zip(view.past) {
            Some((rules, past)) => rules.awake(view.census, past, now),
            None => Cow::Borrowed(view.census),
        };
        let awake: Vec<_> = views.iter().map(awake).collect();
        let views = views.iter().zip(&awake).map(|(view, census)| DebloatView { census, ..*view });
        self.plan_all(&views.collect::<Vec<_>>())
    }

    fn plan_all(&self, views: &[DebloatView<'_>]) -> SplitPlan {
        let mut plan = SplitPlan::default();
        let mut candidates = Vec::new();
        // A process without samples beside sampled ones counts as cold: its cost would have another
        // unit.
        let (cold, sampled) = (BTreeMap::new(), views.iter().any(|view| view.stalls.is_some()));
        for (process, view) in views.iter().enumerate() {
            for (&reason, &count) in &view.census.skipped {
                *plan.skipped.entry(reason).or_insert(0) += count;
            }
            if view.priority == Priority::Protected {
                *plan.skipped.entry(SkipReason::Protected).or_insert(0) +=
                    view.census.bloated.len() as u64;
                continue;
            }
            let view = DebloatView { stalls: view.stalls.or(sampled.then_some(&cold)), ..*view };
            candidates.extend(self.candidates(process, &view, &mut plan));
        }
        if self.order.needs_heat() && sampled {
            order::by_worth(&mut candidates);
        }
        plan.splits = stranded(views);
        plan.splits.extend(fairness::ordered(candidates, views, self.fairness, self.quantum));
        plan
    }

    fn candidates(
        &self,
        process: usize,
        view: &DebloatView<'_>,
        plan: &mut SplitPlan,
    ) -> Vec<Candidate> {
        let census = view.census;
        let stalls = stall::expected(census, view.stalls);
        let all = u32::try_from(census.sizes.base_per_huge()).unwrap_or(u32::MAX);
        let mut candidates = Vec::with_capacity(census.bloated.len());
        for (page, stalls) in census.bloated.iter().zip(stalls) {
            if f64::from(page.zero_pages) < self.min_bloat.get() * f64::from(all) {
                *plan.skipped.entry(SkipReason::LittleBloat).or_insert(0) += 1;
                continue;
            }
            candidates.push(Candidate {
                priority: view.priority,
                class: self.order.class(page.zero_pages, all),
                worth: f64::from(page.zero_pages) / stall::cost(stalls, page.table_lines),
                within: if self.order.needs_heat() { page.zero_pages } else { 0 },
                split: Split {
                    process,
                    region: page.region,
                    page: page.zero_address(census.sizes),
                    frees: page.bloat(census.sizes),
                    // Without samples the expected stalls are a guess, which must not be reported.
                    stalls: if view.stalls.is_some() { stalls } else { 0.0 },
                    stranded: false,
                },
            });
        }
        candidates
    }
}

/// Splits of the large pages that are mapped in part. They come first: the program has no huge
/// entry to lose, and its memory that is still mapped stays as it is.
fn stranded(views: &[DebloatView<'_>]) -> Vec<Split> {
    let mut views: Vec<_> = views.iter().enumerate().collect();
    views.retain(|(_, view)| view.priority != Priority::Protected);
    views.sort_by_key(|(_, view)| view.priority);
    let splits = |(process, view): (usize, &DebloatView<'_>)| {
        let sizes = view.census.sizes;
        let all = view.census.stranded.iter().flatten();
        let split = |one: &Stranded| Split {
            process,
            region: sizes.region_of(one.page),
            page: one.page,
            frees: one.bytes,
            stalls: 0.0,
            stranded: true,
        };
        all.map(split).collect::<Vec<_>>()
    };
    views.into_iter().flat_map(splits).collect()
}

/// A huge page that may be split, with its rank.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    priority: Priority,
    class: i64,
    /// Freed pages per cost, in any unit; valid if a process was sampled.
    worth: f64,
    /// Rank within a process and class, higher first; then by address.
    within: u32,
    split: Split,
}

#[cfg(test)]
mod tests;
