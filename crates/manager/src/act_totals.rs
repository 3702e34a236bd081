//! Sums over the acts of rounds.

use std::collections::BTreeMap;
use std::iter::Sum;

use hugepilot_policy::round::ProcessOutcome;
use hugepilot_units::Nanos;

/// Sums over the acts of rounds, in one process or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActTotals {
    /// Whether there was an act.
    pub(crate) has_acted: bool,
    /// Start of the first act.
    pub(crate) first: Option<Nanos>,
    /// End of the last act.
    pub(crate) last: Option<Nanos>,
    /// Time in promotion calls.
    pub(crate) promotion: Nanos,
    /// Time of the acts of all rounds that promoted.
    pub(crate) promoting: Nanos,
    /// Failures by errno name.
    pub(crate) failed: BTreeMap<String, u64>,
    /// Promotions that were verified, of a region each time.
    pub(crate) promotions: u64,
    /// Demotions that were verified.
    pub(crate) demotions: u64,
}

impl ActTotals {
    /// Adds a round.
    pub(crate) fn add(&mut self, outcome: &ProcessOutcome) {
        let attempts = &outcome.attempts;
        let has_promoted = !attempts.acts.is_empty();
        if has_promoted || !outcome.demotions.is_empty() {
            self.has_acted = true;
            self.first = self.first.or(outcome.begun);
            self.last = outcome.ended.or(self.last);
        }
        self.promotions += attempts.verified();
        self.demotions += outcome.demoted();
        self.promotion = self.promotion + attempts.took();
        if let (true, Some((begun, ended))) = (has_promoted, outcome.begun.zip(outcome.ended)) {
            self.promoting = self.promoting + (ended - begun);
        }
        self.add_failed(&attempts.failed());
    }

    fn add_failed(&mut self, failed: &BTreeMap<String, u64>) {
        for (errno, count) in failed {
            *self.failed.entry(errno.clone()).or_insert(0) += count;
        }
    }
}

impl<'a> Sum<&'a Self> for ActTotals {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.add_failed(&one.failed);
            Self {
                has_acted: sum.has_acted || one.has_acted,
                first: sum.first.into_iter().chain(one.first).min(),
                last: sum.last.max(one.last),
                promotion: sum.promotion + one.promotion,
                promoting: sum.promoting + one.promoting,
                failed: sum.failed,
                promotions: sum.promotions + one.promotions,
                demotions: sum.demotions + one.demotions,
            }
        })
    }
}
