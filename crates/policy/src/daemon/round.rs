//! Decision of the daemon, as its journal has it: what it depends on, and its result. Pure.

use std::collections::BTreeMap;

use hugepilot_record::explain::{
    DaemonDecision, DaemonStep, ExplainedDaemon, ExplainedTurn, RestingRegions,
};
use hugepilot_record::{ProcessId, SkipReason};
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

use super::history::{CoolDown, RegionHistory};
use super::{Gate, ProcessFacts, Reading, Rule, Scan, Step, Turns, Watermarks};

/// Decision of the daemon about itself. Its rounds of promotions and splits are those of tune and
/// debloat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonRound {
    /// Time, on the monotonic clock.
    pub time: Nanos,
    /// The decision.
    pub choice: Choice,
}

/// The decision, with all that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// The step between the watermarks.
    Step {
        /// Directory of the cgroup; `None` for the whole scope, and in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cgroup: Option<String>,
        /// The watermarks.
        marks: Watermarks,
        /// Memory use and pressure.
        reading: Reading,
        /// State before.
        gate: Gate,
        /// The result.
        step: Step,
        /// State after; `None` in journals up to version 4, as in [`Choice::Turns`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Gate>,
    },
    /// The processes to tune next.
    Turns {
        /// The rules.
        rules: Vec<Rule>,
        /// Rest of a process after a try.
        rest: Nanos,
        /// The processes.
        facts: Vec<ProcessFacts>,
        /// Earlier scans and tries.
        turns: Turns,
        /// The result.
        found: Scan,
        /// Scans and tries after.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Turns>,
    },
    /// The bloated huge pages of a process that must not be split now. Of journals up to version 4:
    /// since then, the plan of splits decides that.
    CoolDown {
        /// Limits on repeated changes.
        rules: CoolDown,
        /// The process.
        process: ProcessId,
        /// Its bloated huge pages that the daemon changed before.
        past: BTreeMap<Region, RegionHistory>,
        /// The result.
        resting: BTreeMap<Region, SkipReason>,
    },
}

impl DaemonRound {
    /// Decides again, and compares the result and the next state.
    pub fn is_reproduced(&self) -> bool {
        match &self.choice {
            Choice::Step { marks, reading, gate, step, next, .. } => {
                let mut again = gate.clone();
                let is_same = again.step(marks, reading, self.time) == *step;
                is_same && next.as_ref().is_none_or(|next| *next == again)
            }
            Choice::Turns { rules, rest, facts, turns, found, next } => {
                let mut again = turns.clone();
                let is_same = again.next(facts, rules, self.time, *rest) == *found;
                is_same && next.as_ref().is_none_or(|next| *next == again)
            }
            Choice::CoolDown { rules, past, resting, .. } => {
                rules.resting(past, self.time) == *resting
            }
        }
    }

    /// Explains the decision.
    pub(crate) fn explain(&self) -> ExplainedDaemon {
        ExplainedDaemon { decision: self.decision(), reproduced: self.is_reproduced() }
    }

    fn decision(&self) -> DaemonDecision {
        match &self.choice {
            Choice::Step { marks, reading, step, .. } => DaemonDecision::Step {
                use_ratio: reading.use_ratio(),
                psi_some_ratio: reading.psi,
                high_ratio: marks.high,
                low_ratio: marks.low,
                psi_start_ratio: marks.psi,
                step: match step {
                    Step::Rest => DaemonStep::Rest,
                    Step::Begin(cause) => DaemonStep::Begin(*cause),
                    Step::GoOn => DaemonStep::GoOn,
                    Step::End => DaemonStep::End,
                },
            },
            Choice::Turns { facts, found, .. } => DaemonDecision::Turns {
                processes: facts.len() as u64,
                in_turn: found.turns.iter().map(explained).collect(),
                idle: found.idle,
                resting: found.resting,
                new: found.new,
            },
            Choice::CoolDown { process, past, resting, .. } => {
                let mut skipped = BTreeMap::new();
                for reason in resting.values() {
                    *skipped.entry(*reason).or_insert(0) += 1;
                }
                DaemonDecision::CoolDown(RestingRegions {
                    pid: process.pid,
                    command: process.command.clone(),
                    changed_before: past.len() as u64,
                    resting: skipped,
                })
            }
        }
    }
}

