//! Round of a trial whose pages were read too early for a verdict.

use super::journal::{explain, journal, lines, tune};
use super::*;
use crate::explain::Shown;
use crate::journal::{JournalLimits, JournalReader};
use crate::round::Goal;

#[test]
fn a_reading_that_waits_for_its_pages_says_so() {
    let text = journal(12, 300, 1.0);
    let mut reader = JournalReader::new(&text[..], JournalLimits::default()).unwrap();
    let last = std::iter::from_fn(|| reader.next()).last().unwrap().unwrap();
    let Goal::Tune(goal) = reader.goal().clone() else { panic!("a tune") };
    let mut round = tune(last);
    let time = round.time;
    let mut reading = |read| {
        round.rows[0].seen.memory.time = read;
        let report = explain(&lines(&goal, &[round.again(&goal)]), Shown::default()).unwrap();
        report.shown[0].processes[0].trial.unwrap()
    };
    let (verdict, before) = (reading(time), reading(time - Nanos::new(1)));
    assert_eq!((verdict.verdict, verdict.rereads_pages), (Some(TrialVerdict::NoGain), false));
    assert_eq!((before.verdict, before.rereads_pages), (None, true));
    assert_eq!((before.ratio, before.samples), (verdict.ratio, verdict.samples));
}
