//! Count of the zero-filled pages of one process, in steps of some milliseconds.

use hugepilot_kernel::{KernelError, Process, Target as _};
use hugepilot_profiler::zero_filled;
use hugepilot_record::PageRun;
use hugepilot_units::{AddrRange, Bytes};

/// Huge pages that a step reads: 2 to 10 ms.
const STEP_PAGES: u64 = 32;

/// A count in progress.
pub struct BloatCount {
    process: Process,
    pieces: Vec<PageRun>,
    next: usize,
    /// Zero-filled bytes so far.
    pub zero_filled: Bytes,
}

impl BloatCount {
    /// Lists the huge pages of `process`.
    ///
    /// # Errors
    /// If the process is gone or may not be read.
    pub fn new(process: Process) -> Result<Self, KernelError> {
        let mut pieces = Vec::new();
        let step = process.sizes().huge.times(STEP_PAGES);
        for mapping in process.mappings()?.iter().filter(|mapping| mapping.huge > Bytes::ZERO) {
            let runs = process.page_runs(mapping.range)?.into_iter();
            for run in runs.filter(|run| run.huge && run.present && !run.zero) {
                pieces.extend(parts(run, step));
            }
        }
        Ok(Self { process, pieces, next: 0, zero_filled: Bytes::ZERO })
    }

    /// Returns the share that is done.
    #[allow(clippy::cast_precision_loss)]
    pub fn progress(&self) -> f64 {
        self.next as f64 / self.pieces.len().max(1) as f64
    }

    /// Reads a few huge pages. Returns whether all are read.
    ///
    /// # Errors
    /// If the process is gone or its memory may not be read.
    pub fn step(&mut self) -> Result<bool, KernelError> {
        let Some(piece) = self.pieces.get(self.next) else { return Ok(true) };
        self.zero_filled += zero_filled(&self.process, std::slice::from_ref(piece))?.bytes;
        self.next += 1;
        Ok(self.next == self.pieces.len())
    }
}

/// Cuts a run of huge pages into parts of at most `step`.
fn parts(run: PageRun, step: Bytes) -> Vec<PageRun> {
    let mut parts = Vec::new();
    let mut start = run.range.start;
    while start < run.range.end {
        let end = start.plus(step).min(run.range.end);
        parts.push(PageRun { range: AddrRange::new(start, end), ..run });
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use hugepilot_units::VirtAddr;

    use super::*;

    #[test]
    fn parts_cover_the_run_once() {
        let range = AddrRange::at(VirtAddr::new(2 << 20), Bytes::mib(10));
        let run =
            PageRun { range, present: true, swapped: false, zero: false, huge: true, file: false };
        let parts = parts(run, Bytes::mib(4));
        let lengths: Vec<Bytes> = parts.iter().map(|part| part.range.len()).collect();
        assert_eq!(lengths, [Bytes::mib(4), Bytes::mib(4), Bytes::mib(2)]);
        assert_eq!((parts[0].range.start, parts[2].range.end), (range.start, range.end));
        assert!(parts.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
    }
}
