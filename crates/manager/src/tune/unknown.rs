//! When a report has no verdict: nothing was promoted, and not for want of a gain.

use hugepilot_kernel::{Process, Target};
use hugepilot_record::tune::{TuneReport, Unknown};

/// Where more samples than this could not be decoded, the rest says too little.
const MOSTLY: f64 = 0.5;
/// Where the addresses of 32-bit programs end.
const END_OF_32_BITS: u64 = 1 << 32;

/// Why `report` on `process` says nothing about a gain, with what to change; `None` if it does.
pub(super) fn cannot_tell(report: &TuneReport, process: &Process) -> Option<Unknown> {
    if !report.selected.is_empty() || report.attempted_regions > 0 || report.stopped.is_some() {
        return None;
    }
    let pid = process.id().pid;
    let sampler = &report.sampler;
    let unknown = |reason: String, fix: String| Some(Unknown { reason, fix });
    if sampler.samples == 0 {
        return match process.stat() {
            Ok(stat) if stat.is_stopped() => unknown(
                "no samples: the process is stopped, by SIGSTOP or a debugger".to_owned(),
                format!("continue it: kill -CONT {pid}"),
            ),
            Ok(_) => unknown(
                "no samples: the process did not run in user mode, because it was idle or busy in the kernel"
                    .to_owned(),
                "look while it works, or longer: --observe 30s".to_owned(),
            ),
            Err(_) => unknown(
                "no samples: the program ended too soon".to_owned(),
                "give it more work, or sample more often: --rate 5000".to_owned(),
            ),
        };
    }
    let undecoded = sampler.undecoded_ratio.filter(|&ratio| ratio > MOSTLY)?;
    let of = format!("{:.0} % of the samples have no address", undecoded * 100.0);
    if is_32_bit(process) {
        return unknown(
            format!("{of}: the process runs 32-bit code, which the sampler does not decode"),
            "run a 64-bit build of the program".to_owned(),
        );
    }
    unknown(
        format!(
            "{of}: the code that they fell on could not be read or decoded, as code made at run time (JIT)"
        ),
        "let hugepilot read the target's memory: run it as root, or give it cap_sys_ptrace"
            .to_owned(),
    )
}

fn is_32_bit(process: &Process) -> bool {
    let ends =
        process.layout().unwrap_or_default().into_iter().map(|mapping| mapping.range.end.get());
    ends.max().is_some_and(|end| end <= END_OF_32_BITS)
}
