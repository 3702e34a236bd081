//! `hugepilot top`.

mod app;
mod screen;

use std::io::{IsTerminal as _, stdin, stdout};
use std::thread;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use hugepilot_kernel::{KernelError, Root, descriptors, proc};
use hugepilot_record::Pid;
use hugepilot_render::json;
use hugepilot_reports::top::TopReport;
use hugepilot_reports::{TopColumn, sort_top, top_text};
use hugepilot_top::Top;
use hugepilot_top::bloat::BloatCount;
use hugepilot_top::machine::RunningSystem;
use hugepilot_units::{Bytes, Nanos};

use crate::calibration;
use crate::exit::Exit;
use crate::output::{print, width};
use crate::target::{TargetArgs, open};

/// Time between the first two looks, which show the CPU use of processes.
const FIRST_LOOK: Nanos = Nanos::millis(300);
/// Time between two emptyings of the ring buffers.
const DRAIN_EVERY: Nanos = Nanos::millis(500);

const LEGEND: &str = "\
Examples:
  hugepilot top                              all processes, on the terminal
  hugepilot top --sort rss                   the largest first
  hugepilot top --name redis-server          processes with a name
  hugepilot top --once --interval 5s         print after 5 s of samples
  hugepilot top --json                       the same as one JSON object

Columns:
  CPU_%     CPU time per elapsed time; above 100 with several threads
  RSS       resident memory
  THP       resident memory on transparent huge pages; THP_% is its share (coverage)
  BLOAT     zero-filled base pages inside huge pages; counted on request
  STALL_%   samples that wait for scattered memory
  GAIN_%    gain that a model predicts if all stalls were on huge pages
  NOTE      why a value is unknown; - means not measured

Keys:
  < >       sort by another column; r reverses
  p         pause; + and - change the interval
  Enter     mappings of the selected process; q or Esc goes back
  b         count the bloat of the selected process
  q         quit

Exit status: 0, 2 error";

/// Show huge pages, stalls and predicted gain of all processes
///
/// Keeps its own CPU use below 1 % of a core: with many processes, it reads them less often. Its
/// start takes up to 0.1 s of CPU time. Requires no permission for your own processes. Without a
/// terminal, it prints as with --once.
#[derive(Args)]
#[command(after_help = LEGEND)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    selection: TargetArgs,
    /// Print once, after one interval of samples
    #[arg(long)]
    once: bool,
    /// Print once as JSON object (schema hugepilot.top/2)
    #[arg(long)]
    json: bool,
    /// Time between two readings; the CPU budget may make it longer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_interval)]
    interval: Nanos,
    /// Column that gives the order
    #[arg(long, value_name = "COLUMN", default_value = "stall", value_parser = parse_column())]
    sort: TopColumn,
    /// Reverse the order
    #[arg(long)]
    reverse: bool,
    /// Count zero-filled pages once: 0.1 to 0.5 s per GiB of huge pages, beyond the CPU budget
    #[arg(long)]
    bloat: bool,
}

impl TopArgs {
    /// Arguments of `status` without a target.
    pub(crate) fn once(json: bool) -> Self {
        Self {
            selection: TargetArgs { pid: Vec::new(), name: Vec::new(), cgroup: None },
            once: true,
            json,
            interval: Nanos::seconds(2),
            sort: TopColumn::Stall,
            reverse: false,
            bloat: false,
        }
    }

    /// Lists the processes in view.
    fn pids(&self) -> Result<Vec<Pid>, KernelError> {
        if self.selection.is_empty() {
            return proc::pids(&Root::live());
        }
        // After the start, a name without a process is not an error.
        Ok(self.selection.pids().unwrap_or_default().into_iter().map(Pid).collect())
    }

    fn text(&self, report: &TopReport) -> String {
        if self.json {
            let mut report = report.clone();
            sort_top(&mut report.processes, self.sort, self.reverse);
            return json(&report);
        }
        top_text(report, width(), self.sort, self.reverse)
    }
}

/// Shortest interval: a shorter one gives no more samples.
const MIN_INTERVAL: Nanos = Nanos::millis(200);
/// Longest interval.
const MAX_INTERVAL: Nanos = Nanos::seconds(3600);

fn parse_interval(text: &str) -> Result<Nanos, String> {
    let interval: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if (MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
        return Ok(interval);
    }
    Err(format!("expected {MIN_INTERVAL} to {MAX_INTERVAL}"))
}

fn parse_column() -> impl clap::builder::TypedValueParser<Value = TopColumn> {
    let find = |name: String| TopColumn::ALL.into_iter().find(|column| column.name() == name);
    PossibleValuesParser::new(TopColumn::ALL.map(TopColumn::name))
        .map(move |name| find(name).unwrap_or(TopColumn::Stall))
}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Exit> {
    descriptors::raise_limit();
    // A wrong name or pid is an error now, and later a process that ended.
    args.selection.pids()?;
    for &pid in &args.selection.pid {
        open(pid)?;
    }
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let machine = RunningSystem::new(cpus, Box::new(|| args.pids()))?;
    let mut top = Top::new(machine, args.interval, calibration::Machine::stored().calibration);
    if args.once || args.json || !stdin().is_terminal() || !stdout().is_terminal() {
        print(&args.text(&look_once(&mut top, args)?))?;
        return Ok(Exit::Yes);
    }
    app::run(top, args)
}

/// Looks until there are samples of one interval.
fn look_once(top: &mut Top<RunningSystem<'_>>, args: &TopArgs) -> anyhow::Result<TopReport> {
    let (report, _) = top.look()?;
    if args.bloat {
        for process in &report.processes {
            if process.thp_bytes.is_some_and(|huge| huge > Bytes::ZERO) {
                // Memory that may not be read, or a process that ended, stays unknown.
                top.set_zero_filled(process.pid, count_bloat(process.pid).ok());
            }
        }
    }
    wait(top, FIRST_LOOK);
    top.refill();
    top.look()?;
    wait(top, args.interval);
    Ok(top.look()?.0)
}

/// Sleeps for `time`, and empties the ring buffers meanwhile.
fn wait(top: &mut Top<RunningSystem<'_>>, time: Nanos) {
    let mut left = time;
    while left > Nanos::ZERO {
        let step = left.min(DRAIN_EVERY);
        thread::sleep(Duration::from(step));
        top.table_mut().drain();
        left = left - step;
    }
}

fn count_bloat(pid: Pid) -> Result<Bytes, KernelError> {
    let mut count = BloatCount::new(open(pid.0)?)?;
    while !count.step()? {}
    Ok(count.zero_filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_has_every_measured_column() {
        for column in TopColumn::ALL {
            let title = column.title();
            let is_plain = ["PID", "USER", "COMMAND"].contains(&title);
            assert!(is_plain || LEGEND.contains(title), "{title}");
        }
    }

    #[test]
    fn intervals_have_limits() {
        assert_eq!(parse_interval("500ms"), Ok(Nanos::millis(500)));
        for text in ["0", "100ms", "2h", "x"] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}