fn explained(turn: &super::Turn) -> ExplainedTurn {
    ExplainedTurn {
        pid: turn.process.pid,
        command: turn.process.command.clone(),
        rule: turn.rule as u64 + 1,
        cpus: turn.cpus,
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_record::daemon::WorkCause;
    use hugepilot_units::{Bytes, Share};

    use super::super::Permission;
    use super::*;

    const NOW: Nanos = Nanos::seconds(10);

    fn id() -> ProcessId {
        ProcessId { pid: Pid(7), start_ticks: 1, command: "db".into() }
    }

    fn step() -> Choice {
        let [high, low, critical, psi] = [80.0, 65.0, 92.0, 20.0].map(Share::percent);
        let marks = Watermarks { high, low, critical, psi };
        let (used, limit) = (Bytes::mib(81), Bytes::mib(100));
        let reading = Reading { used, limit, hard_use: 0.81, psi: None };
        let (gate, mut next) = (Gate::new(), Gate::new());
        let step = next.step(&marks, &reading, NOW);
        assert_eq!(step, Step::Begin(WorkCause::High));
        Choice::Step { cgroup: None, marks, reading, gate, step, next: Some(next) }
    }

    fn turns() -> Choice {
        let facts = |cpu| ProcessFacts {
            id: id(),
            user: 0,
            user_name: None,
            cgroup: "/".into(),
            resident: Bytes::mib(100),
            cpu,
        };
        let rules = vec![Rule { promote: Permission::Allow, ..Rule::default() }];
        let (mut turns, rest) = (Turns::default(), Nanos::seconds(600));
        turns.next(&[facts(Nanos::ZERO)], &rules, Nanos::ZERO, rest);
        let (before, facts) = (turns.clone(), vec![facts(Nanos::seconds(9))]);
        let found = turns.next(&facts, &rules, NOW, rest);
        assert_eq!(found.turns.len(), 1);
        Choice::Turns { rules, rest, facts, turns: before, found, next: Some(turns) }
    }

    fn cool_down() -> Choice {
        let mut history = super::super::History::default();
        let page = |region| hugepilot_record::BloatedPage {
            region: Region::new(region),
            zero_pages: 400,
            first_zero_page: 0,
            table_lines: 14,
        };
        let census = hugepilot_record::Census {
            process: id(),
            sizes: hugepilot_units::PageSizes::X86_64,
            bloated: vec![page(5), page(6), page(7)],
            huge_pages: 3,
            read_pages: 3,
            unread_pages: 0,
            stranded: None,
            skipped: hugepilot_record::Skips::new(),
            took: Nanos::ZERO,
        };
        let rules = CoolDown { time: Nanos::seconds(8), max_recollapses: 3 };
        let key = super::super::key_of(&id());
        history.note(key, Region::new(5), Nanos::seconds(1), true);
        history.note_promoted(key, Region::new(6), Nanos::seconds(1));
        let past = history.past_of(&census);
        let resting = rules.resting(&past, NOW);
        assert_eq!(past.len(), 2);
        assert_eq!(resting, BTreeMap::from([(Region::new(5), SkipReason::CoolingDown)]));
        Choice::CoolDown { rules, process: id(), past, resting }
    }

    #[test]
    fn every_decision_is_reproduced_from_its_line_and_another_one_is_not() {
        for choice in [step(), turns(), cool_down()] {
            let round = DaemonRound { time: NOW, choice };
            let text = serde_json::to_string(&round).unwrap();
            let read: DaemonRound = serde_json::from_str(&text).unwrap();
            assert_eq!(read, round);
            assert!(read.is_reproduced(), "{text}");
            let other = match read.choice {
                Choice::Step { marks, reading, gate, step, .. } => {
                    let cgroup = None;
                    Choice::Step { cgroup, marks, reading, next: Some(gate.clone()), gate, step }
                }
                Choice::Turns { rules, rest, facts, turns, found, .. } => {
                    Choice::Turns { rules, rest, facts, next: Some(turns.clone()), turns, found }
                }
                Choice::CoolDown { rules, process, past, .. } => {
                    Choice::CoolDown { rules, process, past, resting: BTreeMap::new() }
                }
            };
            let other = DaemonRound { choice: other, ..round };
            assert!(!other.is_reproduced() && !other.explain().reproduced);
        }
    }

    #[test]
    fn a_turn_by_a_rule_that_is_not_there_is_damage() {
        let header = crate::round::Header::of(crate::round::Goal::Daemon);
        let round = DaemonRound { time: NOW, choice: turns() };
        let [header, round] =
            [serde_json::to_string(&header).unwrap(), serde_json::to_string(&round).unwrap()];
        let read = |round: &str| {
            let text = format!("{header}\n{round}\n");
            let limits = crate::journal::JournalLimits::default();
            let mut reader = crate::journal::JournalReader::new(text.as_bytes(), limits).unwrap();
            reader.next().unwrap().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(read(&round), Ok(()));
        let other = round.replace("\"rule\":0", "\"rule\":18446744073709551615");
        assert_ne!(other, round);
        let damage = "line 2 is damaged: a turn by a rule that is not there";
        assert_eq!(read(&other), Err(damage.to_owned()));
    }
}
