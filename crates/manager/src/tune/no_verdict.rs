//! Detection of reports without a verdict: nothing was promoted, and the gain is unknown.

use hugepilot_kernel::{Process, Target};
use hugepilot_record::tune::{NoVerdict, TuneReport};

/// Largest share of samples without decoded code that still allows a verdict.
const MAX_UNDECODED: f64 = 0.5;
/// End of the addresses of 32-bit programs.
const END_OF_32_BITS: u64 = 1 << 32;

/// Cause why `report` on `process` has no verdict; `None` if it has one.
pub(super) fn no_verdict(report: &TuneReport, process: &Process) -> Option<NoVerdict> {
    if !report.selected.is_empty() || report.attempted_regions > 0 || report.stopped.is_some() {
        return None;
    }
    if report.sampler.samples == 0 {
        return Some(match process.stat() {
            Ok(stat) if stat.is_stopped() => NoVerdict::TargetStopped { pid: process.id().pid },
            Ok(_) => NoVerdict::TargetIdle,
            Err(_) => NoVerdict::EndedTooSoon,
        });
    }
    let undecoded_ratio =
        report.sampler.undecoded_ratio.filter(|&undecoded| undecoded > MAX_UNDECODED)?;
    Some(if is_32_bit(process) {
        NoVerdict::Code32Bit { undecoded_ratio }
    } else {
        NoVerdict::CodeNotDecoded { undecoded_ratio }
    })
}

fn is_32_bit(process: &Process) -> bool {
    let ends =
        process.layout().unwrap_or_default().into_iter().map(|mapping| mapping.range.end.get());
    ends.max().is_some_and(|end| end <= END_OF_32_BITS)
}
