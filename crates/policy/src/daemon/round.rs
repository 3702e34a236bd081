//! Decision of the daemon, as its journal has it: what it depends on, and its result. Pure.

use hugepilot_reports::explain::{DaemonDecision, DaemonStep, ExplainedDaemon, ExplainedTurn};
use hugepilot_units::Nanos;
use serde::{Deserialize, Serialize};

use super::{Gate, GateStep, ProcessFacts, Reading, Rule, Scan, Turns, Watermarks};

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
        /// Directory of the cgroup; `None` for the whole scope.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cgroup: Option<String>,
        /// The watermarks.
        marks: Watermarks,
        /// Memory use and pressure.
        reading: Reading,
        /// State before.
        gate: Gate,
        /// The result.
        step: GateStep,
        /// State after.
        next: Gate,
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
        next: Turns,
    },
}

impl DaemonRound {
    /// Decides again, and compares the result and the next state.
    pub fn is_reproduced(&self) -> bool {
        match &self.choice {
            Choice::Step { marks, reading, gate, step, next, .. } => {
                let mut again = gate.clone();
                again.step(marks, reading, self.time) == *step && *next == again
            }
            Choice::Turns { rules, rest, facts, turns, found, next } => {
                let mut again = turns.clone();
                again.next(facts, rules, self.time, *rest) == *found && *next == again
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
                    GateStep::Rest => DaemonStep::Rest,
                    GateStep::Begin(cause) => DaemonStep::Begin(*cause),
                    GateStep::GoOn => DaemonStep::GoOn,
                    GateStep::End => DaemonStep::End,
                },
            },
            Choice::Turns { facts, found, .. } => DaemonDecision::Turns {
                processes: facts.len() as u64,
                in_turn: found.turns.iter().map(explained).collect(),
                idle: found.idle,
                resting: found.resting,
                new: found.new,
            },
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
    use hugepilot_record::{Pid, ProcessId};
    use hugepilot_reports::daemon::WorkCause;
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
        assert_eq!(step, GateStep::Begin(WorkCause::High));
        Choice::Step { cgroup: None, marks, reading, gate, step, next }
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
        Choice::Turns { rules, rest, facts, turns: before, found, next: turns }
    }

    #[test]
    fn every_decision_is_reproduced_from_its_line_and_another_one_is_not() {
        for choice in [step(), turns()] {
            let round = DaemonRound { time: NOW, choice };
            let text = serde_json::to_string(&round).unwrap();
            let read: DaemonRound = serde_json::from_str(&text).unwrap();
            assert_eq!(read, round);
            assert!(read.is_reproduced(), "{text}");
            let other = match read.choice {
                Choice::Step { marks, reading, gate, step, .. } => {
                    let cgroup = None;
                    Choice::Step { cgroup, marks, reading, next: gate.clone(), gate, step }
                }
                Choice::Turns { rules, rest, facts, turns, found, .. } => {
                    Choice::Turns { rules, rest, facts, next: turns.clone(), turns, found }
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
