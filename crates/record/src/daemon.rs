//! The log of `hugepilot daemon`, schema `hugepilot.daemon/2`: one JSON object for each event, one to a line.
//!
//! If you change a field here, say so in CHANGELOG.md; if you remove or redefine one, raise the number in [`SCHEMA`].

use std::collections::BTreeMap;

use hugepilot_units::{Bytes, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pid;

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.daemon/2";

/// One line of the log: what happened, and what was known when it was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// [`SCHEMA`].
    pub schema: String,
    /// When, in seconds since 1970.
    pub unix_seconds: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// What was seen of memory just before.
    #[serde(flatten)]
    pub seen: Seen,
}

/// Memory in use, and the marks that it is held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    /// `used_bytes` of `limit_bytes`.
    pub use_ratio: f64,
    /// Memory that could not be had without swapping or killing.
    pub used_bytes: Bytes,
    /// All memory of the system, or the limit of the cgroup; 2^64 − 1 where there is none.
    pub limit_bytes: Bytes,
    /// The part in use of the limit at which processes are killed: of a cgroup, without `memory.high`.
    pub hard_limit_use_ratio: f64,
    /// Part of the last ten seconds in which some task waited for memory; `None` where the kernel keeps no such account.
    pub psi_some_ratio: Option<f64>,
    /// Work begins at this use.
    pub high_ratio: Share,
    /// And ends below this.
    pub low_ratio: Share,
    /// From this `hard_limit_use_ratio` on the CPU budget may be exceeded.
    pub critical_ratio: Share,
    /// From this `psi_some_ratio` on, work begins below `high_ratio` already.
    pub psi_start_ratio: Share,
    /// Whether nothing is really split.
    pub dry_run: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The daemon watches from now on.
    Started {
        /// `system`, or the directory of the cgroup.
        scope: String,
        /// The order, as on the command line.
        order: String,
        /// Time between two looks at memory use.
        interval_seconds: f64,
        /// The CPU budget, in parts of one core.
        cpu_budget_ratio: Share,
        /// How long a region is left alone after it was split.
        cool_down_seconds: f64,
        /// So many times may a region be made huge again before it is left alone for good.
        max_recollapses: u32,
    },
    /// Memory is short: a stretch of work begins.
    Working {
        /// What began it.
        why: Why,
    },
    /// The huge pages of all processes were looked through.
    Planned {
        /// The order in use: `exact` instead of `heat` where there was no time to sample, or no right.
        order: String,
        /// Processes that can give something.
        processes: u64,
        /// Of these, the smallest, which could not be sampled and count as cold: there are too many, or it may not be.
        not_sampled: u64,
        /// Their huge pages that could be read.
        huge_pages: u64,
        /// Those that could not be read, so that their bloat is unknown.
        #[serde(default)]
        unread_huge_pages: u64,
        /// Huge pages that could be split.
        candidates: u64,
        /// What splitting all of these should free.
        reclaimable_bytes: Bytes,
        /// What must be freed to come below the low mark.
        requested_bytes: Bytes,
        /// Huge pages passed over, by reason.
        skipped: BTreeMap<String, u64>,
        /// How long it took, pauses for the CPU budget included.
        seconds: f64,
        /// Whether the CPU budget was exceeded, because use was at or above the critical mark.
        over_budget: bool,
    },
    /// Huge pages were split since the last such line (or would be, where `dry_run`). At most one line a second.
    Freed {
        /// What the page map showed freed.
        freed_bytes: Bytes,
        /// Huge pages seen to be split.
        huge_pages_split: u64,
        /// Not tried when their turn came, by reason.
        skipped: BTreeMap<String, u64>,
        /// Tried in vain, by errno; `still_huge` where the kernel said yes and did nothing.
        failed: BTreeMap<String, u64>,
        /// Whose.
        processes: Vec<ProcessFreed>,
        /// How long it took, pauses included.
        seconds: f64,
        /// CPU time of our own in it.
        cpu_seconds: f64,
        /// Whether the CPU budget was exceeded, because use was at or above the critical mark.
        over_budget: bool,
        /// Why khugepaged may make these huge pages again, and what to change; said once, `None` where it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recollapse_risk: Option<String>,
    },
    /// Use is below the low mark: the stretch of work is over.
    Idle(Totals),
    /// There is nothing left to free that is worth it. Said once, until 1 % of what is wanted is freed or use falls below the low
    /// mark.
    Exhausted {
        /// Why there is nothing.
        why: String,
        /// When we look again; each time in vain it is twice as long, up to five minutes.
        retry_seconds: f64,
    },
    /// Regions that were split are huge again.
    Recollapsed {
        /// Whose.
        pid: Pid,
        /// Its name.
        command: String,
        /// How many regions.
        regions: u64,
        /// Of these, the ones that are left alone from now on.
        excluded: u64,
        /// Who may have done it, by which setting, and what to change.
        cause: String,
    },
    /// A process that is left alone, said once.
    Skipped {
        /// Which.
        pid: Pid,
        /// Its name, where it may be known.
        command: String,
        /// Why.
        why: String,
    },
    /// The limit of the cgroup was lifted, or there is one again.
    Limit {
        /// Whether nothing limits its memory now, so that there is no watermark: the daemon rests.
        lifted: bool,
    },
    /// The configuration was read again.
    Reloaded {
        /// Why it was not taken and the old one is kept; `None` when it was taken.
        refused: Option<String>,
    },
    /// A clean stop.
    Stopped(Totals),
}

