//! Journals of splits: each plan is reproduced from its line, and a damaged line is an error.

use hugepilot_record::{Errno, SplitAct, SplitOutcome, Stop};
use hugepilot_reports::explain::{ExplainReport, ExplainedSplit};
use hugepilot_units::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::debloat::round::{SeenProcess, SplitOutcomes, SplitRound, SplitRow};
use crate::explain::{Explainer, Shown, ShownRegions};
use crate::journal::{JournalError, JournalLimits, JournalReader};
use crate::round::{Goal, Header};

fn seen(zero_pages: &[u32], stalls: Option<BTreeMap<Region, u32>>) -> SeenProcess {
    let (census, priority, past) = (census(zero_pages), Priority::Normal, BTreeMap::new());
    SeenProcess { census, stalls, priority, weight: 1.0, past }
}

fn not_split(seen: SeenProcess) -> SplitRow {
    SplitRow { seen, outcome: SplitOutcomes::default() }
}

/// Round of two processes; of the first, region 1 is split and region 2 fails.
fn round(policy: &DebloatPolicy) -> SplitRound {
    let stalls = BTreeMap::from([(Region::new(2), 7)]);
    let seen = [seen(&[470, 370, 220, 0], Some(stalls)), seen(&[455, 355], Some(BTreeMap::new()))];
    let mut round = SplitRound {
        time: Nanos::seconds(3),
        rows: seen.map(not_split).into(),
        wanted: Bytes::mib(1),
        plan: SplitPlan::default(),
        dry_run: false,
        stopped: None,
    };
    round.plan = round.plan_again(policy);
    let act =
        |region, outcome| SplitAct { region: Region::new(region), took: Nanos::millis(1), outcome };
    let acts = vec![
        act(1, SplitOutcome::Freed(Bytes::kib(1880))),
        act(2, SplitOutcome::Failed(Errno::EAGAIN)),
    ];
    round.rows[0].outcome = SplitOutcomes { acts, ended: Some(Stop::NotPermitted) };
    round
}

fn text(policy: &DebloatPolicy, rounds: &[SplitRound]) -> String {
    let mut text = serde_json::to_string(&Header::of(Goal::Debloat(*policy))).unwrap() + "\n";
    for round in rounds {
        text += &(serde_json::to_string(round).unwrap() + "\n");
    }
    text
}

fn explain(text: &str, shown: Shown) -> Result<ExplainReport, JournalError> {
    let mut reader = JournalReader::new(text.as_bytes(), JournalLimits::default())?;
    let mut explainer = Explainer::new(shown, None);
    while let Some(round) = reader.next() {
        explainer.add(reader.goal(), &round?);
    }
    Ok(explainer.finish(reader.cut_bytes()))
}

#[test]
fn a_round_tells_what_was_planned_and_what_came_of_it() {
    let policy = DebloatPolicy::new(Order::Heat);
    let shown = Shown { round: None, regions: Some(ShownRegions::Acted) };
    let report = explain(&text(&policy, &[round(&policy)]), shown).unwrap();
    assert_eq!((report.rounds, report.decisions, report.reproduced_decisions), (1, 1, 1));
    let splits = report.shown[0].splits.as_ref().unwrap();
    assert_eq!((splits.order.as_str(), splits.candidates), ("heat", 5));
    let [first, second] = &splits.processes[..] else { panic!("{splits:?}") };
    assert_eq!((first.candidates, first.stalls, first.bloat_bytes), (3, Some(7), Bytes::kib(4240)));
    assert_eq!((first.huge_pages_split, first.freed_bytes), (1, Bytes::kib(1880)));
    assert_eq!(first.failed, [("EAGAIN".to_owned(), 1)].into());
    assert_eq!((first.stopped, second.stopped), (Some(Stop::NotPermitted), None));
    let region = |region: &ExplainedSplit| (region.stalls, region.outcome.clone());
    let regions: Vec<_> = first.regions.iter().map(region).collect();
    let [split, failed] = ["split", "EAGAIN"].map(|word| Some(word.to_owned()));
    assert_eq!(regions, [(Some(0), split), (Some(7), failed)]);
    // The stalled one comes later than all with about as much bloat.
    let ranks: Vec<_> = first.regions.iter().map(|region| region.rank).collect();
    assert_eq!(ranks, [Some(3), Some(4)]);
}

