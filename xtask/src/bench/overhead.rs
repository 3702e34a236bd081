//! Cost of sampling and recording: speed of the target; CPU time and memory of hugepilot.
//!
//! A shared machine drifts by more within seconds than recording costs. So two equal workloads
//! alternate on one CPU in slices of a fifth of a second, and one of them is sampled by
//! `tune --dry-run`, or recorded by `record --every 10ms`. Their pages lie elsewhere in memory,
//! which makes one of them faster by itself: so each of them is recorded in turn, and the mean of
//! both ratios is without that.

mod twins;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use hugepilot_recording::RecordReport;
use hugepilot_stats::Ratios;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use twins::{Crossing, Twins};

use super::arguments::number;
use super::pairs::{line, median};
use super::workload::Workload;

/// Arguments of the benchmark.
struct Arguments<'a> {
    is_recorded: bool,
    pairs: usize,
    /// Whole minutes of the recordings whose files are measured; 0 for none.
    minutes: u64,
    footprint: &'a str,
    hot: &'a str,
    rate: Option<&'a str>,
}

impl<'a> Arguments<'a> {
    fn parse(args: &[&'a str]) -> Result<Self> {
        let (is_recorded, args) = match args {
            ["record", rest @ ..] => (true, rest),
            _ => (false, args),
        };
        let (mut pairs, mut minutes, mut plain) = (30, 0, Vec::new());
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} takes a number"));
            match arg {
                "--pairs" => pairs = number(arg, value()?)?,
                "--minutes" => minutes = number(arg, value()?)?,
                plain_one => plain.push(plain_one),
            }
        }
        if let Some(count) = plain.first().and_then(|text| text.parse().ok()) {
            pairs = count;
            plain.remove(0);
        }
        ensure!(pairs >= 6, "fewer than 6 pairs show no spread");
        ensure!(minutes == 0 || is_recorded, "--minutes is of `record`");
        let [footprint, hot] = [(0, "4GiB"), (1, "512MiB")]
            .map(|(at, otherwise)| plain.get(at).copied().unwrap_or(otherwise));
        Ok(Self { is_recorded, pairs, minutes, footprint, hot, rate: plain.get(2).copied() })
    }
}

/// `[record] [PAIRS=30|--pairs N] [--minutes N=0] [FOOTPRINT=4GiB] [HOT=512MiB] [RATE]`, by
/// default the command's rate. A pair takes 20 s.
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let Arguments { is_recorded, pairs, minutes, footprint, hot, rate } = Arguments::parse(args)?;
    let cpu = leave_first_cpu()?;
    let hot_set = ["hot-set", "--footprint", footprint, "--hot", hot];
    let twin = || Workload::start_stopped_on(cpu, hugepilot, &hot_set);
    let mut twins = Twins::new([twin()?, twin()?])?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file.rec");
    let observer = |pid: &str| {
        let mut command = Command::new(hugepilot);
        if is_recorded {
            command.args(["record", "--every", "10ms", "--force", "-p", pid, "-o"]).arg(&file);
        } else {
            // The usual rate, also before the first plan.
            let observe = ["--observe", "60s", "--for", "60s", "--trial-rate", "1"];
            command.args(["tune", "--dry-run", "--json", "-p", pid]).args(observe);
        }
        command.args(rate.map(|rate| format!("--rate={rate}")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().context("cannot start hugepilot")
    };
    println!("{:<6} {:>8} {:>8} {:>8}", "pair", "first", "second", "both");
    let mut crossings = Vec::new();
    for pair in 1..=pairs {
        let crossing = twins.cross(&observer)?;
        let [first, second] = crossing.ratios;
        println!("{pair:<6} {first:>8.4} {second:>8.4} {:>8.4}", crossing.ratio());
        crossings.push(crossing);
    }
    let name = if is_recorded { "recorded" } else { "sampled" };
    println!("{name} / alone: {}", line(&Ratios::of(crossings.iter().map(Crossing::ratio))));
    let [cores, peaks] = [|one: &Crossing| one.cores, |one: &Crossing| one.peak_mib]
        .map(|of| median(crossings.iter().map(of)));
    println!("hugepilot: median {cores:.4} of a core, peak memory {peaks:.1} MiB");
    if minutes > 0 {
        sizes(hugepilot, twins.proceed()?, minutes, folder.path())?;
    }
    Ok(())
}

/// Leaves the first CPU that this process may use to the workloads: this process and hugepilot run
/// on the others. Returns it.
fn leave_first_cpu() -> Result<usize> {
    let mut cpus = sched_getaffinity(None).context("cannot read the CPUs to use")?;
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| cpus.is_set(cpu)).context("no CPU to use")?;
    cpus.unset(first);
    ensure!(cpus.count() > 0, "one CPU: hugepilot needs another one than the workload");
    sched_setaffinity(None, &cpus).context("cannot choose CPUs")?;
    Ok(first)
}

/// Prints the bytes per minute and the CPU time of complete recordings of whole minutes, of the
/// same time: symbols and the stalls by code are written every 10 s, so a short recording has less.
fn sizes(hugepilot: &Path, pid: &str, minutes: u64, folder: &Path) -> Result<()> {
    let recordings = ["100ms", "10ms"].map(|every| {
        let (file, duration) = (folder.join(every), format!("{}s", minutes * 60));
        let mut command = Command::new(hugepilot);
        command.args(["record", "--json", "--every", every, "--duration", &duration, "-p", pid]);
        command.arg("-o").arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
        (every, file, command.stdout(Stdio::piped()).spawn())
    });
    println!(
        "{:<8} {:>8} {:>10} {:>14} {:>10}",
        "slice", "minutes", "bytes", "bytes/minute", "of a core"
    );
    for (every, file, recording) in recordings {
        let output = recording?.wait_with_output()?;
        ensure!(output.status.success(), "hugepilot record --every {every} failed");
        let report: RecordReport = serde_json::from_slice(&output.stdout)?;
        let (bytes, cores) = (std::fs::metadata(&file)?.len(), report.own_cpu_ratio);
        println!("{every:<8} {minutes:>8} {bytes:>10} {:>14} {cores:>10.4}", bytes / minutes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_anywhere_and_are_checked() {
        let parse = Arguments::parse;
        let found =
            parse(&["record", "2GiB", "--pairs", "200", "512MiB", "--minutes", "1"]).unwrap();
        assert!(found.is_recorded && found.rate.is_none());
        assert_eq!((found.pairs, found.minutes), (200, 1));
        assert_eq!((found.footprint, found.hot), ("2GiB", "512MiB"));
        assert_eq!(parse(&["14", "64MiB", "2MiB", "997"]).unwrap().pairs, 14);
        for wrong in [&["--pairs", "5"][..], &["--pairs"], &["--minutes", "1"], &["--pairs", "x"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
