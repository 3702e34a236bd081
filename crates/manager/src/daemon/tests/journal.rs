//! Journal of a daemon that promotes and splits.

use hugepilot_policy::daemon::Rule;
use hugepilot_policy::explain::{Explainer, Shown};
use hugepilot_policy::journal::{JournalLimits, JournalReader};
use hugepilot_policy::round::Header;
use hugepilot_record::SkipReason;
use hugepilot_reports::explain::{DaemonDecision, DaemonStep};

use super::promotion::{allowing, bloated_program, machine};
use super::*;

/// Keeps each round as a line of JSON, with a header before the first of a goal.
#[derive(Default)]
struct Kept {
    text: Vec<u8>,
    goal: Option<Goal>,
    sampled: BTreeSet<Pid>,
}

impl Kept {
    fn push(&mut self, line: serde_json::Result<Vec<u8>>) {
        self.text.extend(line.unwrap());
        self.text.push(b'\n');
    }
}

impl Log for Kept {
    fn line(&mut self, _: &DaemonLine) {}
    fn sampled(&mut self, processes: &[ProcessId]) {
        self.sampled.extend(processes.iter().map(|id| id.pid));
    }
    fn round(&mut self, goal: &Goal, round: &JournalRound) {
        if self.goal.as_ref() != Some(goal) {
            self.push(serde_json::to_vec(&Header::of(goal.clone())));
            self.goal = Some(goal.clone());
        }
        self.push(serde_json::to_vec(round));
        let pids: Vec<Pid> = match round {
            JournalRound::Tune(round) => round.ids().map(|id| id.pid).collect(),
            JournalRound::Debloat(round) => {
                round.rows.iter().map(|row| row.seen.census.process.pid).collect()
            }
            JournalRound::Daemon(_) => Vec::new(),
        };
        assert!(pids.iter().all(|pid| self.sampled.contains(pid)), "announced before its round");
    }
}

#[test]
fn processes_that_are_only_split_are_announced_too() {
    let mut sim = Sim::new(vec![bloated(1, 100, 400), bloated(2, 100, 400)], |_| 900.0);
    sim.seconds = 30;
    let mut kept = Kept::default();
    daemon(&sim, config(), &mut kept).unwrap();
    assert!(!kept.text.is_empty());
    assert_eq!(kept.sampled, [1, 2].map(Pid).into());
}

#[test]
fn promotions_and_splits_are_reproduced_from_one_journal() {
    let program = bloated_program(1, 100, 400);
    let mut sim = machine(vec![program], |second| if second < 60.0 { 100.0 } else { 900.0 });
    sim.fakes = vec![Rc::clone(&sim.programs[0].0)];
    sim.seconds = 1000;
    let mut kept = Kept::default();
    daemon(&sim, allowing(Rule::default()), &mut kept).unwrap();
    let mut reader = JournalReader::new(&kept.text[..], JournalLimits::default()).unwrap();
    let mut explainer = Explainer::new(Shown::default(), None);
    while let Some(round) = reader.next() {
        explainer.add(reader.goal(), &round.unwrap());
    }
    let report = explainer.finish(reader.cut_bytes());
    assert!(report.is_reproduced(), "{:?} of {}", report.differing_rounds, report.rounds);
    let tunes = report.shown.iter().flat_map(|round| &round.processes);
    let promoted: u64 = tunes.map(|process| process.outcome.verified_regions).sum();
    let splits = report.shown.iter().filter_map(|round| round.splits.as_ref());
    let split = splits.clone().flat_map(|splits| &splits.processes);
    assert_eq!(promoted, 100);
    let own = report.shown.iter().filter_map(|round| round.daemon.as_ref());
    let own: Vec<_> = own.map(|daemon| &daemon.decision).collect();
    let turns = |one: &&&DaemonDecision| matches!(one, DaemonDecision::Turns { .. });
    let begins = |one: &&&DaemonDecision| {
        let DaemonDecision::Step { step, .. } = one else { return false };
        matches!(step, DaemonStep::Begin(_))
    };
    let resting = splits.filter_map(|splits| splits.skipped.get(&SkipReason::CoolingDown));
    assert!(own.iter().any(|one| turns(&one)) && own.iter().any(|one| begins(&one)), "{own:?}");
    assert!(resting.max() > Some(&0), "what was promoted is not split at once: {own:?}");
    assert!(split.map(|process| process.huge_pages_split).sum::<u64>() > 10);
}
