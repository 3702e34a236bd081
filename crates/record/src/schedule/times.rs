//! Contradictions between the times of a schedule.
//!
//! An event may state its time in several units, and the header may relate them. Times that are
//! written by hand or rounded differ a little.

use std::collections::BTreeSet;

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

/// Shares and seconds of the events that state both, as bits: those of numbers from 0 are in their
/// order.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(BTreeSet<(u64, u64)>);

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
        let time = ((share + 0.0).to_bits(), (seconds + 0.0).to_bits());
        let seconds_of = |&(_, bits): &(u64, u64)| f64::from_bits(bits);
        let before = self.0.range(..time).next_back().map(seconds_of);
        let after = self.0.range(time..).next().map(seconds_of);
        let is_late = |other: f64| other > seconds && !are_alike(other, seconds, header.seconds);
        let is_early = |other: f64| other < seconds && !are_alike(other, seconds, header.seconds);
        if before.is_some_and(is_late) || after.is_some_and(is_early) {
            let problem = "expected the same order of events by share and by seconds";
            return Err(ScheduleProblem::new("at", shown(at), problem));
        }
        self.0.insert(time);
        Ok(())
    }
}
