//! `hugepilot daemon`.

use std::io::{self, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use hugepilot_kernel::{Root, descriptors, drop_own_code, file, proc};
use hugepilot_launch::record::MetricsOptions;
use hugepilot_manager::ManagerError;
use hugepilot_manager::daemon::{
    Config, Control, ControlRequest, FactsSource, LiveSystem, Log, MachineFacts, daemon,
};
use hugepilot_manager::names::parse_who;
use hugepilot_policy::daemon::{Permission, Rule};
use hugepilot_policy::journal::JournalRound;
use hugepilot_policy::round::Goal;
use hugepilot_record::ProcessId;
use hugepilot_reports::daemon::{DaemonLine, ReloadError};
use hugepilot_reports::{daemon_line, daemon_text};
use hugepilot_units::{Bytes, Nanos, Share};

use crate::calibration::{self, Background, CalibrationMode, Keep};
use crate::debloat::{OrderArg, unsupported};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Signals;
use crate::output::{note, print, write_stdout};
use crate::recording::{MAX_FILE, RunFiles, TargetRecordFlag};
use crate::target::LIST_CGROUPS;
use crate::trial_guard;

/// Limit on the size of a configuration; one with all keys and comments has less than 8 KiB.
const MAX_CONFIG: Bytes = Bytes::mib(1);
/// Length of a slice of metrics.
const SLICE: Nanos = Nanos::seconds(1);
/// Processes whose metrics are recorded at a time: a process costs up to 1 % of a core.
const MAX_RECORDED: usize = 16;
/// Time for which a process is recorded once it is sampled: the work on it ends after two minutes.
const KEEP: Nanos = Nanos::seconds(300);

const EXAMPLES: &str = "\
Examples:
  sudo hugepilot daemon                                split when memory is short
  sudo hugepilot daemon --promote redis-server         and promote redis-server where that pays
  sudo hugepilot daemon --promote redis-server --once  one pass, then end
  sudo hugepilot daemon --dry-run                      log decisions, change nothing
  sudo hugepilot daemon --journal daemon.ndjson        record each round, for explain
  sudo hugepilot daemon --record daemon.rec            record log and metrics, for report
  sudo hugepilot daemon --cgroup /sys/fs/cgroup/db.slice --high 90% --low 75%
                                                       watch one cgroup
  hugepilot daemon --print-config > daemon.toml        write a configuration
  sudo hugepilot daemon --config daemon.toml           use a configuration

Exit status: 0 stopped by a signal, pass done, or configuration printed; 2 error; 3 unsupported
here";

/// Promote memory where that pays; split bloated huge pages when memory is short
///
/// At the high watermark the daemon starts to split bloated huge pages, and below the low
/// watermark it stops. Below the low watermark it also tunes the busy processes that a rule
/// allows, as `tune` does: a trial measures the gain first. It requires the permissions of
/// `debloat` and `tune`, and prints one JSON object per event.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DaemonArgs {
    /// Configuration (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Cgroup to watch and debloat; it must have a memory limit [default: the system]
    #[arg(long, value_name = "DIRECTORY")]
    cgroup: Option<PathBuf>,
    /// Memory use that starts splitting [default: 80%]
    #[arg(long, value_name = "SHARE")]
    high: Option<Share>,
    /// Memory use below which splitting ends [default: 65%]
    #[arg(long, value_name = "SHARE")]
    low: Option<Share>,
    /// At this use of the hard limit, the CPU budget no longer applies [default: 92%]
    #[arg(long, value_name = "SHARE")]
    critical: Option<Share>,
    /// Memory pressure (PSI some, 10 s) that starts splitting above --low [default: 20%]
    #[arg(long, value_name = "SHARE")]
    psi: Option<Share>,
    /// Interval between reads of memory use [default: 1s]
    #[arg(long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// CPU budget, as a share of one core [default: 10%]
    #[arg(long, value_name = "SHARE")]
    cpu: Option<Share>,
    /// Order in which huge pages are split [default: heat]
    #[arg(long, value_enum)]
    order: Option<OrderArg>,
    /// Process not to split, by pid or name; repeatable
    #[arg(long, value_name = "WHO", value_parser = parse_who)]
    protect: Vec<String>,
    /// Name of processes to promote where that pays; repeatable [default: the rules of --config]
    #[arg(long, value_name = "NAME", value_parser = parse_who)]
    promote: Vec<String>,
    /// Split if memory is short, else tune each busy process that a rule allows, and end
    #[arg(long)]
    once: bool,
    /// Decide and log, but change nothing
    #[arg(long)]
    dry_run: bool,
    /// Source of the model's prediction for the processes that rules allow
    #[arg(long, value_enum, default_value_t = CalibrationMode::Auto)]
    calibration: CalibrationMode,
    /// Write each round to FILE: what was seen, decided and done (NDJSON, for `explain` and
    /// `tune --undo`; at most 1 GiB)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    journal: Option<PathBuf>,
    #[command(flatten)]
    record: TargetRecordFlag,
    /// Print the configuration, each key with meaning, range and default
    #[arg(long)]
    print_config: bool,
}

