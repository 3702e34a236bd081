//! Interleaved rounds: each measures every variant once, in an order that favours none of them.
//!
//! The speed of a shared machine drifts: clocks change, other virtual machines run, memory
//! fragments. So variants are compared only within a round.

use crate::{Ratios, SplitMix64};

/// Orders of variants, one for each round, endless.
#[derive(Clone, Debug)]
pub struct Orders {
    variants: usize,
    choice: Choice,
}

#[derive(Clone, Debug)]
enum Choice {
    /// First variant of the next round.
    Rotated(usize),
    Random(SplitMix64),
}

impl Orders {
    /// Each round starts with the next variant: A B B A A B … of two, which cancels a steady drift.
    pub const fn rotated(variants: usize) -> Self {
        Self { variants, choice: Choice::Rotated(0) }
    }

    /// All orders are equally likely, and the same for the same `seed`. Suits many short rounds:
    /// the period of a drift may match a rotation.
    pub const fn random(variants: usize, seed: u64) -> Self {
        Self { variants, choice: Choice::Random(SplitMix64::new(seed)) }
    }
}

impl Iterator for Orders {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.variants).collect();
        match &mut self.choice {
            Choice::Rotated(first) => {
                order.rotate_left(*first);
                *first = (*first + 1) % self.variants.max(1);
            }
            Choice::Random(random) => {
                // Fisher and Yates.
                for last in (1..order.len()).rev() {
                    let other = random.bits() % (last as u64 + 1);
                    #[allow(clippy::cast_possible_truncation)]
                    order.swap(last, other as usize);
                }
            }
        }
        Some(order)
    }
}

/// Measures each variant once, in `order`. Returns the measurements by variant.
///
/// # Errors
/// The first error of `one`.
pub fn in_order<T, E>(
    order: Vec<usize>,
    mut one: impl FnMut(usize) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let measured = order.into_iter().map(|variant| Ok((variant, one(variant)?)));
    let mut measured = measured.collect::<Result<Vec<_>, E>>()?;
    measured.sort_by_key(|(variant, _)| *variant);
    Ok(measured.into_iter().map(|(_, value)| value).collect())
}

/// Measurements of each variant, round by round.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds<T>(Vec<Vec<T>>);

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> FromIterator<Vec<T>> for Rounds<T> {
    fn from_iter<I: IntoIterator<Item = Vec<T>>>(rounds: I) -> Self {
        Self(rounds.into_iter().collect())
    }
}

impl<T> Rounds<T> {
    /// Measures `variants` in `count` rotated rounds, after one that is discarded, because it warms
    /// caches up. `one` gets the numbers of the round, 0 for the discarded one, and of the variant.
    ///
    /// # Errors
    /// The first error of `one`.
    pub fn after_warm_up<E>(
        variants: usize,
        count: usize,
        mut one: impl FnMut(usize, usize) -> Result<T, E>,
    ) -> Result<Self, E> {
        let mut rounds = Self::default();
        for (round, order) in (0..=count).zip(Orders::rotated(variants)) {
            rounds.measure(order, |variant| one(round, variant))?;
        }
        rounds.0.remove(0);
        Ok(rounds)
    }

    /// Adds a round in `order`. One with an error does not count.
    ///
    /// # Errors
    /// The first error of `one`.
    pub fn measure<E>(
        &mut self,
        order: Vec<usize>,
        one: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<(), E> {
        self.push(in_order(order, one)?);
        Ok(())
    }

    /// Adds a round, measured by variant.
    pub fn push(&mut self, round: Vec<T>) {
        self.0.push(round);
    }

    /// Adds the rounds of `other`, of the same variants.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Number of rounds.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Measurements of one variant, in order of the rounds.
    pub fn of(&self, variant: usize) -> impl Iterator<Item = &T> {
        self.0.iter().map(move |round| &round[variant])
    }

    /// A part of each measurement.
    pub fn map<U>(&self, part: impl Fn(&T) -> U) -> Rounds<U> {
        self.0.iter().map(|round| round.iter().map(&part).collect()).collect()
    }
}

impl Rounds<f64> {
    /// Rounds in which each variant has a measurement above zero.
    #[must_use]
    pub fn positive(&self) -> Self {
        let is_positive = |round: &&Vec<f64>| round.iter().all(|&value| value > 0.0);
        self.0.iter().filter(is_positive).cloned().collect()
    }

    /// Median of one variant; not a number without rounds.
    pub fn median(&self, variant: usize) -> f64 {
        crate::median(self.of(variant).copied()).unwrap_or(f64::NAN)
    }

    /// Ratios of `this` variant over another, within each round.
    pub fn ratios(&self, this: usize, over: usize) -> Ratios {
        Ratios::of(self.0.iter().map(|round| round[this] / round[over]))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_variant_is_first_in_some_round_and_comes_once_in_each() {
        for variants in 1..6 {
            let all: Vec<usize> = (0..variants).collect();
            let sorted = |mut of: Vec<usize>| {
                of.sort_unstable();
                of
            };
            let rounds: Vec<_> = Orders::rotated(variants).take(variants).collect();
            assert_eq!(sorted(rounds.iter().map(|round| round[0]).collect()), all);
            for round in rounds.into_iter().chain(Orders::random(variants, 7).take(9)) {
                assert_eq!(sorted(round), all);
            }
        }
        assert_eq!(Orders::rotated(0).next(), Some(Vec::new()));
    }

    #[test]
    fn each_random_order_comes_about_equally_often_and_repeats_with_its_seed() {
        let mut counts = BTreeMap::new();
        for order in Orders::random(3, 1).take(6000) {
            *counts.entry(order).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
        // Seeds that follow each other have no order in common.
        let first = |seed| Orders::random(9, seed).next();
        assert!(first(1) == first(1) && first(1) != first(2));
    }

    #[test]
    fn the_first_round_is_dropped_and_each_measurement_stays_with_its_variant() {
        let mut order = String::new();
        let rounds = Rounds::after_warm_up(2, 3, |round, variant| {
            order.push(['a', 'b'][variant]);
            Ok::<_, ()>(if round == 0 { 1000.0 } else { [2.0, 1.0][variant] })
        });
        assert_eq!(order, "abbaabba");
        assert_eq!(rounds, Ok(Rounds::from_iter([[2.0, 1.0]; 3].map(Vec::from))));
    }

    #[test]
    fn a_round_with_an_error_does_not_count() {
        let mut rounds = Rounds::from_iter([vec![3.0, 1.0]]);
        let failed =
            rounds.measure(vec![1, 0], |variant| (variant == 1).then_some(2.0).ok_or("no"));
        assert_eq!((failed, rounds.count()), (Err("no"), 1));
        assert_eq!(
            rounds.measure(vec![1, 0], |variant| [Ok(4.0), Err("no")][1 - variant]),
            Err("no")
        );
    }

    #[test]
    fn the_ratio_is_taken_within_each_round() {
        // The machine becomes 10 times slower half-way; the second takes half as long throughout.
        let rounds = [[2.0, 1.0], [2.0, 1.2], [20.0, 10.0], [20.0, 9.0], [0.0, 9.0]];
        let rounds = Rounds::from_iter(rounds.map(Vec::from)).positive();
        let spread = rounds.ratios(1, 0).spread().unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (0.5, 0.45, 0.6));
        assert_eq!((rounds.count(), rounds.median(0)), (4, 11.0));
        let mut doubled = rounds.map(|value| value * 2.0);
        doubled.append(rounds);
        assert_eq!((doubled.count(), doubled.median(0)), (8, 12.0));
        assert!(Rounds::default().median(0).is_nan());
    }
}
