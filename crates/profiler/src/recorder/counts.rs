//! Counts of a recorder.

use hugepilot_record::ProvenanceCounts;
use hugepilot_recording::Line;

use super::tree::SeenUse;

/// Share of samples with callers, below which a recording warns.
const FEW_CALLERS: f64 = 0.9;

/// Counts of a recorder so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderCounts {
    /// Slices of time.
    pub slices: u64,
    /// Processes, each program once.
    pub processes: u64,
    /// Processes that are recorded now.
    pub live: usize,
    /// Stall samples by provenance.
    pub samples: ProvenanceCounts,
    /// Stall samples in the lines by code so far, and those of them with callers.
    pub by_code: (u64, u64),
    /// Use of processes in the slices so far.
    pub(super) seen: SeenUse,
}

impl RecorderCounts {
    /// Returns the share of the samples by code that have callers; `None` without samples.
    #[allow(clippy::cast_precision_loss)]
    pub fn callers_ratio(&self) -> Option<f64> {
        let (all, called) = self.by_code;
        (all > 0).then(|| called as f64 / all as f64)
    }

    /// Counts the samples of the lines by code, and the use in slices.
    pub(super) fn count(&mut self, lines: &[Line]) {
        self.seen.count(lines);
        let stalls = lines.iter().filter_map(|line| match line {
            Line::Code(slice) => Some(&slice.stalls),
            _ => None,
        });
        for stall in stalls.flatten() {
            self.by_code.0 += stall.samples;
            self.by_code.1 += if stall.callers.is_empty() { 0 } else { stall.samples };
        }
    }

    /// Returns a warning if many samples have no caller.
    pub(super) fn few_callers(&self) -> Option<String> {
        let ratio = self.callers_ratio()?;
        (ratio < FEW_CALLERS).then(|| {
            format!(
                "{:.0} % of the stall samples have callers: the kernel walks stacks by frame \
                 pointers; compile with -fno-omit-frame-pointer (C, C++), or \
                 -C force-frame-pointers=yes (Rust)",
                ratio * 100.0
            )
        })
    }
}