/// The error that the configuration `name` cannot be read.
fn unreadable(name: &str, error: io::Error) -> anyhow::Error {
    let what = format!("cannot read {name}");
    if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) {
        return anyhow::Error::new(error).context(what);
    }
    let help = "write a configuration: hugepilot daemon --print-config > FILE".to_owned();
    Failure::new(what, Exit::Error).because(error.to_string()).with_help([help]).into()
}

/// The error that the cgroup cannot be watched.
fn no_machine(error: ManagerError, cgroup: Option<&Path>) -> anyhow::Error {
    let ManagerError::Cgroup { what, .. } = &error else { return error.into() };
    let limit = || {
        let directory = cgroup.unwrap_or(Path::new("DIRECTORY"));
        // Version 1 has another name for it.
        let old = directory.join("memory.limit_in_bytes");
        let file = if old.exists() { old } else { directory.join("memory.max") };
        format!("set a limit: echo 4G | sudo tee {}", file.display())
    };
    let help = if what.contains("no memory limit") { limit() } else { LIST_CGROUPS.to_owned() };
    Failure::new(error.to_string(), Exit::Error).with_help([help]).into()
}

/// The contents of a configuration as text.
fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let newlines = error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count();
        io::Error::new(ErrorKind::InvalidData, format!("line {} is not UTF-8", newlines + 1))
    })
}

impl DaemonArgs {
    /// Reads the file, and applies the flags.
    fn read(&self) -> anyhow::Result<Config> {
        let (text, name) = match &self.config {
            Some(path) => {
                let name = path.display().to_string();
                let text = file::read(path, MAX_CONFIG).and_then(text_of);
                (text.map_err(|error| unreadable(&name, error))?, name)
            }
            None => (String::new(), String::new()),
        };
        let users = proc::user_names(&Root::live());
        let is_user = |name: &str| users.values().any(|user| user == name);
        let config = Config::read(&text, &name, &is_user, &|config| self.change(config));
        Ok(config.map_err(|error| {
            let help = "list each key with its range and default: hugepilot daemon --print-config";
            Failure::new(error.to_string(), Exit::Error).with_help([help.to_owned()])
        })?)
    }

    /// Notes about names without a process. They are not an error: one may start later.
    fn absent(&self) -> impl Iterator<Item = String> {
        let is_absent =
            |name: &&String| proc::named(&Root::live(), name).is_ok_and(|pids| pids.is_empty());
        self.promote
            .iter()
            .filter(is_absent)
            .map(|name| format!("note: no process is called {name:?} now"))
    }

    fn change(&self, config: &mut Config) {
        fn over<T: Clone>(into: &mut T, flag: Option<&T>) {
            if let Some(value) = flag {
                *into = value.clone();
            }
        }
        over(&mut config.high, self.high.as_ref());
        over(&mut config.low, self.low.as_ref());
        over(&mut config.critical, self.critical.as_ref());
        over(&mut config.psi, self.psi.as_ref());
        over(&mut config.interval, self.interval.as_ref());
        over(&mut config.cpu, self.cpu.as_ref());
        over(&mut config.order, self.order.map(|order| order.with_buckets(10)).as_ref());
        if self.cgroup.is_some() {
            config.cgroup.clone_from(&self.cgroup);
        }
        config.protect.extend(self.protect.iter().cloned());
        let named = self.promote.iter().map(|name| Rule {
            command: Some(name.clone()),
            promote: Permission::Allow,
            ..Rule::default()
        });
        // Flags override the file: the first rule that matches decides.
        config.rules.splice(..0, named);
        config.dry_run |= self.dry_run;
        config.once |= self.once;
    }
}

pub(crate) fn run(args: &DaemonArgs) -> anyhow::Result<Exit> {
    let config = args.read()?;
    if args.print_config {
        print(&config.print())?;
        return Ok(Exit::Yes);
    }
    args.absent().for_each(|text| note(&text));
    if !config.dry_run {
        trial_guard::recover();
    }
    descriptors::raise_limit();
    let signals = Signals::listen()?;
    let asked = || match () {
        () if signals.interrupt.is_asked() => ControlRequest::Stop,
        () if signals.is_reload_asked() => ControlRequest::Reload,
        () => ControlRequest::Nothing,
    };
    let reload = || {
        signals.reloaded();
        args.read().map_err(|error| ReloadError::Config { error: format!("{error:#}") })
    };
    let wait = |time| signals.wait(time);
    let control = Control { asked: &asked, wait: &wait, reload: &reload };
    if !config.dry_run
        && let Some(failure) = unsupported()?
    {
        return Ok(failure.print());
    }
    let mut files = RunFiles::open(args.journal.as_deref(), args.record.path())?;
    let background = Background::new(args.calibration, Keep::unless(config.dry_run));
    let stored = facts_of(calibration::Machine::stored());
    let machine = LiveSystem::new(&config, stored, &background, control);
    let machine = machine.map_err(|error| no_machine(error, config.cgroup.as_deref()))?;
    let goal = Goal::Debloat(config.policy(config.order));
    files.set_limit(MAX_FILE);
    files.begin_with(goal, recorded())?;
    let is_terminal = io::stderr().is_terminal();
    let mut output = Output { is_terminal, is_lost: false, files };
    drop_own_code(&Root::live());
    daemon(&machine, config, &mut output)?;
    if let Err(error) = output.files.finish() {
        note(&format!("hugepilot: {error:#}"));
    }
    Ok(Exit::Yes)
}

