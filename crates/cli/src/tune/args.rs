//! Flags of `tune`.

mod check;
mod policy;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, ValueEnum, ValueHint};
use hugepilot_kernel::{OwnMemory, Root};
use hugepilot_manager::tune::TuneOptions;
use hugepilot_policy::Guard;
use hugepilot_policy::tune::{Policy, ScheduleRules, TuneGoal};
use hugepilot_units::{Amount, Bytes, Nanos, Share};
use policy::PolicyArgs;
use regex::Regex;

use crate::calibration::{CalibrationMode, Machine};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::recording::TargetRecordFlag;
use crate::target::TargetArgs;
use crate::trial_guard;

/// Time of all rounds of a try: long enough to confirm most trials.
const TRY: Nanos = Nanos::seconds(30);

/// Arguments of a tune, which `--undo` excludes: all but the target, `--dry-run` and `--json`.
const TUNING: [&str; 34] = [
    "command",
    "try",
    "policy",
    "selection",
    "demote",
    "prefer",
    "schedule",
    "schedule_time",
    "budget",
    "max_added",
    "horizon",
    "keep",
    "observe",
    "total",
    "rate",
    "trial_rate",
    "min_gain",
    "max_collapse",
    "progress_regex",
    "progress_file",
    "progress_higher_is_better",
    "progress_wait",
    "baseline",
    "all_huge",
    "runs",
    "journal",
    "record",
    "calibration",
    "verbose",
    "footprint",
    "hot",
    "pattern",
    "threads",
    "seed",
];

/// Promote the hottest regions of processes and measure the gain
///
/// Several targets share all limits. The processes that a single target starts are tuned, too;
/// those of several targets only if they are targets themselves. Without a target it demonstrates
/// itself on a test workload, in under two minutes. It needs 12 GiB, or uses all available memory
/// but 2 GiB. Sampling processes of other users requires CAP_PERFMON and CAP_DAC_READ_SEARCH,
/// before Linux 6.15 also CAP_SYS_PTRACE. Promoting memory of any process requires CAP_SYS_NICE.
/// `--dry-run` on a process of your own requires nothing.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugepilot tune                                  demonstration
  sudo hugepilot tune -p $(pgrep -n redis-server)      a running process
  hugepilot tune -p 4711 --dry-run --json              plan and predicted speedup
  sudo hugepilot tune -p 4711 --try                    would huge pages help? (returns them)
  sudo hugepilot tune -p 4711 --progress-file run.log --progress-regex 'Trial Time:\\s+([\\d.]+)'
                                                       gain by a progress metric
  sudo hugepilot tune --baseline --all-huge --runs 5 -- ./pr -g 22 -n 20
                                                       a program, three variants
  sudo hugepilot tune --name python3 --budget 2GiB     several processes, one budget
  sudo hugepilot tune --cgroup /sys/fs/cgroup/db.slice --json
                                                       a line for each process of a cgroup
  sudo hugepilot tune -p 4711 --policy pcc --budget 4% --for 5m
                                                       the policy of a paper, to compare
  sudo hugepilot tune --schedule s.ndjson -- ./pr -g 22 -n 20
                                                       replay promotions of a simulator or a tune
  sudo hugepilot tune --undo -p 4711                   return its regions to base pages
  sudo hugepilot tune -p 4711 --journal tune.ndjson    record each round, for explain
  sudo hugepilot tune -p 4711 --record tune.rec        record the run, for report and explain

