//! Exchange: once the budget is spent, or no huge page is free, huge pages of cold regions go to
//! hotter ones (demotion for promotion: MICRO'23, section 3.3.3). If none is free, cold regions are
//! also those that the kernel promoted without a request of the program: their base pages can move,
//! so that the kernel can make a free huge page again.
//!
//! Among many equal regions, some always look hot and some cold. So a round only nominates: wishes
//! without a huge page, and regions on huge pages that seem to save less. The samples after that,
//! in new windows, decide. Choosing the extremes does not bias them.
//!
//! Both sides count as on base pages: a stall on a huge page stands for more, by the lower bound of
//! the trial's ratio. Without a trial that is [`LEAST_RATIO`]. An exchange must save
//! [`EXCHANGE`] times as much beside its own cost, at a chance of error of [`CHANCE`]
//! ([`rate_exceeds`]). The pairs are judged together, or in halves where these differ: a region has
//! too few samples of its own.

use hugepilot_record::{Pid, Window};
use hugepilot_stats::rate_exceeds;
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use super::process::{ProcessRound, Wish};

/// Stall time on huge pages over that on base pages, without a trial and a calibration.
pub(super) const USUAL_RATIO: f64 = 0.7;
/// Least such ratio that is to be expected: random updates had 0.29.
pub(super) const LEAST_RATIO: f64 = 0.2;
/// Saving of a wish over that of a promoted region from which they change places. The ratio of a
/// trial is true of its time and load only.
const EXCHANGE: f64 = 1.5;
/// Chance that an exchange saves less than that.
const CHANCE: f64 = 1e-6;
/// The same for the colder half of the pairs that are exchanged together.
const CHANCE_OF_HALF: f64 = 0.01;

/// Pairs that may change places, on trial by samples since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Contest {
    /// Time of the nomination.
    since: Nanos,
    /// Pairs, in the order of their nomination: the largest difference first.
    pairs: Vec<Rivals>,
    /// Whether the huge pages of colder regions were freed, and the wishes follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_won: bool,
}

/// A region without a huge page, and a promoted one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Rivals {
    wish: (Pid, Region),
    promoted: (Pid, Region),
}

/// Part of a process in a contest.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contested {
    /// A new window begins.
    Begins,
    /// Its window goes on.
    GoesOn,
}

/// Samples of a pair since its nomination.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Stalls on the wish, and on the promoted region.
    stalls: [u64; 2],
    /// Stalls on the wish whose saving the exchange costs.
    cost: f64,
    /// Stalls on the wish that must come with one on the promoted region.
    odds: f64,
    promoted: (usize, Region),
}

