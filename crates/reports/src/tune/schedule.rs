//! Report of a schedule that was replayed.

use hugepilot_record::schedule::{FoundBy, ScheduleAction, ScheduledMapping};
use hugepilot_record::{SkipReason, Skips};
use hugepilot_units::VirtAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Events of a schedule in the process of a report. Those that were due are in one of the counts
/// `promoted_events`, `demoted_events`, `superseded_events`, `failed_events`, `pending_events`,
/// `skipped` and `waiting`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleReport {
    /// Program of the schedule.
    pub program: String,
    /// Tool that wrote it.
    pub source: String,
    /// Policy that decided it.
    pub policy: String,
    /// Events of the schedule.
    pub events: u64,
    /// Events whose time came.
    pub due_events: u64,
    /// Promotions verified; in a dry run, those that would be tried.
    pub promoted_events: u64,
    /// Demotions verified; in a dry run, those that would be tried.
    pub demoted_events: u64,
    /// Events that a later event of the same region replaced before they were applied.
    pub superseded_events: u64,
    /// Events that failed as often as allowed.
    pub failed_events: u64,
    /// Events whose turn, or whose next try, had not come at the end.
    pub pending_events: u64,
    /// Events that were not applied and will not be, by reason.
    pub skipped: Skips,
    /// Events that wait, by reason: for memory that is not resident yet, a mapping that does not
    /// exist yet, or a limit.
    pub waiting: Skips,
    /// Due events, but for superseded ones, whose mapping was found by name and ordinal.
    pub found_by_ordinal: u64,
    /// Those whose mapping was found by name and size.
    pub found_by_size: u64,
    /// Those whose mapping was not found.
    pub not_found: u64,
    /// Those whose mapping has a size that differs by more than a region.
    pub resized: u64,
    /// The due events one by one, in a dry run.
    #[serde(default)]
    pub planned: Vec<PlannedEvent>,
}

/// Event of a schedule in a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedEvent {
    /// Time since the process was first seen.
    pub seconds: f64,
    /// Action.
    pub action: ScheduleAction,
    /// Mapping in the schedule.
    pub mapping: ScheduledMapping,
    /// Index of the region in it.
    pub index: u64,
    /// First address of the region in this process; `None` if it has none.
    pub start: Option<VirtAddr>,
    /// Rule by which the mapping was found; `None` if it was not.
    pub found_by: Option<FoundBy>,
    /// Reason why the event could not be applied at that time; `None` if it could.
    pub skip: Option<SkipReason>,
}