/// Facts about this machine, with the guard of trials.
fn facts_of(machine: calibration::Machine) -> MachineFacts {
    let rate_hz = machine.affordable_rate();
    let (calibration, tlb_entries) = (machine.calibration, machine.tlb_entries);
    MachineFacts { calibration, rate_hz, tlb_entries, trial_guard: Some(trial_guard::new()) }
}

impl FactsSource for Background {
    fn facts(&self) -> Option<MachineFacts> {
        self.poll().map(facts_of)
    }
    fn stop(&self) {
        Self::stop(self);
    }
}

/// Metrics of a recording: of processes that the daemon samples or splits, for a while.
fn recorded() -> MetricsOptions {
    let sampler = Ok("rounds of tunes".to_owned());
    let (max_processes, keep) = (MAX_RECORDED, Some(KEEP));
    let processes = Vec::new();
    MetricsOptions { every: SLICE, processes, with_children: false, max_processes, keep, sampler }
}

/// Log on stdout, explained on a terminal, and files.
struct Output {
    is_terminal: bool,
    /// Whether a line could not be written.
    is_lost: bool,
    files: RunFiles,
}

impl Log for Output {
    /// Writes one line. A failure is reported once, and the daemon continues.
    fn line(&mut self, line: &DaemonLine) {
        let json = daemon_line(line);
        self.files.add_json(&json);
        self.close_over();
        if let Err(error) = write_stdout(json.as_bytes())
            && !std::mem::replace(&mut self.is_lost, true)
        {
            eprintln!("hugepilot: cannot write the log: {error}");
        }
        if self.is_terminal {
            eprint!("{}", daemon_text(line));
        }
    }

    fn sampled(&mut self, processes: &[ProcessId]) {
        self.files.watch(processes.iter().map(|id| id.pid));
    }

    /// Writes a round. After a failure, or when a file is full, the daemon continues without it.
    fn round(&mut self, goal: &Goal, round: &JournalRound) {
        self.files.add_of(goal, round);
        self.close_over();
    }
}

impl Output {
    /// Ends files that are full or could not be written.
    fn close_over(&mut self) {
        for cause in self.files.close_over() {
            note(&format!("hugepilot: no further rounds are written: {cause}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::FromArgMatches as _;

    use super::*;

    fn parse(args: &[&str]) -> Result<DaemonArgs, String> {
        let command = DaemonArgs::augment_args(clap::Command::new("daemon"));
        let matches = command.try_get_matches_from(["daemon"].iter().chain(args));
        let matches = matches.map_err(|error| error.to_string())?;
        DaemonArgs::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_that_no_process_can_have_is_an_error_of_its_flag() {
        for flag in ["--promote", "--protect"] {
            assert!(parse(&[flag, "a-very-long-process-name"]).err().unwrap().contains(flag));
            assert!(parse(&[flag, "redis-server"]).is_ok());
        }
    }

    #[test]
    fn a_name_without_a_process_is_noted() {
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        let args = parse(&["--promote", comm.trim_end(), "--promote", "no-such-name"]).unwrap();
        let notes: Vec<String> = args.absent().collect();
        assert_eq!(notes, ["note: no process is called \"no-such-name\" now"]);
    }

    #[test]
    fn an_error_of_the_configuration_has_its_line_and_help() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.toml");
        let args = parse(&["--config", path.to_str().unwrap()]).unwrap();
        let error = |text: &[u8]| {
            fs::write(&path, text).unwrap();
            args.read().unwrap_err().downcast::<Failure>().expect("a failure with help").to_string()
        };
        let unknown = error(b"[[rule]]\npromote = \"allow\"\nuser = \"no-such-user\"\n");
        let expected =
            "d.toml:3: rule.user: found \"no-such-user\", which /etc/passwd does not have";
        assert!(unknown.contains(expected), "{unknown}");
        let damaged = error(b"high = \"80%\"\n# \xff\n");
        assert!(damaged.ends_with("d.toml: line 2 is not UTF-8"), "{damaged}");
        fs::write(&path, "[[rule]]\npromote = \"allow\"\nuser = \"root\"\n").unwrap();
        assert_eq!(args.read().unwrap().rules[0].user.as_deref(), Some("root"));
    }
}
