//! Journals: every decision is reproduced from its line, and a damaged line is an error.

use std::collections::BTreeMap;

use hugepilot_record::{Pid, PolicyName, RegionHeat};
use hugepilot_reports::explain::{ExplainReport, PhaseName, RegionChoice};
use proptest::prelude::*;
use serde::Serialize;

use super::*;
use crate::explain::{Explainer, Shown, ShownRegions};
use crate::journal::{JournalError, JournalLimits, JournalReader, JournalRound};
use crate::round::{Goal, Header, Round};
use crate::tune::{Cursor, Policy};

/// Lines of a tune in which huge pages gain, or do not.
pub(super) fn journal(seed: u64, regions: usize, ratio: f64) -> Vec<u8> {
    let goal = TuneGoal { enough_addresses: None, ..TuneGoal::default() };
    let mut program = Program::uniform(seed, regions);
    (program.ratio, program.rate, program.rounds) = (ratio, 4000.0, Some(Vec::new()));
    program.run(&goal, Nanos::seconds(15));
    lines(&goal, &program.rounds.unwrap())
}

pub(super) fn lines(goal: &TuneGoal, rounds: &[Round]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut line = |value: &dyn erased::Line| {
        text.extend(value.json());
        text.push(b'\n');
    };
    line(&Header::of(Goal::Tune(Box::new(goal.clone()))));
    rounds.iter().for_each(|round| line(round));
    text
}

/// Values of different types in one list.
mod erased {
    pub(super) trait Line {
        fn json(&self) -> Vec<u8>;
    }
    impl<T: super::Serialize> Line for T {
        fn json(&self) -> Vec<u8> {
            serde_json::to_vec(self).unwrap()
        }
    }
}

/// A round of a journal of a tune.
pub(super) fn tune(round: JournalRound) -> Round {
    let JournalRound::Tune(round) = round else { panic!("a tune") };
    *round
}

pub(super) fn explain(text: &[u8], shown: Shown) -> Result<ExplainReport, JournalError> {
    explain_since(text, shown, None)
}

fn explain_since(
    text: &[u8],
    shown: Shown,
    started: Option<Nanos>,
) -> Result<ExplainReport, JournalError> {
    let mut reader = JournalReader::new(text, JournalLimits::default())?;
    let mut explainer = Explainer::new(shown, started);
    while let Some(round) = reader.next() {
        explainer.add(reader.goal(), &round?);
    }
    Ok(explainer.finish(reader.cut_bytes()))
}

#[test]
fn times_of_rounds_count_from_the_start_of_the_recording() {
    let text = journal(11, 300, 0.5);
    let times = |started| -> Vec<f64> {
        let report = explain_since(&text, Shown::default(), started).unwrap();
        report.shown.iter().map(|round| round.seconds).collect()
    };
    let (alone, recorded) = (times(None), times(Some(Nanos::ZERO)));
    let mut reader = JournalReader::new(&text[..], JournalLimits::default()).unwrap();
    let first = tune(reader.next().unwrap().unwrap());
    let observed = (first.time - first.rows[0].seen.window.since).as_seconds();
    assert!(observed > 0.0 && alone[0] == observed, "{alone:?}: {observed} s were observed");
    assert!(recorded[0] > 0.0, "{recorded:?}");
    for (alone, later) in alone.iter().zip(&recorded) {
        assert!((later - alone - (recorded[0] - observed)).abs() < 1e-6);
    }
}

#[test]
fn each_decision_is_reproduced_from_its_line() {
    for (ratio, phases) in [
        (0.5, &[PhaseName::Observing, PhaseName::Trial, PhaseName::Spread, PhaseName::Check][..]),
        (1.0, &[PhaseName::Observing, PhaseName::Trial]),
    ] {
        let report = explain(&journal(11, 300, ratio), Shown::default()).unwrap();
        assert!(report.is_reproduced() && report.decisions > 5, "{report:?}");
        assert_eq!((report.rounds, report.cut_bytes), (report.decisions, 0));
        let seen: BTreeSet<String> =
            report.shown.iter().map(|one| format!("{:?}", one.processes[0].phase_before)).collect();
        assert!(phases.iter().all(|phase| seen.contains(&format!("{phase:?}"))), "{seen:?}");
    }
}

