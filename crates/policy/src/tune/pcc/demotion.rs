//! Demotion by `pcc`: promoted regions that give up their huge pages for candidates (section
//! 3.3.3).
//!
//! A huge page that still walks much saves little. Its saving is what the region stalled before its
//! promotion, less what it stalls now, as shares of all samples at both times. A candidate would
//! save what promoted regions of its process save on average. So both sides are valued alike.
//!
//! A region that walks more than before its promotion is used more by the program, which shows
//! nothing of its huge page.

use std::collections::BTreeMap;

use hugepilot_record::{Snapshot, Window};
use hugepilot_units::{Nanos, Region};

use super::super::State;
use super::super::interval::{Interval, Ranked};
use super::PccRules;

/// Stalls on the huge page over those before the promotion from which the region still walks much.
const STILL_WALKS: f64 = 0.5;
/// Saving of a candidate over that of a promoted region from which they change places.
const EXCHANGE: f64 = 2.0;
/// Observations in a row without a use after which a region is cold.
const COLD_OBSERVATIONS: u32 = 2;
/// Samples to which stalls refer.
const MILLION: f64 = 1e6;

/// A promoted region, by the place of its process. Stalls are those in a million samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promoted {
    process: usize,
    region: Region,
    before: f64,
    now: f64,
    is_cold: bool,
    /// Whether its samples are from after its promotion.
    is_old: bool,
}

impl Promoted {
    fn saving(&self) -> f64 {
        (self.before - self.now).max(0.0)
    }

    fn still_walks(&self) -> bool {
        self.is_old && self.now >= STILL_WALKS * self.before && self.now <= self.before
    }
}

/// Stalls in a million samples of `window`.
fn rate(window: &Window, stalls: u32) -> f64 {
    f64::from(stalls) * MILLION / window.samples.max(1) as f64
}

impl PccRules {
    /// Notes the stalls of the regions that this interval promotes, and the observations without a
    /// use of those promoted before.
    pub(super) fn note(&self, snapshot: &Snapshot, interval: &Interval<'_>, state: &mut State) {
        for (index, process) in snapshot.processes.iter().enumerate() {
            let (window, past) = (&process.window, state.of_mut(&process.id));
            for region in interval.promoted(index).filter(|_| self.demote) {
                let stalls = rate(window, window.of(region));
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let before = stalls as u64;
                past.regions.entry(region).or_default().before = before;
            }
            let accessed = window.accessed.as_ref().filter(|_| self.demote_cold);
            for (region, tried) in &mut past.regions {
                let is_unused = accessed.is_some_and(|accessed| !accessed.contains(region));
                let unused = tried.promoted.filter(|_| is_unused).map(|_| tried.unused + 1);
                tried.unused = unused.unwrap_or(0);
            }
        }
    }

    /// Demotes promoted regions for `refused` candidates, which get the huge pages in the next
    /// interval: until then the budget holds whatever fails. Those that walk most are first, then
    /// cold ones.
    pub(super) fn demote(
        &self,
        refused: &[Ranked],
        snapshot: &Snapshot,
        promoted: &[Promoted],
        interval: &mut Interval<'_>,
    ) {
        let saved = saved_shares(promoted);
        let (mut walking, rest): (Vec<&Promoted>, Vec<_>) =
            promoted.iter().partition(|one| self.demote && one.still_walks());
        walking.sort_by(|a, b| b.now.total_cmp(&a.now).then(a.region.cmp(&b.region)));
        let mut walking = walking.into_iter().peekable();
        let mut cold = rest.into_iter().filter(|one| one.is_cold);
        for &(process, candidate) in refused.iter().take(self.promotions) {
            let share = saved.get(&process).copied().unwrap_or(0.0);
            let saving = share * rate(&snapshot.processes[process].window, candidate.stalls);
            // One stall in a million is the least that a saving has.
            let pays = |one: &&Promoted| saving >= EXCHANGE * one.saving().max(1.0);
            let Some(one) = walking.next_if(pays).or_else(|| cold.next()) else { break };
            interval.demote(one.process, one.region);
        }
    }
}

/// Share of the stalls before their promotion that the huge pages of each process save.
fn saved_shares(promoted: &[Promoted]) -> BTreeMap<usize, f64> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for one in promoted.iter().filter(|one| one.is_old) {
        let (saved, before) = sums.entry(one.process).or_default();
        (*saved, *before) = (*saved + one.saving(), *before + one.before);
    }
    sums.into_iter().map(|(process, (saved, before))| (process, saved / before)).collect()
}

/// Regions that this policy promoted. Two intervals after the promotion, and two lengths at which a
/// window fades, the stalls from before hardly count.
pub(super) fn promoted(snapshot: &Snapshot, state: &mut State, interval: Nanos) -> Vec<Promoted> {
    let least = (interval + interval).max(Window::MAX_LENGTH + Window::MAX_LENGTH);
    let mut all = Vec::new();
    for (process, seen) in snapshot.processes.iter().enumerate() {
        let past = state.of_mut(&seen.id);
        all.extend(past.regions.iter().filter_map(|(&region, past)| {
            let age = snapshot.time - past.promoted?;
            let now = rate(&seen.window, seen.window.of(region));
            let is_cold = past.unused >= COLD_OBSERVATIONS && age >= interval + interval;
            let is_old = age >= least && past.before > 0;
            Some(Promoted { process, region, before: past.before as f64, now, is_cold, is_old })
        }));
    }
    all
}
