//! Decisions of the daemon about itself, in words.

use hugepilot_render::table::{percent, process_count};

use super::first_few;
use crate::daemon::WorkCause;
use crate::explain::{DaemonDecision, DaemonStep, ExplainedDaemon, ExplainedTurn};

/// Prints the decision, and whether it came out the same.
pub(super) fn daemon_text(daemon: &ExplainedDaemon) -> String {
    let mut text = format!("  {}\n", sentence(&daemon.decision));
    if !daemon.reproduced {
        text.push_str("    not reproduced: deciding again gives another decision or state\n");
    }
    text
}

fn sentence(decision: &DaemonDecision) -> String {
    match decision {
        DaemonDecision::Step { use_ratio, psi_some_ratio, high_ratio, low_ratio, step, .. } => {
            let pressure = psi_some_ratio
                .map_or_else(String::new, |psi| format!(", memory pressure {}", percent(psi)));
            format!(
                "memory use {}{pressure} (watermarks {low_ratio} and {high_ratio}): {}",
                percent(*use_ratio),
                step_text(*step)
            )
        }
        DaemonDecision::Turns { processes, in_turn, idle, resting, new } => format!(
            "scan of {}: {} in turn{}; {idle} idle, {resting} resting, {new} new",
            process_count(*processes),
            in_turn.len(),
            named(in_turn)
        ),
    }
}

const fn step_text(step: DaemonStep) -> &'static str {
    match step {
        DaemonStep::Rest => "the daemon rests",
        DaemonStep::Begin(WorkCause::High) => "splits begin, at the high watermark",
        DaemonStep::Begin(WorkCause::Pressure) => "splits begin, because of the pressure",
        DaemonStep::GoOn => "splits go on",
        DaemonStep::End => "splits end, below the low watermark",
    }
}

fn named(turns: &[ExplainedTurn]) -> String {
    if turns.is_empty() {
        return String::new();
    }
    let name = |turn: &ExplainedTurn| {
        let ExplainedTurn { command, pid, rule, cpus } = turn;
        format!("{command} (pid {pid}, rule {rule}, {cpus:.2} CPUs)")
    };
    format!(": {}", first_few(turns.iter().map(name)))
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_units::Share;

    use super::*;

    fn text(decision: DaemonDecision, reproduced: bool) -> String {
        daemon_text(&ExplainedDaemon { decision, reproduced })
    }

    #[test]
    fn each_decision_is_a_sentence() {
        let step = DaemonDecision::Step {
            use_ratio: 0.812,
            psi_some_ratio: Some(0.05),
            high_ratio: Share::percent(80.0),
            low_ratio: Share::percent(65.0),
            psi_start_ratio: Share::percent(20.0),
            step: DaemonStep::Begin(WorkCause::High),
        };
        assert_eq!(
            text(step, false),
            "  memory use 81.2 %, memory pressure 5.0 % (watermarks 65% and 80%): splits begin, at \
             the high watermark\n    not reproduced: deciding again gives another decision or \
             state\n"
        );
        let turn =
            |pid| ExplainedTurn { pid: Pid(pid), command: "redis".into(), rule: 1, cpus: 0.5 };
        let turns =
            |in_turn| DaemonDecision::Turns { processes: 12, in_turn, idle: 3, resting: 1, new: 0 };
        assert_eq!(
            text(turns(vec![turn(7)]), true),
            "  scan of 12 processes: 1 in turn: redis (pid 7, rule 1, 0.50 CPUs); 3 idle, 1 \
             resting, 0 new\n"
        );
        assert!(text(turns((0..10).map(turn).collect()), true).contains(" and 2 more; 3 idle"));
    }
}