#[test]
fn decisions_of_every_policy_are_reproduced_and_explained() {
    for name in PolicyName::ALL {
        let Some(policy) = Policy::of(name) else { continue };
        let goal = TuneGoal {
            policy,
            budget: Some(Amount::Bytes(SIZES.huge.times(40))),
            max_added: Some(Share::percent(20.0)),
            ..TuneGoal::default()
        };
        let mut program = Program::uniform(21, 60);
        (program.rate, program.rounds) = (4000.0, Some(Vec::new()));
        program.resident = (0..60).map(|index| if index % 3 == 0 { 100 } else { 500 }).collect();
        program.sampled = (FIRST..FIRST + 60)
            .map(|number| RegionHeat {
                region: Region::new(number),
                samples: 300,
                streamed: 0,
                tlb_held: 0,
                sampled_pages: 200,
            })
            .collect();
        program.run(&goal, Nanos::seconds(40));
        let text = lines(&goal, &program.rounds.unwrap());
        let regions = Some(ShownRegions::At(Region::new(FIRST + 7).range(SIZES).start));
        let report = explain(&text, Shown { round: None, regions }).unwrap();
        assert!(report.is_reproduced() && report.decisions > 2, "{name}: {report:?}");
        let choices: Vec<RegionChoice> =
            report.shown.iter().map(|round| round.processes[0].regions[0].choice).collect();
        let promoted = choices.contains(&RegionChoice::Promote);
        // A trial takes 20 pairs; the region is in it by chance.
        assert!(promoted != (name == PolicyName::Never) || name == PolicyName::Heat, "{name}");
        assert_eq!(
            choices.iter().all(|choice| *choice == RegionChoice::NotJudged),
            name == PolicyName::Never,
            "{name}: {choices:?}"
        );
    }
}

/// The file is an input of tests of the command, too.
#[test]
fn the_journal_of_the_schema_is_unchanged() {
    let goal = TuneGoal {
        trial: TrialRules { min_pairs: 4, ..TrialRules::default() },
        enough_addresses: None,
        ..TuneGoal::default()
    };
    let mut program = Program::uniform(20, 12);
    (program.ratio, program.rate, program.rounds) = (0.5, 4000.0, Some(Vec::new()));
    program.pid = i32::MAX;
    program.fails = [Region::new(FIRST + 2)].into();
    program.run(&goal, Nanos::seconds(8));
    let text = lines(&goal, &program.rounds.unwrap());
    hugepilot_testkit::assert_golden("testdata/journal.ndjson", &String::from_utf8(text).unwrap());
}

#[test]
fn a_trial_shows_its_arms_its_ratio_and_its_verdict() {
    let text = journal(12, 300, 1.0);
    let regions = Some(ShownRegions::Acted);
    let report = explain(&text, Shown { round: None, regions }).unwrap();
    let processes: Vec<_> = report.shown.iter().map(|round| &round.processes[0]).collect();
    let first = processes[0];
    assert_eq!((first.promote.regions, first.outcome.verified_regions), (128, 128));
    assert_eq!((first.regions.len(), first.phase_after), (128, PhaseName::Trial));
    assert!(
        first.promote.stall_ratio.is_some_and(|ratio| (0.3..0.6).contains(&ratio)),
        "{:?}",
        first.promote
    );
    let last = processes.last().unwrap();
    let trial = last.trial.unwrap();
    assert_eq!(trial.verdict, Some(TrialVerdict::NoGain));
    assert!(trial.low_ratio < trial.ratio && trial.ratio < trial.high_ratio, "{trial:?}");
    assert_eq!((last.demote_regions, last.outcome.demoted_regions), (128, 128));
    let demoted = &last.regions[0];
    assert_eq!(
        (demoted.choice, demoted.outcome.as_deref()),
        (RegionChoice::Demote, Some("demoted"))
    );
    // Regions of the other arm: each explanation reads the whole journal.
    let choices: Vec<_> = (FIRST..FIRST + 256)
        .step_by(8)
        .map(|number| {
            let at = Some(ShownRegions::At(Region::new(number).range(SIZES).start));
            let shown = Shown { round: Some(1), regions: at };
            let report = explain(&text, shown).unwrap();
            report.shown[0].processes[0].regions[0].choice
        })
        .collect();
    let controls = choices.iter().filter(|&&choice| choice == RegionChoice::Control).count();
    assert!((8..=20).contains(&controls), "{controls} of {}", choices.len());
}

