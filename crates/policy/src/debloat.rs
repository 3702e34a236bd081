//! Which huge pages to split so that their zero-filled base pages come back, and in what order.
//!
//! Every order is two steps. A *class* for each huge page says how soon it goes, higher first: that is the order's idea of
//! cost and gain. Then processes that have pages in the same class share it fairly. HawkEye, EMD and ours differ only in
//! the class:
//!
//! | order | class | from |
//! |---|---|---|
//! | `hawkeye` | none: address order, process by process | HawkEye (ASPLOS'19), as in EMD section 3 |
//! | `emd` | one of ten buckets of bloat density | EMD (ISMM'25), sections 4.2 and 4.3 |
//! | `exact` | the density itself | the ideal that EMD section 4.2 approximates |
//! | `heat` | freed bytes per lost time, alike within a factor of two | ours |
//!
//! A plan lists everything that could be split. Whoever works through it stops when enough is freed; so a process that
//! gives less than the census promised is made up for by the next in line.

mod fairness;
mod order;
mod stall;

use std::collections::BTreeMap;

use hugepilot_record::{Census, SkipReason, Split, SplitPlan};
use hugepilot_units::{Region, Share};

pub use fairness::Fairness;
pub use order::Order;

/// Whether a process is asked first, like all others, or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// All that it can give is taken before anything of the others.
    Preferred,
    /// Like all others.
    #[default]
    Normal,
    /// Left alone.
    Protected,
}

/// One process, as the policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct DebloatView<'a> {
    /// Its huge pages.
    pub census: &'a Census,
    /// Stall samples on its regions that a huge page helps; `None` where nobody looked. All views were observed for the
    /// same time.
    pub stalls: Option<&'a BTreeMap<Region, u32>>,
    /// How the user wants it treated.
    pub priority: Priority,
    /// Its weight, where shares go by weight: twice the weight gives twice the bytes.
    pub weight: f64,
}

/// The policy and its knobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DebloatPolicy {
    /// The order.
    pub order: Order,
    /// How processes share.
    pub fairness: Fairness,
    /// Huge pages taken from one process before it is the next one's turn.
    pub quantum: usize,
    /// Huge pages with a smaller part zero-filled are worth more than what they would free.
    pub min_bloat: Share,
}

impl DebloatPolicy {
    /// `order` with the knobs that suit it.
    pub fn new(order: Order) -> Self {
        Self {
            order,
            fairness: order.fairness(),
            quantum: order.quantum(),
            // HawkEye and EMD take a huge page with a single zero page as well.
            min_bloat: if order.is_of_the_paper() {
                Share::percent(0.0)
            } else {
                Share::percent(5.0)
            },
        }
    }

    /// Whether huge pages with a bloat of less than 5 % matter, so that a census may not overlook any.
    pub fn needs_exact_census(&self) -> bool {
        self.min_bloat < Share::percent(5.0)
    }

    /// Everything that could be split, best first. Costs a sort of all huge pages.
    pub fn plan(&self, views: &[DebloatView<'_>]) -> SplitPlan {
        let mut plan = SplitPlan::default();
        let mut candidates = Vec::new();
        // One that was not sampled beside others that were is taken to be cold: else its cost would be in another unit.
        let (cold, looked) = (BTreeMap::new(), views.iter().any(|view| view.stalls.is_some()));
        for (process, view) in views.iter().enumerate() {
            for (&reason, &count) in &view.census.skipped {
                *plan.skipped.entry(reason).or_insert(0) += count;
            }
            if view.priority == Priority::Protected {
                *plan.skipped.entry(SkipReason::Protected).or_insert(0) +=
                    view.census.bloated.len() as u64;
                continue;
            }
            let view = DebloatView { stalls: view.stalls.or(looked.then_some(&cold)), ..*view };
            candidates.extend(self.candidates(process, &view, &mut plan));
        }
        if self.order.needs_heat() && looked {
            order::by_worth(&mut candidates);
        }
        plan.splits = fairness::shared(candidates, views, self.fairness, self.quantum);
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
                    // Without samples nothing is known, and a guess must not be shown as a figure.
                    stalls: if view.stalls.is_some() { stalls } else { 0.0 },
                },
            });
        }
        candidates
    }
}

/// A huge page that may be split, and how soon.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    priority: Priority,
    class: i64,
    /// Freed pages per cost, in any unit: known where somebody looked.
    worth: f64,
    /// Within a process and class, higher first; then by address.
    within: u32,
    split: Split,
}

#[cfg(test)]
mod tests;