#[test]
fn another_plan_is_not_reproduced() {
    let policy = DebloatPolicy::new(Order::Exact);
    let mut wrong = round(&policy);
    wrong.plan.splits.swap(0, 1);
    let report = explain(&text(&policy, &[round(&policy), wrong]), Shown::default()).unwrap();
    assert_eq!((report.reproduced_decisions, report.differing_rounds), (1, vec![2]));
}

/// The journal with the value at `pointer` of its line replaced.
fn with(line: usize, pointer: &str, value: Value) -> String {
    let policy = DebloatPolicy::new(Order::EMD);
    let text = text(&policy, &[round(&policy)]);
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    *lines[line].pointer_mut(pointer).unwrap() = value;
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    assert!(explain(&with(1, "/wanted", json!(5)), Shown::default()).is_ok());
    for (line, pointer, value) in [
        (0, "/goal/debloat/order/emd/buckets", json!(0)),
        (1, "/rows/0/seen/weight", json!(-1.0)),
        (1, "/rows/0/seen/census/sizes/base", json!(0)),
        (1, "/rows/0/seen/census/process/command", json!("\u{1b}]0;")),
        (1, "/rows/0/seen/census/huge_pages", json!(u64::MAX)),
        (1, "/rows/0/seen/census/skipped", json!({"protected": u64::MAX})),
        (1, "/rows/0/seen/census/bloated/0/zero_pages", json!(513)),
        (1, "/rows/0/seen/census/bloated/0/first_zero_page", json!(512)),
        (1, "/rows/0/seen/census/bloated/0/table_lines", json!(513)),
        (1, "/rows/0/seen/census/bloated/0/region", json!(u64::MAX)),
        (1, "/plan/splits/0/process", json!(2)),
        (1, "/rows/0/outcome", json!(null)),
    ] {
        let error = explain(&with(line, pointer, value.clone()), Shown::default()).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { .. }), "{pointer} {value}: {error}");
    }
}

#[test]
fn an_incomplete_last_line_is_counted() {
    let policy = DebloatPolicy::new(Order::Exact);
    let whole = text(&policy, &[round(&policy), round(&policy)]);
    let report = explain(&whole[..whole.len() - 20], Shown::default()).unwrap();
    assert_eq!(report.rounds, 1);
    assert!(report.cut_bytes > 0);
}

proptest! {
    #[test]
    fn every_plan_is_reproduced_from_its_line(
        processes in prop::collection::vec(
            (prop::collection::vec(0_u32..=512, 0..12), prop::option::of(0_u32..20), 0.1_f64..9.0),
            0..5,
        ),
        order in prop::sample::select(&[Order::Hawkeye, Order::EMD, Order::Exact, Order::Heat][..]),
        fairness in prop::sample::select(
            &[Fairness::Off, Fairness::RoundRobin, Fairness::Bloat, Fairness::Weight][..]
        ),
    ) {
        let policy = DebloatPolicy { fairness, ..DebloatPolicy::new(order) };
        let processes = processes.iter().map(|(zeros, stalls, weight)| SeenProcess {
            weight: *weight,
            ..seen(zeros, stalls.map(|count| {
                (1..=zeros.len() as u64).map(|n| (Region::new(n), count * n as u32 % 7)).collect()
            }))
        });
        let rows = processes.map(not_split).collect();
        let mut round = SplitRound { rows, ..round(&policy) };
        round.plan = round.plan_again(&policy);
        let report = explain(&text(&policy, &[round]), Shown::default()).unwrap();
        prop_assert!(report.is_reproduced());
    }
}
