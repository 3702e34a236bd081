//! Contradictions between the times of a schedule.
//!
//! An event may state its time in several units, and the header may relate them. Times that are
//! written by hand or rounded differ a little.

use std::collections::BTreeMap;

use super::{ScheduleHeader, ScheduleProblem, ScheduleTime};

/// Part of the run, or of the later time, by which two values of one time may differ.
const ALIKE: f64 = 0.05;
/// Seconds by which they may differ in any case.
const ALIKE_SECONDS: f64 = 0.1;

/// Returns whether two times in seconds are the same; `run`: duration of the whole run, if known.
fn are_alike(one: f64, other: f64, run: Option<f64>) -> bool {
    (one - other).abs() <= ALIKE_SECONDS + ALIKE * run.unwrap_or_else(|| one.max(other))
}

/// Tests that the accesses, their rate and the duration of a header are those of one run.
#[allow(clippy::cast_precision_loss)]
pub(super) fn check_header(header: &ScheduleHeader) -> Result<(), ScheduleProblem> {
    let ScheduleHeader { accesses, accesses_per_second, seconds, .. } = header;
    let rate = accesses_per_second.filter(|&rate| rate > 0.0);
    let (Some(all), Some(rate), Some(seconds)) = (accesses, rate, seconds) else { return Ok(()) };
    let expected = *all as f64 / rate;
    if are_alike(expected, *seconds, None) {
        return Ok(());
    }
    let problem = format!("expected about {expected:.3}: accesses over accesses_per_second");
    Err(ScheduleProblem::new("seconds", seconds, problem))
}

/// Tests that all units of `at` state the same time.
#[allow(clippy::cast_precision_loss)]
pub(super) fn check_units(
    header: &ScheduleHeader,
    at: &ScheduleTime,
) -> Result<(), ScheduleProblem> {
    if let (Some(own), Some(all)) = (at.seconds, header.seconds)
        && own > all
        && !are_alike(own, all, None)
    {
        let problem = format!("expected at most the {all} seconds of the header");
        return Err(ScheduleProblem::new("at.seconds", own, problem));
    }
    let part = |all: Option<f64>| all.filter(|&all| all > 0.0);
    let accesses = at.accesses.map(|accesses| accesses as f64);
    let of_accesses = accesses.zip(part(header.accesses.map(|all| all as f64)));
    let of_seconds = at.seconds.zip(part(header.seconds));
    let of = |(own, all): (f64, f64)| own / all;
    let shares = [at.share, of_accesses.map(of), of_seconds.map(of)];
    let least = shares.iter().flatten().fold(f64::INFINITY, |least, &one| least.min(one));
    let most = shares.iter().flatten().fold(0.0, |most: f64, &one| most.max(one));
    let by_rate = accesses.zip(part(header.accesses_per_second)).map(of);
    let has_rate = |(one, other)| are_alike(one, other, header.seconds);
    if most - least <= ALIKE && by_rate.zip(at.seconds).is_none_or(has_rate) {
        return Ok(());
    }
    let problem = "expected one time in all units, by the header";
    Err(ScheduleProblem::new("at", shown(at), problem))
}

/// Returns the time as the file has it.
pub(super) fn shown(at: &ScheduleTime) -> String {
    serde_json::to_string(at).unwrap_or_default()
}

/// Shares, as bits, and seconds of events that state both. Bits of numbers from 0 are in their
/// order.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// Events that are later by seconds than all before them by share.
    latest: BTreeMap<u64, f64>,
    /// Events that are earlier by seconds than all after them by share.
    earliest: BTreeMap<u64, f64>,
}

impl Times {
    /// Adds the time of an event.
    ///
    /// # Errors
    /// By seconds, it is before an event that it is after by share, or the other way round.
    pub(super) fn add(
        &mut self,
        header: &ScheduleHeader,
        at: &ScheduleTime,
    ) -> Result<(), ScheduleProblem> {
        let share = at.share.or_else(|| header.share_of(&ScheduleTime { seconds: None, ..*at }));
        let (Some(share), Some(seconds)) = (share, at.seconds) else { return Ok(()) };
        // Zero is added so that -0 is 0.
        let share = (share + 0.0).to_bits();
        // All events, not only the neighbours: many steps that are alike add up.
        let before = self.latest.range(..share).next_back();
        let after = self.earliest.range(share + 1..).next();
        let differs = |other: f64| !are_alike(other, seconds, header.seconds);
        let is_late = |(_, &other): (&u64, &f64)| other > seconds && differs(other);
        let is_early = |(_, &other): (&u64, &f64)| other < seconds && differs(other);
        if before.is_some_and(is_late) || after.is_some_and(is_early) {
            let problem = "expected the same order of events by share and by seconds";
            return Err(ScheduleProblem::new("at", shown(at), problem));
        }
        self.note(share, seconds);
        Ok(())
    }

    fn note(&mut self, share: u64, seconds: f64) {
        let Self { latest, earliest } = self;
        let before = latest.range(..=share).next_back();
        if before.is_none_or(|(_, &other)| other < seconds) {
            let passed = latest.range(share..).take_while(|(_, other)| **other <= seconds);
            let passed: Vec<u64> = passed.map(|(&share, _)| share).collect();
            passed.iter().for_each(|share| _ = latest.remove(share));
            latest.insert(share, seconds);
        }
        let after = earliest.range(share..).next();
        if after.is_none_or(|(_, &other)| other > seconds) {
            let passed = earliest.range(..=share).rev().take_while(|(_, other)| **other >= seconds);
            let passed: Vec<u64> = passed.map(|(&share, _)| share).collect();
            passed.iter().for_each(|share| _ = earliest.remove(share));
            earliest.insert(share, seconds);
        }
    }
}
