//! Counts and warnings of a trace.

use hugepilot_units::{Bytes, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sentence::{Sentence, counted, number};

/// Counts of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceTotals {
    /// Accesses in the trace.
    pub accesses: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Threads with accesses.
    pub threads: u64,
    /// Touched base pages; `None` above 2 TiB of touched regions.
    pub touched_pages: Option<u64>,
    /// Touched regions of 2 MiB; `None` above 2 TiB.
    pub touched_regions: Option<u64>,
}

/// Mapping with accesses. Overlapping ones of one name, one after the other in time, are one: a
/// mapping grows, or merges with its neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedMapping {
    /// File, `[heap]`, `[stack]` or `[anon]`.
    pub name: String,
    /// Begin.
    pub start: VirtAddr,
    /// Length.
    pub bytes: Bytes,
    /// Accesses.
    pub accesses: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Touched base pages; `None` above 2 TiB of touched regions in the trace.
    pub touched_pages: Option<u64>,
    /// Touched regions of 2 MiB; `None` likewise.
    pub touched_regions: Option<u64>,
}

/// Phase of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedPhase {
    /// Name, such as `pr 3`.
    pub name: String,
    /// Accesses until the begin of the next phase.
    pub accesses: u64,
    /// Stores among them.
    pub stores: u64,
}

/// Observation about a trace. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum TraceWarning {
    /// The program forked. Children are not traced.
    #[text(
        "the program forked {} not traced",
        counted(*children, "child, which is", "children, which are")
    )]
    #[help("trace the child itself if it does the work")]
    Forked {
        /// Children.
        children: u64,
    },
    /// Accesses that could not be recorded.
    #[text(
        "the trace lacks {}: the address is not in the program, or the thread was above the limit",
        counted(*accesses, "access", "accesses")
    )]
    Lost {
        /// Accesses.
        accesses: u64,
    },
    /// The program exited without notice: it replaced itself by `execve`.
    #[text("the program ended without notice, as by execve; the new program is not traced")]
    #[help("trace the program itself, not the one that starts it")]
    Replaced,
    /// The program exited with a status other than 0.
    #[text("the program exited with status {status}")]
    Failed {
        /// Status.
        status: i32,
    },
    /// A signal killed the program.
    #[text("signal {signal} killed the program; the trace ends there")]
    Killed {
        /// Signal.
        signal: i32,
    },
    /// The imported file was cut.
    #[text("the file is cut; the trace has the accesses before")]
    #[help("check that the command that wrote it ended")]
    Cut,
    /// `--from-phase`, `--to-phase`: the trace has some phases.
    #[text("the trace has some phases of the kernel: --from-phase or --to-phase")]
    Phases,
    /// `--skip`: the trace lacks the first accesses.
    #[text("the trace lacks the first accesses of the program: --skip {accesses}")]
    Skipped {
        /// Accesses.
        accesses: u64,
    },
    /// `--window`: the trace has the first accesses of each period.
    #[text(
        "the trace has windows of the accesses of the program: --window {accesses}/{of_accesses}"
    )]
    Windowed {
        /// Accesses of each period that the trace has.
        accesses: u64,
        /// Length of a period.
        of_accesses: u64,
    },
    /// `--max-accesses` ended the trace.
    #[text("--max-accesses ended the trace before the program")]
    MaxAccesses,
    /// `--max-bytes` ended the trace.
    #[text("--max-bytes ended the trace before the program")]
    MaxBytes,
    /// A signal to hugepilot ended the trace.
    #[text("a signal to hugepilot ended the trace")]
    Interrupted,
    /// The trace has no access, so no simulation is possible.
    #[text("the trace has no access")]
    #[help(
        if *omitted_accesses > 0,
        "skip fewer accesses: --skip {} or less",
        omitted_accesses - 1
    )]
    Empty {
        /// Accesses of the program outside the selected part.
        omitted_accesses: u64,
    },
    /// The simulation ends before the program: its mappings and the former ones need too much
    /// memory.
    #[text(
        "the simulation ends after access {}: the mappings of the program and its former ones need \
         more than {most_bytes} of memory",
        number(*accesses)
    )]
    TooManyMappings {
        /// Accesses before.
        accesses: u64,
        /// Memory for mappings, at most.
        most_bytes: Bytes,
    },
}

impl TraceWarning {
    /// Returns the option because of which the trace has only a part of the accesses.
    pub const fn option(&self) -> Option<&'static str> {
        match self {
            Self::Phases => Some("--from-phase or --to-phase"),
            Self::Skipped { .. } => Some("--skip"),
            Self::Windowed { .. } => Some("--window"),
            Self::MaxAccesses => Some("--max-accesses"),
            Self::MaxBytes => Some("--max-bytes"),
            _ => None,
        }
    }
    /// Whether the trace ends before its program would have, without such an option.
    pub const fn is_early_end(&self) -> bool {
        matches!(
            self,
            Self::Killed { .. }
                | Self::Replaced
                | Self::Cut
                | Self::Interrupted
                | Self::TooManyMappings { .. }
        )
    }
    /// Whether the trace has only a part of the accesses of a whole run.
    pub const fn is_part(&self) -> bool {
        self.option().is_some() || self.is_early_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_its_option() {
        let part = [
            TraceWarning::Phases,
            TraceWarning::Skipped { accesses: 200_000 },
            TraceWarning::Windowed { accesses: 1000, of_accesses: 100_000 },
            TraceWarning::MaxAccesses,
            TraceWarning::MaxBytes,
        ];
        for warning in &part {
            assert!(warning.text().contains(warning.option().unwrap()), "{}", warning.text());
        }
        assert!(part[1].text().ends_with("--skip 200000"), "{}", part[1].text());
        assert!(part[2].text().ends_with("--window 1000/100000"), "{}", part[2].text());
    }

    #[test]
    fn one_lost_access_is_one() {
        let text = |accesses| TraceWarning::Lost { accesses }.text();
        assert!(text(1).starts_with("the trace lacks 1 access: "), "{}", text(1));
        assert!(text(2).starts_with("the trace lacks 2 accesses: "), "{}", text(2));
    }
}