Exit status: 0 regions were promoted, or would be; 1 nothing to gain, or slower; 2 error; 3 \
unsupported here, or no verdict")]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) selection: TargetArgs,
    /// Program to start and tune, with all that it starts; its output goes to stderr
    #[arg(last = true, value_name = "CMD", num_args = 1.., value_hint = ValueHint::ExecutablePath,
          conflicts_with_all = ["pid", "name", "cgroup"])]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Limit of promoted memory, of all targets: a share of the resident set, or bytes [default: as
    /// much as pays]
    #[arg(long, value_name = "AMOUNT")]
    budget: Option<Amount>,
    /// Limit of memory that promotions add, by filling huge pages: a share of the resident set
    #[arg(long, default_value = "1%", value_name = "SHARE", hide_short_help = true)]
    max_added: Share,
    /// Time within which a promotion must save more CPU time than it costs
    #[arg(long, default_value = "60s", value_name = "TIME", hide_short_help = true)]
    horizon: Nanos,
    /// Measure the gain, then return all promoted regions to base pages
    #[arg(id = "try", long = "try",
          conflicts_with_all = ["command", "keep", "dry_run", "schedule"])]
    pub(crate) is_try: bool,
    /// Leave regions on huge pages even if their trial shows no gain
    #[arg(long, hide_short_help = true)]
    keep: bool,
    /// Plan and predicted speedup only; changes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Sampling time before the first plan, and after the last promotion. In a running process
    /// without progress metric, half of it is enough if 1000 samples have an address and a trial is
    /// possible. While fewer than 400 have one, it is extended, to a third of --for at most
    /// [default: 3s]
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    observe: Option<Nanos>,
    /// How long to repeat sampling and promoting; with `-- CMD`, until the program ends. The last
    /// round and the measurement after it come on top [default: 15s, with --try 30s, or twice
    /// --observe if longer]
    #[arg(long = "for", value_name = "TIME")]
    total: Option<Nanos>,
    /// Samples per second of CPU time per thread [default: 100 to 500, for 0.5 % overhead]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000),
          hide_short_help = true)]
    rate: Option<u32>,
    /// Samples per second during a trial; also before the first plan of a running process without
    /// progress metric, and after its last promotion [default: 2000, or --rate if given]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000),
          hide_short_help = true)]
    trial_rate: Option<u32>,
    /// Smallest gain to act on, if no trial is possible and a model predicts it
    #[arg(long, default_value = "2%", value_name = "SHARE", hide_short_help = true)]
    min_gain: Share,
    /// Longest promotion; a slower one ends the round
    #[arg(long, default_value = "30ms", value_name = "TIME", hide_short_help = true)]
    max_collapse: Nanos,
    /// Pattern of the progress metric in the program's output; group 1 is the number
    #[arg(long, value_name = "REGEX")]
    pub(crate) progress_regex: Option<Regex>,
    /// File to which a running process writes its progress metric. The values already in it count
    /// as before the promotions
    #[arg(long, value_name = "FILE", requires = "progress_regex", conflicts_with = "command")]
    pub(crate) progress_file: Option<PathBuf>,
    /// The progress metric is a throughput, not a time
    #[arg(long, requires = "progress_regex", hide_short_help = true)]
    progress_higher_is_better: bool,
    /// Longest wait for the progress metric, before and again after tuning
    #[arg(long, default_value = "60s", value_name = "TIME", hide_short_help = true)]
    progress_wait: Nanos,
    /// With `-- CMD`: also run the program untuned
    #[arg(long, requires = "command", conflicts_with_all = ["pid", "name", "cgroup"],
          hide_short_help = true)]
    pub(crate) baseline: bool,
    /// With `-- CMD`: also run the program with all its memory promoted
    #[arg(long, requires = "command", conflicts_with_all = ["pid", "name", "cgroup"],
          hide_short_help = true)]
    pub(crate) all_huge: bool,
    /// With `-- CMD`: runs of each variant, interleaved
    #[arg(long, requires = "command", conflicts_with_all = ["pid", "name", "cgroup"],
          default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000), hide_short_help = true)]
    pub(crate) runs: u32,
    /// Write each round to a new FILE: what was seen, decided and done (NDJSON, for `explain` and
    /// --undo)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) journal: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) record: TargetRecordFlag,
    /// Return the regions that earlier tunes of the target promoted to base pages. With FILE, those
    /// of the tune or daemon that wrote this journal or recording, in all its processes; `-` reads
    /// the standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, num_args = 0..=1,
          conflicts_with_all = TUNING)]
    pub(crate) undo: Option<Option<PathBuf>>,
    /// Source of the model's prediction
    #[arg(long, value_enum, default_value_t = CalibrationMode::Auto, hide_short_help = true)]
    pub(crate) calibration: CalibrationMode,
    /// Also print the whole report of each of several processes, and why better samplers and
    /// hardware counters are unavailable
    #[arg(short, long, hide_short_help = true)]
    pub(crate) verbose: bool,
    /// Print one JSON object (schema hugepilot.tune/4; hugepilot.undo/1 with --undo), or a line for
    /// each process if there are several, or the flags can select several
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) demo: DemoArgs,
}

/// Workload of the demonstration.
#[derive(Args)]
#[command(next_help_heading = "Demonstration (without a target)")]
pub(crate) struct DemoArgs {
    /// Memory of each of the three copies [default: 4GiB, less if memory is short]
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["pid", "name", "cgroup", "command"],
          hide_short_help = true)]
    footprint: Option<Bytes>,
    /// Hot memory in it, scattered in 2 MiB regions [default: an eighth]
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["pid", "name", "cgroup", "command"],
          hide_short_help = true)]
    hot: Option<Bytes>,
    /// Access pattern of the hot memory
    #[arg(long, value_enum, default_value_t = DemoPattern::Gather,
          conflicts_with_all = ["pid", "name", "cgroup", "command"], hide_short_help = true)]
    pattern: DemoPattern,
    /// Threads of each copy
    #[arg(long, default_value_t = 1, conflicts_with_all = ["pid", "name", "cgroup", "command"],
          value_parser = clap::value_parser!(u32).range(1..=1024), hide_short_help = true)]
    threads: u32,
    /// Seed for the choice of hot regions
    #[arg(long, default_value_t = 1, conflicts_with_all = ["pid", "name", "cgroup", "command"],
          hide_short_help = true)]
    seed: u64,
}

/// Memory of a copy beside its footprint.
const BESIDE: Bytes = Bytes::mib(16);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DemoPattern {
    /// Independent random reads
    Gather,
    /// Pointer chase: each read yields the address of the next
    Chase,
}

