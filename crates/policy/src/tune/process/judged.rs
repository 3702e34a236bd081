//! Whether a trial of a process is possible.

use hugepilot_reports::tune::NoTrial;
use hugepilot_units::{Bytes, Region};

use super::ProcessRound;
use crate::trial::{StallShares, assign};
use crate::tune::pairs::{CountedPair, with_stalls};
use crate::tune::{AddedMemory, Candidates};

/// Pairs that a trial requires if a limit excluded others. Fewer leave most verdicts open, and an
/// open trial returns regions that a budget was meant for.
const LIMITED_PAIRS: u64 = 64;

/// Pairs for which huge pages must be free: some have no samples, and 20 with samples are required.
const LEAST_PAIRS: usize = 24;

/// Candidates, and whether a trial of them is possible.
pub(super) struct Judged {
    pub(super) candidates: Candidates,
    pub(super) pairs: Vec<CountedPair>,
    pub(super) shares: StallShares,
    /// Cause if none is.
    pub(super) checked: Result<(), NoTrial>,
}

impl Judged {
    /// Whether a longer observation would hardly decide otherwise. A few hot regions may be those
    /// of a short phase.
    pub(super) const fn is_clear(&self) -> bool {
        matches!(self.checked, Ok(()) | Err(NoTrial::PointerChases { .. }))
    }
}

impl ProcessRound<'_> {
    /// Judges by the samples of [`Self::window`] whether a trial is possible.
    pub(super) fn judge(&self) -> Judged {
        let candidates = self.find();
        let (pairs, is_limited) = self.pairs(&candidates);
        let shares = self.shares(&candidates, &pairs);
        let counted = with_stalls(&pairs);
        let free = self.free_huge_pages();
        let checked = if free < 2 * LEAST_PAIRS {
            // A trial would give scarce huge pages to colder regions, and prove nothing.
            let required = LEAST_PAIRS as u64;
            Err(NoTrial::FewPairs { pairs: free as u64 / 2, required, limited: true })
        } else if is_limited && counted < LIMITED_PAIRS {
            Err(NoTrial::FewPairs { pairs: counted, required: LIMITED_PAIRS, limited: true })
        } else if self.window.samples > 0 && self.window.cpu.is_none() {
            Err(NoTrial::NoClock)
        } else {
            self.goal.trial.check(shares, counted)
        };
        Judged { candidates, pairs, shares, checked }
    }

    /// Pairs of the hottest candidates, with their stalls before the trial. Both regions of each
    /// pair fit into the limits: otherwise the trial would spend a budget on the colder half.
    /// Also returns whether the limits excluded a candidate.
    fn pairs(&self, candidates: &Candidates) -> (Vec<CountedPair>, bool) {
        let mut allowance = self.moment.allowance.of_all_rounds();
        let wanted: Vec<(Region, f64)> = candidates
            .regions
            .iter()
            // A trial adds no memory: its promotions may be demoted.
            .filter(|candidate| candidate.added.total == Bytes::ZERO)
            .take(self.most_in_trial())
            .map(|candidate| (candidate.region, candidate.heat))
            .collect();
        let fits =
            |_: &&(Region, f64)| allowance.take(&self.seen.memory, AddedMemory::default()).is_ok();
        let hottest: Vec<(Region, f64)> = wanted.iter().take_while(fits).copied().collect();
        let is_limited = hottest.len() < wanted.len();
        let stalls = |region| self.window.stalls.get(&region).copied().unwrap_or(0);
        let pairs = assign(&hottest, self.goal.seed)
            .into_iter()
            .map(|pair| (pair, [stalls(pair.promoted), stalls(pair.control)]))
            .collect();
        (pairs, is_limited)
    }

    /// Regions of a trial at most. Both of each pair get a free huge page in the end, so that the
    /// trial does not use up those that the hottest regions need.
    fn most_in_trial(&self) -> usize {
        self.free_huge_pages().min(2 * self.goal.trial.max_pairs)
    }

    /// Free huge pages. Compaction may make more.
    fn free_huge_pages(&self) -> usize {
        let memory = &self.seen.memory;
        let free = memory.headroom.free_huge.get() / memory.sizes.huge.get();
        usize::try_from(free).unwrap_or(usize::MAX)
    }

    #[allow(clippy::cast_precision_loss)]
    pub(super) fn shares(&self, candidates: &Candidates, pairs: &[CountedPair]) -> StallShares {
        let window = &self.window;
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let of_pair = |counts: &[u32; 2]| u64::from(counts[0]) + u64::from(counts[1]);
        let all: u64 = pairs.iter().map(|(_, counts)| of_pair(counts)).sum();
        let hottest = pairs.iter().map(|(_, counts)| of_pair(counts)).max().unwrap_or(0);
        StallShares {
            eligible: share(candidates.stalls(), window.samples),
            unknown: share(window.unknown, window.samples),
            chased: share(window.chased(), window.chased() + window.stalled()),
            hottest_pair: share(hottest, all),
        }
    }
}