#[test]
fn shares_of_a_round_without_stalls_are_unknown() {
    let policy = Policy::of(PolicyName::All).unwrap();
    let goal = TuneGoal { policy, ..TuneGoal::default() };
    let mut program = Program::uniform(22, 60);
    program.rounds = Some(Vec::new());
    program.run(&goal, Nanos::seconds(5));
    let mut rounds = program.rounds.unwrap();
    for window in rounds.iter_mut().map(|round| &mut round.rows[0].seen.window) {
        (window.samples, window.stalls) = (0, BTreeMap::new());
    }
    let regions = Some(ShownRegions::Acted);
    let report = explain(&lines(&goal, &rounds), Shown { round: Some(1), regions }).unwrap();
    let first = &report.shown[0].processes[0];
    assert_eq!((first.promote.regions, first.promote.stall_ratio), (60, None));
    assert_eq!((first.regions[0].stalls, first.regions[0].stall_ratio), (0, None));
}

#[test]
fn an_interrupted_trial_without_a_reading_has_its_pairs() {
    let goal = TuneGoal { enough_addresses: None, ..TuneGoal::default() };
    let text = journal(12, 300, 1.0);
    let reader = JournalReader::new(&text[..], JournalLimits::default()).unwrap();
    let rounds = reader.map(|round| tune(round.unwrap()));
    let is_in_trial = |round: &Round| {
        let state = round.state.of(&round.rows[0].seen.id);
        matches!(state.map(|state| &state.phase), Some(TunePhase::Trial { .. }))
    };
    let round = rounds.into_iter().find(is_in_trial).unwrap();
    let trial = |has_stalls: bool| {
        let mut snapshot = round.snapshot();
        snapshot.interrupted = true;
        if !has_stalls {
            snapshot.processes[0].window.stalls.clear();
        }
        let after = goal.decide(&snapshot, &round.state).state;
        after.of(&snapshot.processes[0].id).unwrap().trial.unwrap()
    };
    assert_eq!((trial(false).estimate, trial(false).pairs), (None, Some(128)));
    assert_eq!((trial(true).estimate.unwrap().pairs, trial(true).pairs), (128, None));
}

#[test]
fn a_decision_that_differs_is_found() {
    let text = journal(13, 300, 0.5);
    let reader = JournalReader::new(&text[..], JournalLimits::default()).unwrap();
    let mut rounds: Vec<Round> = reader.map(|round| tune(round.unwrap())).collect();
    rounds[0].rows[0].decision.promote.pop();
    let report = explain(&lines(&TuneGoal::default(), &rounds), Shown::default()).unwrap();
    assert_eq!(report.differing_rounds, [1]);
    assert_eq!(report.reproduced_decisions + 1, report.decisions);
    assert!(!report.shown[0].processes[0].reproduced && report.shown[1].processes[0].reproduced);
    // Another seed tosses other coins.
    let goal = TuneGoal { seed: 2, ..TuneGoal::default() };
    assert!(!explain(&lines(&goal, &rounds), Shown::default()).unwrap().is_reproduced());
}

