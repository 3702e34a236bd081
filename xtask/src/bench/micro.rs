//! Agreement of the micro-benchmarks with independent tools: STREAM and multichase.
//!
//! The tools run interleaved with `hugepilot lab`, on the same sizes and pages. STREAM is compiled
//! with the size of its arrays, which its output states, and placed as `lab stream`: each array at
//! the start of a page, and a page apart. `copy` becomes `memcpy`, which moves several pages at a
//! time, and takes longer if the arrays start amid a page:
//!
//! ```text
//! gcc -c -O3 -fdata-sections -DOFFSET=512 -DSTREAM_ARRAY_SIZE=67108864 -mcmodel=medium stream.c
//! for array in a b c; do objcopy --set-section-alignment .lbss.$array=4096 stream.o; done
//! gcc -mcmodel=medium stream.o -o stream
//! ```

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hugepilot_stats::Rounds;
use hugepilot_units::Bytes;
use serde_json::Value;

use super::arguments::Positional;
use super::pairs::line;
use crate::run::{in_path, json, stdout};
use crate::status::thp_always;

/// Largest deviation of the median that counts as agreement.
const TOLERANCE: f64 = 0.05;
const KERNELS: [&str; 4] = ["Copy", "Scale", "Add", "Triad"];
const STREAM: &str = "HUGEPILOT_STREAM";
const MULTICHASE: &str = "HUGEPILOT_MULTICHASE";

/// Kind of page of a sweep, and how multichase visits a line of each: at a stride of a page.
///
/// multichase places 64 lines at random in their strides and repeats these offsets, so that about
/// one in 12 of the 64 sets of a first-level cache gets three of each 64 lines or more, and others
/// none. `tlb-sweep` spreads its lines evenly. So the two differ where the lines fill more than a
/// quarter of a cache but not more than all of it: at 512 base pages on a Zen 4. Lines of huge
/// pages fill 64 of the 2,048 sets of its second level, and differ from 256 pages on.
struct Sweep {
    pages: &'static str,
    flag: Option<&'static str>,
    stride: u64,
    counts: [u64; 8],
}

const SWEEPS: [Sweep; 2] = [
    Sweep {
        pages: "base",
        flag: None,
        stride: 4 << 10,
        counts: [32, 64, 128, 512, 1024, 2048, 4096, 16384],
    },
    Sweep {
        pages: "thp",
        flag: Some("-H"),
        stride: 2 << 20,
        counts: [16, 32, 64, 96, 128, 256, 512, 1024],
    },
];

/// Parts of the benchmark.
const PARTS: [&str; 3] = ["stream", "latency", "sweep"];

/// `[PAIRS=7] [SIZE=1GiB] [stream|latency|sweep…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let words = Positional::read(args, (7, 5), "1GiB")?;
    let (count, parts) = (words.count, words.chosen(&PARTS, |part| part)?);
    let size: Bytes = words.size.parse().context("SIZE is one such as 1GiB")?;
    let is_wanted = |part: &str| parts.contains(&&part);
    println!("ratios of hugepilot to the tool, interleaved; they agree within {TOLERANCE}\n");
    match tool(STREAM, "stream") {
        Some(stream) if is_wanted("stream") => bandwidth(hugepilot, &stream, count)?,
        None if is_wanted("stream") => absent("STREAM", STREAM),
        _ => {}
    }
    if !is_wanted("latency") && !is_wanted("sweep") {
        return Ok(());
    }
    let Some(multichase) = tool(MULTICHASE, "multichase") else {
        absent("multichase", MULTICHASE);
        return Ok(());
    };
    if is_wanted("latency") {
        for (pages, flag) in [("base", None), ("thp", Some("-H"))] {
            latency(hugepilot, &multichase, (pages, flag), size.get(), count)?;
        }
    }
    if is_wanted("sweep") {
        for sweep in SWEEPS {
            translation(hugepilot, &multichase, &sweep, count)?;
        }
    }
    Ok(())
}

/// Returns the program of a variable; without the variable, that of `PATH`.
fn tool(variable: &str, name: &str) -> Option<String> {
    std::env::var(variable).ok().or_else(|| in_path(name).then(|| name.to_owned()))
}

fn absent(tool: &str, variable: &str) {
    println!("{tool}: not available, because it is not in PATH; set {variable}=FILE");
}

/// Compares the four kernels of STREAM. A run measures all of them.
fn bandwidth(hugepilot: &Path, stream: &str, count: usize) -> Result<()> {
    let first = stdout(&mut Command::new(stream))?;
    let elements = first.lines().find_map(|line| line.strip_prefix("Array size = "));
    let elements = elements.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let array = elements.context("STREAM states its array size")? * 8;
    let has_offset = first.lines().any(|line| line.contains("Offset = 512 "));
    ensure!(has_offset, "STREAM has another offset; compile it with -DOFFSET=512");
    println!("STREAM, {array} bytes per array, 1 thread, pages by the system's setting");
    // A program that gives no advice has these.
    let pages = if thp_always().is_some() { "thp" } else { "base" };
    let own = || {
        let json = lab(hugepilot, &["stream", "--pages", pages, "--array"], array)?;
        let rate = |index: usize| json["kernels"][index]["best_bytes_per_second"].as_f64();
        Ok([0, 1, 2, 3].map(|index| rate(index).unwrap_or(f64::NAN)))
    };
    let other = || {
        let text = stdout(&mut Command::new(stream))?;
        Ok(KERNELS.map(|kernel| stream_rate(&text, kernel).unwrap_or(f64::NAN)))
    };
    verdicts(&KERNELS.map(|kernel| format!("stream {kernel}")), count, other, own)
}