/// What began a stretch of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Use reached the high mark.
    High,
    /// Tasks wait for memory, and use is not below the low mark.
    Pressure,
}

/// What was freed of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessFreed {
    /// Its number.
    pub pid: Pid,
    /// Its name.
    pub command: String,
    /// What the page map showed freed.
    pub freed_bytes: Bytes,
    /// Its huge pages that were split.
    pub huge_pages_split: u64,
}

/// Sums over a stretch of work, or over the life of the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// What the page map showed freed; where `dry_run`, what would be.
    pub freed_bytes: Bytes,
    /// Huge pages seen to be split.
    pub huge_pages_split: u64,
    /// Regions that were split and then seen huge again.
    pub recollapses: u64,
    /// How long.
    pub seconds: f64,
    /// CPU time of our own.
    pub cpu_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: Event) -> Line {
        let seen = Seen {
            use_ratio: 0.81,
            used_bytes: Bytes::mib(810),
            limit_bytes: Bytes::mib(1000),
            hard_limit_use_ratio: 0.81,
            psi_some_ratio: None,
            high_ratio: Share::percent(80.0),
            low_ratio: Share::percent(65.0),
            critical_ratio: Share::percent(92.0),
            psi_start_ratio: Share::percent(20.0),
            dry_run: false,
        };
        Line { schema: SCHEMA.to_owned(), unix_seconds: 1.5, event, seen }
    }

    #[test]
    fn every_line_has_its_event_and_what_it_was_decided_from() {
        let working = line(Event::Working { why: Why::High });
        let json = serde_json::to_value(&working).unwrap();
        assert_eq!(json["schema"], "hugepilot.daemon/2");
        assert_eq!((&json["event"], &json["why"]), (&"working".into(), &"high".into()));
        assert_eq!((&json["use_ratio"], &json["high_ratio"]), (&0.81.into(), &0.8.into()));
        assert!(json["psi_some_ratio"].is_null());
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let totals = Totals { freed_bytes: Bytes::gib(1), seconds: 2.5, ..Totals::default() };
        let recollapsed = Event::Recollapsed {
            pid: Pid(7),
            command: "x".into(),
            regions: 3,
            excluded: 1,
            cause: "khugepaged".into(),
        };
        for event in [Event::Stopped(totals), recollapsed, Event::Reloaded { refused: None }] {
            let line = line(event);
            let text = serde_json::to_string(&line).unwrap();
            assert!(!text.contains('\n'));
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        }
    }
}