#[test]
fn a_next_state_that_differs_is_found() {
    let text = journal(13, 300, 0.5);
    let reader = JournalReader::new(&text[..], JournalLimits::default()).unwrap();
    let mut rounds: Vec<Round> = reader.map(|round| tune(round.unwrap())).collect();
    rounds[1].rows[0].after.as_mut().unwrap().added += SIZES.base;
    let goal = TuneGoal { enough_addresses: None, ..TuneGoal::default() };
    let report = explain(&lines(&goal, &rounds), Shown::default()).unwrap();
    assert_eq!(report.differing_rounds, [2]);
    assert!(!report.shown[1].processes[0].reproduced);
    let (pid, region) = (Pid(9), Region::new(9));
    rounds[0].place.cursor = Some(Cursor { pid, region, time: Nanos::ZERO });
    let report = explain(&lines(&goal, &rounds), Shown::default()).unwrap();
    assert_eq!(report.differing_rounds, [1, 2], "a place");
}

#[test]
fn a_journal_cut_anywhere_is_read_up_to_there() {
    let text = journal(14, 24, 0.5);
    let header = text.iter().position(|&byte| byte == b'\n').unwrap();
    let first = header + 1 + text[header + 1..].iter().position(|&byte| byte == b'\n').unwrap();
    for end in (0..first + 300).filter(|end| *end < 1500 || *end > first - 20 || end % 17 == 0) {
        match explain(&text[..end], Shown::default()) {
            Ok(report) => {
                assert!(end >= header && report.is_reproduced(), "{end}");
                let rounds = u64::from(end >= first);
                assert_eq!(report.rounds, rounds, "{end}");
                let whole = if rounds == 1 { first } else { header } + 1;
                assert_eq!(
                    report.cut_bytes,
                    end.saturating_sub(whole) as u64 * u64::from(end != first),
                    "{end}"
                );
            }
            Err(error) => assert!(end < header, "{end}: {error}"),
        }
    }
    assert!(matches!(explain(b"", Shown::default()), Err(JournalError::NoJournal)));
}

#[test]
fn what_is_no_journal_of_this_version_is_refused_with_its_schema() {
    let text = String::from_utf8(journal(15, 24, 0.5)).unwrap();
    let error = |text: &str| explain(text.as_bytes(), Shown::default()).unwrap_err();
    for other in ["x\n", "{}\n", "[1]\n", "\n", "\0\0\0", "{\"schema\":1}\n"] {
        assert!(matches!(error(other), JournalError::NoJournal), "{other:?}");
    }
    for schema in [
        "hugepilot.journal/5",
        "hugepilot.journal/7",
        "hugepilot.journal/18446744073709551615",
        "hugepilot.journal/x",
        "hugepilot.tune/4",
    ] {
        let found = error(&text.replacen("hugepilot.journal/6", schema, 1));
        let versions = r#", expected "hugepilot.journal/6""#;
        assert_eq!(found.to_string(), format!("schema {schema:?}{versions}"));
        assert!(matches!(found, JournalError::Schema { found } if found == schema));
    }
}

#[test]
fn a_header_changes_the_goal_of_the_rounds_after_it() {
    let text = String::from_utf8(journal(13, 300, 0.5)).unwrap();
    let twice = format!("{text}{text}");
    let report = explain(twice.as_bytes(), Shown::default()).unwrap();
    let once = explain(text.as_bytes(), Shown::default()).unwrap();
    assert!(report.is_reproduced());
    assert_eq!((report.rounds, report.decisions), (2 * once.rounds, 2 * once.decisions));
    let other = TuneGoal { seed: 2, ..TuneGoal::default() };
    let header = serde_json::to_string(&Header::of(Goal::Tune(Box::new(other)))).unwrap();
    let (_, rounds) = text.split_once('\n').unwrap();
    let report = explain(format!("{text}{header}\n{rounds}").as_bytes(), Shown::default());
    let differing = report.unwrap().differing_rounds;
    assert!(differing.first().is_some_and(|&first| first > once.rounds), "{differing:?}");
    // Cut in the second header.
    let cut = format!("{text}{}", &header[..100]);
    let report = explain(cut.as_bytes(), Shown::default()).unwrap();
    assert_eq!((report.rounds, report.cut_bytes), (once.rounds, 100));
    let error = explain(format!("{cut}\n").as_bytes(), Shown::default()).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
}