/// Returns the best rate of a kernel from the output of STREAM, in bytes per second.
fn stream_rate(text: &str, kernel: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(kernel)?.strip_prefix(':'))?;
    let megabytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(megabytes * 1e6)
}

/// Compares the latency of one chain through every line.
fn latency(
    hugepilot: &Path,
    multichase: &str,
    (pages, flag): (&str, Option<&str>),
    bytes: u64,
    count: usize,
) -> Result<()> {
    let other = || chase(multichase, flag, "4", 64, bytes).map(|latency| [latency]);
    let own = || {
        let words = ["pchase", "--pages", pages, "--rounds", "4", "--time", "500ms", "--footprint"];
        let json = lab(hugepilot, &words, bytes)?;
        // multichase reports its fastest sample.
        Ok([json["points"][0]["latency_ns"]["min"].as_f64().unwrap_or(f64::NAN)])
    };
    verdicts(&[format!("latency {pages}")], count, other, own)
}

/// Compares the latency of a line per page, at each number of pages, with a chase of multichase at
/// that stride.
fn translation(hugepilot: &Path, multichase: &str, sweep: &Sweep, count: usize) -> Result<()> {
    let Sweep { pages, flag, stride, counts } = *sweep;
    let other = || {
        let mut latencies = [f64::NAN; 8];
        for (latency, count) in latencies.iter_mut().zip(counts) {
            *latency = chase(multichase, flag, "2", stride, stride * count)?;
        }
        Ok(latencies)
    };
    let own = || {
        let json = lab(hugepilot, &["tlb-sweep", "--pages", pages, "--size"], 2 << 30)?;
        Ok(counts.map(|count| latency_at(&json, count).unwrap_or(f64::NAN)))
    };
    verdicts(&counts.map(|count| format!("{count} {pages} pages")), count, other, own)
}

/// Returns the nanoseconds of a step of multichase: a random chase at a stride through `bytes`.
fn chase(
    multichase: &str,
    flag: Option<&str>,
    samples: &str,
    stride: u64,
    bytes: u64,
) -> Result<f64> {
    let [stride, size] = [stride, bytes].map(|number| number.to_string());
    let mut command = Command::new(multichase);
    command.args(["-c", "simple", "-n", samples, "-s", &stride, "-m", &size, "-T", &size]);
    Ok(multichase_ns(&stdout(command.args(flag))?).unwrap_or(f64::NAN))
}

/// Returns the latency at a number of pages from the first curve of a sweep.
fn latency_at(json: &Value, pages: u64) -> Option<f64> {
    let points = json["curves"][0]["points"].as_array()?;
    points.iter().find(|point| point["page_count"] == pages)?["latency_ns"].as_f64()
}

/// Returns the time in the output of multichase, which may contain control characters of its
/// progress before the number.
fn multichase_ns(text: &str) -> Option<f64> {
    let number = text.trim_end().rsplit(|c: char| !(c.is_ascii_digit() || c == '.')).next()?;
    number.parse().ok()
}

/// Measures the named values of the other tool and of hugepilot, and prints a line for each.
fn verdicts<const N: usize>(
    names: &[String; N],
    count: usize,
    other: impl Fn() -> Result<[f64; N]>,
    own: impl Fn() -> Result<[f64; N]>,
) -> Result<()> {
    let one = |_, who| if who == 0 { other() } else { own() };
    let measured = Rounds::after_warm_up(2, count, one)?;
    for (index, name) in names.iter().enumerate() {
        let ratios = measured.map(|values| values[index]).ratios(1, 0);
        let agrees = ratios.median().is_some_and(|ratio| (ratio - 1.0).abs() <= TOLERANCE);
        let word = if agrees { "agrees" } else { "differs" };
        println!("{name:<16} {word:<8} {}", line(&ratios));
    }
    Ok(())
}

fn lab(hugepilot: &Path, words: &[&str], bytes: u64) -> Result<Value> {
    let mut command = Command::new(hugepilot);
    json(command.arg("lab").args(words).arg(bytes.to_string()).arg("--json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_the_tools_are_read() {
        let text = "Function    Best Rate MB/s  Avg time\nCopy:            3056.6     0.592626\n\
                    Triad:           3003.9     0.780349\n";
        assert_eq!(stream_rate(text, "Copy"), Some(3_056_600_000.0));
        assert_eq!(stream_rate(text, "Triad"), Some(3_003_900_000.0));
        assert_eq!(stream_rate(text, "Add"), None);
        assert_eq!(multichase_ns("1\u{8} 164.9\n"), Some(164.9));
        assert_eq!(multichase_ns(" 96.5\n"), Some(96.5));
        assert_eq!(multichase_ns(""), None);
        let points = r#"{"curves": [{"points": [{"page_count": 8, "latency_ns": 1.5}]}]}"#;
        let json: Value = serde_json::from_str(points).unwrap();
        assert_eq!((latency_at(&json, 8), latency_at(&json, 9)), (Some(1.5), None));
    }
}