/// Decides a contest: demotes the colder regions, waits, or ends it. Without one, nominates at most
/// `limit` pairs for the next. The wishes get the huge pages in the next round: until then the
/// budget holds whatever fails.
pub(super) fn exchange(
    rounds: &mut [ProcessRound<'_>],
    refused: &[(usize, Wish)],
    contest: Option<Contest>,
    limit: usize,
) -> Option<Contest> {
    let now = rounds.first()?.time();
    if rounds.iter().any(ProcessRound::is_in_trial) {
        return None;
    }
    let nominated = Contest { since: now, pairs: nominate(rounds, refused, limit), is_won: false };
    let Some(contest) = contest else { return nominated.begin(rounds) };
    let is_over = now - contest.since >= Window::MAX_LENGTH;
    let Some(pairs) = contest.count(rounds) else {
        // A process ended, restarted, or is not due yet.
        return contest.go_on(rounds, is_over);
    };
    if contest.is_won {
        return nominated.begin(rounds);
    }
    let mut proven = prove(&pairs, chance(pairs.len()));
    proven.truncate(refused.len());
    if !proven.is_empty() {
        for pair in &proven {
            let (index, region) = pair.promoted;
            rounds[index].decision.demote.push(region);
        }
        // The wishes follow at once, by the same samples.
        rounds.iter_mut().filter(|round| contest.has(round)).for_each(|round| round.is_cut = true);
        return Some(Contest { is_won: true, ..contest });
    }
    // New windows show more than those of an earlier phase did.
    if nominated.pairs.len() >= 2 * contest.pairs.len() {
        return nominated.begin(rounds);
    }
    contest.go_on(rounds, is_over || refused.is_empty())
}

/// Chance of error of each test of this number of pairs.
#[allow(clippy::cast_precision_loss)]
fn chance(pairs: usize) -> f64 {
    CHANCE / (2 * pairs.max(1)) as f64
}

/// Pairs the largest refused wishes with the coldest promoted regions, as far as these seem to save
/// less than [`EXCHANGE`] requires.
fn nominate(rounds: &[ProcessRound<'_>], refused: &[(usize, Wish)], limit: usize) -> Vec<Rivals> {
    let mut promoted: Vec<(usize, Region, f64)> = Vec::new();
    for (index, round) in rounds.iter().enumerate() {
        promoted.extend(round.exchangeable().map(|(region, saving)| (index, region, saving)));
    }
    promoted.sort_by(|a, b| a.2.total_cmp(&b.2));
    let wishes = refused.iter().filter(|(index, _)| rounds[*index].is_watching());
    let pays = |&(&(index, wish), (_, _, saving)): &(&(usize, Wish), (usize, Region, f64))| {
        wish.saving >= EXCHANGE * saving + rounds[index].exchange_cost()
    };
    let pid = |index: usize| rounds[index].seen.id.pid;
    wishes
        .zip(promoted)
        .take_while(pays)
        .take(limit)
        .map(|(&(of_wish, wish), (of_promoted, region, _))| Rivals {
            wish: (pid(of_wish), wish.candidate.region),
            promoted: (pid(of_promoted), region),
        })
        .collect()
}

impl Contest {
    /// Begins the windows of its processes; `None` without a pair.
    fn begin(self, rounds: &mut [ProcessRound<'_>]) -> Option<Self> {
        self.mark(rounds, Contested::Begins);
        (!self.pairs.is_empty()).then_some(self)
    }

    /// Goes on with the windows of its processes, unless it is over: it was a draw.
    fn go_on(self, rounds: &mut [ProcessRound<'_>], is_over: bool) -> Option<Self> {
        if is_over {
            return None;
        }
        self.mark(rounds, Contested::GoesOn);
        Some(self)
    }

    /// Whether a process takes part.
    fn has(&self, round: &ProcessRound<'_>) -> bool {
        self.is_of(round.seen.id.pid)
    }

    pub(super) fn is_of(&self, pid: Pid) -> bool {
        self.pairs.iter().any(|pair| pair.wish.0 == pid || pair.promoted.0 == pid)
    }

    /// Whether regions of a process follow those that were demoted for them.
    pub(super) fn is_won_by(&self, pid: Pid) -> bool {
        self.is_won && self.is_of(pid)
    }

    fn mark(&self, rounds: &mut [ProcessRound<'_>], contested: Contested) {
        for round in rounds.iter_mut().filter(|round| self.has(round)) {
            round.contested = Some(contested);
        }
    }

    /// Counts the stalls since the nomination on the pairs whose promoted region still is huge;
    /// `None` if a process is not in this round, or its window is older.
    fn count(&self, rounds: &[ProcessRound<'_>]) -> Option<Vec<Counted>> {
        let place = |pid: Pid| rounds.iter().position(|round| round.seen.id.pid == pid);
        let mut counted = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            let (of_wish, of_promoted) = (place(pair.wish.0)?, place(pair.promoted.0)?);
            let (wish, promoted) = (&rounds[of_wish], &rounds[of_promoted]);
            let stalls = [
                wish.stalls_since(pair.wish.1, self.since)?,
                promoted.stalls_since(pair.promoted.1, self.since)?,
            ];
            if promoted.is_exchangeable(pair.promoted.1) {
                let cost = wish.exchange_cost() / wish.worth_of_wish();
                let odds = EXCHANGE * promoted.worth_of_promoted() / wish.worth_of_wish();
                let promoted = (of_promoted, pair.promoted.1);
                counted.push(Counted { stalls, cost, odds, promoted });
            }
        }
        Some(counted)
    }
}

/// Pairs of which the samples show that they should change places: all, or those of a half.
fn prove(pairs: &[Counted], chance: f64) -> Vec<Counted> {
    let (hotter, colder) = pairs.split_at(pairs.len().div_ceil(2));
    let is_alike = colder.is_empty() || saves(colder, CHANCE_OF_HALF);
    if is_alike && saves(pairs, chance) {
        return pairs.to_vec();
    }
    if colder.is_empty() {
        return Vec::new();
    }
    [prove(hotter, chance), prove(colder, chance)].concat()
}

/// Whether the wishes together save more than [`EXCHANGE`] times as much as the promoted regions
/// and the exchange costs, with this chance of error.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn saves(pairs: &[Counted], chance: f64) -> bool {
    let sum = |side: usize| -> u64 { pairs.iter().map(|pair| pair.stalls[side]).sum() };
    let cost: f64 = pairs.iter().map(|pair| pair.cost).sum();
    let odds = pairs.iter().map(|pair| pair.odds).fold(0.0, f64::max);
    rate_exceeds(sum(0).saturating_sub(cost.ceil() as u64), sum(1), odds, chance)
}

#[cfg(test)]
mod tests {
    use hugepilot_testkit::Rng;

    use super::*;

    /// Pairs with these mean stalls on the wish and the promoted region, at odds of 4.
    fn pairs(rng: &mut Rng, means: &[(usize, [f64; 2])]) -> Vec<Counted> {
        let means = means.iter().flat_map(|&(count, means)| vec![means; count]);
        let counted = |(place, means): (u64, [f64; 2])| Counted {
            stalls: means.map(|mean| u64::from(rng.poisson(mean))),
            cost: 0.1,
            odds: 4.0,
            promoted: (0, Region::new(place)),
        };
        (0..).zip(means).map(counted).collect()
    }

    #[test]
    fn regions_at_the_limit_are_never_exchanged() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let heat = 10.0_f64.powf(3.0 * rng.unit() - 1.0);
            let count = 1 + (rng.bits() % 200) as usize;
            let pairs = pairs(&mut rng, &[(count, [4.0 * heat, heat])]);
            assert!(prove(&pairs, CHANCE / count as f64).is_empty(), "seed {seed}");
        }
    }

    /// Many pairs prove together what none does alone.
    #[test]
    fn few_samples_of_many_pairs_suffice() {
        let mut rng = Rng::new(1);
        let pairs = pairs(&mut rng, &[(200, [3.0, 0.1])]);
        assert_eq!(prove(&pairs, 1e-8).len(), 200);
        assert!(pairs.iter().all(|pair| prove(&[*pair], 1e-8).is_empty()));
    }

    /// Equal regions beside hot ones stay: the evidence is that of the hot ones.
    #[test]
    fn hot_pairs_do_not_take_equal_ones_with_them() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let pairs = pairs(&mut rng, &[(12, [80.0, 1.0]), (116, [2.0, 1.0])]);
            let proven = prove(&pairs, 1e-8);
            let equal = proven.iter().filter(|pair| pair.promoted.1.get() >= 12).count();
            assert!(proven.len() - equal >= 11 && equal <= 4, "seed {seed}: {equal} equal ones");
        }
    }

    #[test]
    fn an_exchange_is_paid_for() {
        let mut pairs = pairs(&mut Rng::new(2), &[(50, [10.0, 0.0])]);
        assert_eq!(prove(&pairs, 1e-8).len(), 50);
        pairs.iter_mut().for_each(|pair| pair.cost = 20.0);
        assert!(prove(&pairs, 1e-8).is_empty());
    }
}