#[test]
fn names_with_control_characters_are_refused() {
    let text = String::from_utf8(journal(19, 24, 0.5)).unwrap();
    assert!(explain(text.as_bytes(), Shown::default()).is_ok());
    let escape = text.replace("\"simulated\"", "\"\\u001b]0;\"");
    let error = explain(escape.as_bytes(), Shown::default()).unwrap_err().to_string();
    assert_eq!(error, "line 2 is damaged: a name has control characters");
}

#[test]
fn a_journal_is_read_within_its_limits() {
    let text = journal(16, 24, 0.5);
    let read = |line, rounds| {
        let limits = JournalLimits { line: Bytes::new(line), rounds };
        let reader = JournalReader::new(&text[..], limits)?;
        reader.map(|round| round.map(drop)).collect::<Result<Vec<()>, _>>()
    };
    let rounds = read(1 << 20, 1000).unwrap().len() as u64;
    assert_eq!(read(1 << 20, rounds).unwrap().len() as u64, rounds);
    assert!(matches!(read(1 << 20, rounds - 1), Err(JournalError::ManyRounds { .. })));
    assert!(matches!(read(3000, 1000), Err(JournalError::LongLine { line: 2, .. })));
    assert!(matches!(read(10, 1000), Err(JournalError::LongLine { line: 1, .. })));
}

#[test]
fn two_processes_and_no_process_are_rounds_too() {
    let text = journal(17, 24, 0.5);
    let reader = JournalReader::new(&text[..], JournalLimits::default()).unwrap();
    let mut rounds: Vec<Round> = reader.take(1).map(|round| tune(round.unwrap())).collect();
    let mut other = rounds[0].rows[0].clone();
    other.seen.id.pid = Pid(2);
    rounds[0].rows.push(other);
    let goal = TuneGoal::default();
    let unequal = explain(&lines(&goal, &rounds), Shown::default()).unwrap_err();
    assert!(matches!(unequal, JournalError::Damaged { line: 2, .. }), "{unequal}");
    rounds[0] = rounds[0].again(&goal);
    rounds.push(Round { rows: Vec::new(), ..rounds[0].clone() });
    let report = explain(&lines(&goal, &rounds), Shown::default()).unwrap();
    assert_eq!((report.rounds, report.decisions, report.reproduced_decisions), (2, 2, 2));
}

/// Numbers that a damaged journal may have.
const ODD: [&str; 9] = [
    "0",
    "1",
    "-1",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "1e308",
    "-0.0",
    "99999999999999999999999999",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Replaces a number, or changes a bit: the journal is read or refused, and nothing panics.
    #[test]
    fn a_damaged_journal_is_read_or_refused(
        place in 0.0..1.0_f64,
        odd in 0..ODD.len(),
        flip in prop::option::of(0..8_u32),
    ) {
        let mut text = SMALL.with(Clone::clone);
        let at = (place * text.len() as f64) as usize;
        if let Some(bit) = flip {
            text[at] ^= 1 << bit;
        } else {
            let is_number = |byte: &u8| byte.is_ascii_digit();
            let start = at + text[at..].iter().position(is_number).unwrap_or(0);
            let len = text[start..].iter().position(|byte| !is_number(byte)).unwrap_or(0);
            text.splice(start..start + len, ODD[odd].bytes());
        }
        let at = ShownRegions::At(Region::new(FIRST).range(SIZES).start);
        let regions = [ShownRegions::Acted, at][odd % 2];
        let _ = explain(&text, Shown { round: None, regions: Some(regions) });
    }
}

thread_local! {
    static SMALL: Vec<u8> = {
        let text = journal(18, 60, 0.5);
        text.split_inclusive(|&byte| byte == b'\n').take(7).flatten().copied().collect()
    };
}