impl DemoArgs {
    /// Command line of one copy, after the executable.
    pub(crate) fn workload_arguments(&self, dry_run: bool) -> anyhow::Result<Vec<String>> {
        let memory = OwnMemory::read(&Root::live());
        let copies = if dry_run { 1 } else { 3 };
        let most = Bytes::new(memory.room().get() / copies) - BESIDE;
        let footprint = self.footprint.unwrap_or(Bytes::gib(4).min(most));
        let hot = self.hot.unwrap_or(Bytes::new(footprint.get() / 8));
        let smaller = match most < Bytes::mib(32) {
            true => "free memory, or raise the limit".to_owned(),
            false => format!("use --footprint {most}"),
        };
        ensure!(footprint <= most, "{copies} × {footprint} do not fit: {memory}; {smaller}");
        if hot < Bytes::mib(32) {
            let help = match (self.hot, self.footprint) {
                (None, None) if most < Bytes::mib(64) => "free memory, or raise the limit",
                (None, None) => "free memory, or name the hot memory: --hot 64MiB",
                (None, Some(_)) => "name a larger footprint, or the hot memory: --hot 64MiB",
                (Some(_), _) => "name more: --hot 64MiB",
            };
            let error = format!("{hot} of hot memory is too little to show a gain");
            let failure = Failure::new(error, Exit::Error).because(memory.to_string());
            return Err(failure.with_help([help.to_owned()]).into());
        }
        let pattern = if self.pattern == DemoPattern::Gather { "gather" } else { "chase" };
        let arguments = [
            "lab",
            "workload",
            "hot-set",
            "--announce",
            "--seconds",
            "0",
            "--interval",
            "10ms",
            "--pattern",
            pattern,
            "--footprint",
            &footprint.get().to_string(),
            "--hot",
            &hot.get().to_string(),
            "--threads",
            &self.threads.to_string(),
            "--seed",
            &self.seed.to_string(),
        ];
        Ok(arguments.map(str::to_owned).to_vec())
    }
}

impl TuneArgs {
    /// Sampling time before the first plan.
    fn observe(&self) -> Nanos {
        self.observe.unwrap_or(TuneGoal::default().observe)
    }

    /// Time of all rounds, by default long enough to act on the first observation.
    fn total(&self) -> Nanos {
        let observe = self.observe();
        let usual = if self.is_try { TRY } else { TuneOptions::default().total };
        self.total.unwrap_or(usual.max(observe + observe))
    }

    /// Options of the tune on `machine`, with the schedule if there is one.
    pub(crate) fn options(&self, machine: Machine, rules: Option<ScheduleRules>) -> TuneOptions {
        // A running process is tuned until the last event, and then as long as without a schedule.
        let end = rules.as_ref().map_or(Nanos::ZERO, ScheduleRules::end);
        let policy = match rules {
            Some(rules) => Policy::Schedule(Box::new(rules)),
            // `check` refused the others.
            None => self.policy.policy().unwrap_or_default(),
        };
        let goal = TuneGoal {
            policy,
            budget: self.budget,
            max_added: Some(self.max_added),
            horizon: self.horizon,
            min_gain: self.min_gain,
            keep: self.keep,
            observe: self.observe(),
            // Time must be left to act.
            max_observe: Nanos::new(self.total().get() / 3),
            calibration: machine.calibration.clone(),
            ..TuneGoal::default()
        };
        let rate_hz = self.rate.unwrap_or_else(|| machine.affordable_rate());
        let usual = self.rate.unwrap_or(TuneOptions::default().trial_rate_hz);
        TuneOptions {
            goal,
            rate_hz,
            trial_rate_hz: self.trial_rate.unwrap_or(usual).max(rate_hz),
            total: end + self.total(),
            dry_run: self.dry_run,
            guard: Guard { max_collapse: self.max_collapse, ..Guard::default() },
            sample_cost: machine.sample_cost,
            progress_wait: self.progress_wait,
            larger_is_better: self.progress_higher_is_better,
            tlb_entries: machine.tlb_entries,
            trial_guard: Some(trial_guard::new()),
            ..TuneOptions::default()
        }
    }

    /// Returns the pattern of the progress metric, if it is read as a time.
    pub(super) fn metric_of_time(&self) -> Option<&str> {
        let is_time = !self.progress_higher_is_better;
        self.progress_regex.as_ref().filter(|_| is_time).map(Regex::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_excludes_every_argument_of_a_tune() {
        let command = TuneArgs::augment_args(clap::Command::new("tune"));
        let undo = command.get_arguments().find(|arg| arg.get_id() == "undo").unwrap();
        let conflicts = command.get_arg_conflicts_with(undo);
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let is_free = ["undo", "dry_run", "json", "pid", "name", "cgroup"].contains(&id);
            let conflicts = conflicts.iter().any(|one| one.get_id() == id);
            assert_eq!(conflicts, !is_free, "{id}");
        }
        let parse = |line: &str| command.clone().try_get_matches_from(line.split(' ')).is_ok();
        assert!(parse("tune --undo x --dry-run --json") && parse("tune --undo -"));
        assert!(parse("tune --undo -p 1") && !parse("tune --undo x -- true"));
    }
}
