//! Cost of sampling: speed of the target; CPU time and memory of hugepilot.
//!
//! One workload runs throughout. Intervals alone and intervals sampled by `tune --dry-run`, or
//! recorded by `record --every 10ms`, are interleaved.

use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::arguments::number;
use super::pairs::{median, pairs};
use super::workload::Workload;

/// Time before each interval, for hugepilot to attach.
const SETTLE: Duration = Duration::from_millis(600);
/// Length of an interval. Short, because the speed of a shared machine drifts within seconds; many
/// pairs make up for it.
const INTERVAL: Duration = Duration::from_millis(1600);

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
        let (mut pairs, mut minutes, mut plain) = (50, 0, Vec::new());
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
        ensure!(pairs >= 5, "fewer than 5 pairs show no spread");
        ensure!(minutes == 0 || is_recorded, "--minutes is of `record`");
        let [footprint, hot] = [(0, "16GiB"), (1, "1GiB")]
            .map(|(at, otherwise)| plain.get(at).copied().unwrap_or(otherwise));
        Ok(Self { is_recorded, pairs, minutes, footprint, hot, rate: plain.get(2).copied() })
    }
}

/// `[record] [PAIRS=50|--pairs N] [--minutes N=0] [FOOTPRINT=16GiB] [HOT=1GiB] [RATE]`, by
/// default the command's rate.
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let Arguments { is_recorded, pairs: count, minutes, footprint, hot, rate: hz } =
        Arguments::parse(args)?;
    let workload =
        Workload::start(hugepilot, &["hot-set", "--footprint", footprint, "--hot", hot])?;
    let pid = workload.pid.clone();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file.rec");
    let (mut cores, mut peaks) = (Vec::new(), Vec::new());
    let workload = RefCell::new(workload);
    let rate = || workload.borrow_mut().rate(SETTLE, INTERVAL).expect("the workload runs on");
    let stats = pairs(count, rate, || {
        let begin = Instant::now();
        let mut command = Command::new(hugepilot);
        if is_recorded {
            command.args(["record", "--every", "10ms", "--force", "-p", &pid, "-o"]).arg(&file);
        } else {
            // The usual rate, also before the first plan.
            let observe = ["--observe", "15s", "--for", "15s", "--trial-rate", "1"];
            command.args(["tune", "--dry-run", "--json", "-p", &pid]).args(observe);
        }
        command.args(hz.map(|rate| format!("--rate={rate}")));
        let mut sampler = start(command);
        let rate = rate();
        let (seconds, peak) = usage(sampler.id());
        let elapsed = begin.elapsed().as_secs_f64();
        cores.push(seconds / elapsed);
        peaks.push(peak);
        let _ = sampler.kill();
        let _ = sampler.wait();
        rate
    });
    let name = if is_recorded { "recorded" } else { "sampled" };
    print!("{}", stats.table("alone", name, "ops/s"));
    println!(
        "hugepilot: median {:.4} of a core, peak memory {:.1} MiB",
        median(&cores),
        median(&peaks) / 1024.0
    );
    if minutes > 0 {
        sizes(hugepilot, &pid, minutes, folder.path())?;
    }
    Ok(())
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("hugepilot starts")
}

/// Prints the bytes per minute of complete recordings of whole minutes, of the same time: symbols
/// and the stalls by code are written every 10 s, so a short recording has less.
fn sizes(hugepilot: &Path, pid: &str, minutes: u64, folder: &Path) -> Result<()> {
    let recordings = ["100ms", "10ms"].map(|every| {
        let (file, duration) = (folder.join(every), format!("{}s", minutes * 60));
        let mut command = Command::new(hugepilot);
        command.args(["record", "--every", every, "--duration", &duration, "-p", pid, "-o"]);
        command.arg(&file);
        (every, file, start(command))
    });
    println!("{:<8} {:>8} {:>10} {:>14}", "slice", "minutes", "bytes", "bytes/minute");
    for (every, file, mut recording) in recordings {
        ensure!(recording.wait()?.success(), "hugepilot record --every {every} failed");
        let bytes = std::fs::metadata(&file)?.len();
        println!("{every:<8} {minutes:>8} {bytes:>10} {:>14}", bytes / minutes);
    }
    Ok(())
}

/// CPU seconds and peak resident KiB of process `pid`.
fn usage(pid: u32) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| {
        fields.get(field - 3).and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok());
    // Fields 14 and 15 (utime, stime) count hundredths of a second on every Linux.
    ((ticks(14) + ticks(15)) / 100.0, peak.unwrap_or(f64::NAN))
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
        for wrong in [&["--pairs", "4"][..], &["--pairs"], &["--minutes", "1"], &["--pairs", "x"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
