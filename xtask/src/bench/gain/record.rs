//! Runs of programs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::records::Machine;

/// Treatment of a program between the two windows of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// Nothing, for as long as the others take: the noise.
    Base,
    /// `hugepilot tune -p PID`, and later every other region promoted, too.
    Tuned,
    /// `hugepilot lab collapse -p PID`.
    All,
}

impl State {
    pub(super) const ALL: [Self; 3] = [Self::Base, Self::Tuned, Self::All];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Tuned => "tuned",
            Self::All => "all",
        }
    }
}

/// Line of a file of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Record {
    Run(Box<Run>),
    Failure(Failure),
}

impl From<Run> for Record {
    fn from(run: Run) -> Self {
        Self::Run(Box::new(run))
    }
}

/// Round of a program without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) program: String,
    /// Number of the round, from 0.
    pub(super) round: usize,
    /// Seed of the order of states.
    pub(super) seed: u64,
    /// Cause.
    pub(super) error: String,
    pub(super) machine: Machine,
}

/// Rates of a process on base pages, then in a state, then wholly on huge pages, each beside an
/// untouched twin and the processes in other states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) program: String,
    pub(super) state: State,
    /// Number of the round, from 0.
    pub(super) round: usize,
    /// Seed of the order of states.
    pub(super) seed: u64,
    /// Window before, on base pages as first touched.
    pub(super) before: Window,
    /// Window after.
    pub(super) after: Window,
    /// Resident memory before.
    pub(super) rss_bytes: u64,
    /// Anonymous memory on huge pages before.
    pub(super) huge_before_bytes: u64,
    /// Anonymous memory on huge pages after the window after.
    pub(super) huge_after_bytes: u64,
    /// The process wholly on huge pages, if its state is `tuned` or `all`.
    #[serde(default)]
    pub(super) all: Option<AllHuge>,
    /// Run time of the command that applied the state.
    pub(super) apply_seconds: f64,
    /// Report of `tune`, without its list of regions.
    #[serde(default)]
    pub(super) tune: Option<Value>,
    pub(super) machine: Machine,
}

impl Run {
    /// Gain: speed relative to the twin after, over that before.
    pub(super) fn gain(&self) -> f64 {
        self.after.ratio / self.before.ratio
    }

    /// Gain in the window in which all but the twin and `base` are wholly on huge pages.
    pub(super) fn last_gain(&self) -> Option<f64> {
        self.all.map(|all| all.window.ratio / self.before.ratio)
    }

    /// Gain that this process would have had wholly on huge pages, in the window in which it was
    /// tuned. `all` was wholly huge in that window; in the last one, both are, so that their ratio
    /// there is what the place of their pages in physical memory makes.
    pub(super) fn all_gain(&self, all: &Self) -> Option<f64> {
        Some(all.gain() * self.last_gain()? / all.last_gain()?)
    }

    /// Whether memory stayed on huge pages that was not there before.
    pub(super) fn keeps_huge_pages(&self) -> bool {
        self.huge_after_bytes > self.huge_before_bytes
    }
}

/// Rates of a process and its twin in alternating slices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Operations per second of the process, of a server per CPU second, median of its slices.
    pub(super) per_second: f64,
    /// The same of the untouched twin.
    pub(super) twin_per_second: f64,
    /// Median of the ratios within pairs of slices.
    pub(super) ratio: f64,
    /// Pairs of slices.
    pub(super) slices: usize,
}

/// Process of which every region was promoted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AllHuge {
    pub(super) window: Window,
    /// Anonymous memory on huge pages.
    pub(super) huge_bytes: u64,
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::records::tests::machine;
    use super::*;

    /// A tuned run with the given gain, beside a run that gains `all` wholly on huge pages.
    pub(in super::super) fn pair(program: &str, round: usize, gain: f64, all: f64) -> [Run; 2] {
        [(State::Tuned, gain), (State::All, all)].map(|(state, gain)| {
            let mut run = run(program, state, round, gain);
            let window = Window { ratio: run.before.ratio * all, ..run.before };
            run.all = Some(AllHuge { window, huge_bytes: 1 << 29 });
            run
        })
    }

    /// A round without a result.
    pub(in super::super) fn failure(program: &str) -> Record {
        Record::Failure(Failure {
            program: program.to_owned(),
            round: 0,
            seed: 1,
            error: "ended".to_owned(),
            machine: machine(),
        })
    }

    #[test]
    fn a_file_has_runs_and_failures() {
        for record in [run("redis", State::Tuned, 0, 1.2).into(), failure("redis")] {
            let line = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record, "{line}");
        }
    }

    /// A run with the given gain.
    pub(in super::super) fn run(program: &str, state: State, round: usize, gain: f64) -> Run {
        let window = Window { per_second: 1000.0, twin_per_second: 500.0, ratio: 2.0, slices: 20 };
        Run {
            program: program.to_owned(),
            state,
            round,
            seed: 1,
            before: window,
            after: Window { per_second: 900.0, ratio: 2.0 * gain, ..window },
            rss_bytes: 1 << 30,
            huge_before_bytes: 0,
            huge_after_bytes: if state == State::Base { 0 } else { 1 << 29 },
            all: None,
            apply_seconds: 3.0,
            tune: None,
            machine: machine(),
        }
    }
}
