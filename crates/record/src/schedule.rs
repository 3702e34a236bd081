//! Schedules: promotions and demotions by time, in a file that a simulator or a tune writes, and
//! that a later run of the program replays.
//!
//! A schedule is NDJSON: a [`ScheduleHeader`], then a [`ScheduleEvent`] in each line, in any order.
//! Several units of one time, and the times of several events, must not contradict each other.
//! It has no addresses, which differ from run to run: a region is known by its mapping
//! ([`ScheduledMapping`]) and its index in it.

mod reader;
#[cfg(test)]
mod tests;
mod times;
mod writer;

use std::collections::BTreeMap;
use std::fmt;

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of `schema`.
pub const SCHEMA: &str = "hugepilot.schedule/1";
/// Most events of a schedule.
pub const MAX_EVENTS: usize = 1_000_000;
/// Most distinct mappings of a schedule.
pub const MAX_MAPPINGS: usize = 4096;
/// Longest line, in bytes.
pub const MAX_LINE: usize = 1 << 16;
/// Longest text of a field, in bytes.
pub const MAX_TEXT: usize = 4096;
/// Longest time: over 30 years.
const MAX_SECONDS: f64 = 1e9;
/// Smallest and largest region, in bytes.
const REGION_BYTES: [u64; 2] = [1 << 16, 1 << 40];
/// End of an address space of 57 bits.
const MAX_ADDRESS: u64 = 1 << 57;

/// First line of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleHeader {
    /// [`SCHEMA`].
    pub schema: String,
    /// Program that was traced, for display.
    pub program: String,
    /// Tool that wrote the schedule, for display.
    pub source: String,
    /// Policy that decided, for display.
    pub policy: String,
    /// Size of a region: that of a huge page.
    #[serde(default = "usual_region")]
    pub region_bytes: Bytes,
    /// Memory accesses of the whole run, from which `at.accesses` becomes a share.
    #[serde(default)]
    pub accesses: Option<u64>,
    /// Memory accesses of a second, from which `at.accesses` becomes a time.
    #[serde(default)]
    pub accesses_per_second: Option<f64>,
    /// Duration of the whole run, which relates `at.share` and `at.seconds`.
    #[serde(default)]
    pub seconds: Option<f64>,
}

fn usual_region() -> Bytes {
    Bytes::mib(2)
}

impl Default for ScheduleHeader {
    fn default() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            program: String::new(),
            source: String::new(),
            policy: String::new(),
            region_bytes: usual_region(),
            accesses: None,
            accesses_per_second: None,
            seconds: None,
        }
    }
}

impl ScheduleHeader {
    /// Returns a time as a share of the run; `None` if nothing relates it to the whole run.
    #[allow(clippy::cast_precision_loss)]
    pub fn share_of(&self, at: &ScheduleTime) -> Option<f64> {
        let of_accesses =
            || Some(at.accesses? as f64 / self.accesses.filter(|&all| all > 0)? as f64);
        let of_seconds = || Some(self.own_seconds(at)? / self.seconds.filter(|&all| all > 0.0)?);
        let share = at.share.or_else(of_accesses).or_else(of_seconds)?;
        Some(share.clamp(0.0, 1.0))
    }

    /// Returns a time in seconds since the start of the program; `None` if nothing relates it to
    /// seconds.
    pub fn seconds_of(&self, at: &ScheduleTime) -> Option<f64> {
        self.own_seconds(at).or_else(|| Some(self.share_of(at)? * self.seconds?))
    }

    /// Seconds without the duration of the run.
    #[allow(clippy::cast_precision_loss)]
    fn own_seconds(&self, at: &ScheduleTime) -> Option<f64> {
        at.seconds.or_else(|| Some(at.accesses? as f64 / self.accesses_per_second?))
    }
}

/// Time of an event, in one or more units. The fields of the header convert between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleTime {
    /// Memory accesses before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses: Option<u64>,
    /// Share of the run before it, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Seconds since the start of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleAction {
    /// Put the region on a huge page.
    Promote,
    /// Return it to base pages.
    Demote,
}

impl fmt::Display for ScheduleAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Promote => "promote",
            Self::Demote => "demote",
        })
    }
}

/// Mapping without its address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledMapping {
    /// Name, as `/proc/PID/maps` has it: a path, `[heap]`, `[anon:NAME]`; `[anon]` without a name.
    pub name: String,
    /// Position among the mappings of this name in address order, from 0.
    pub ordinal: u32,
    /// Size.
    pub bytes: Bytes,
}

/// Rule by which a mapping was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// Name and ordinal.
    Ordinal,
    /// Name and size.
    Size,
}

/// Promotion or demotion of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleEvent {
    /// Time.
    pub at: ScheduleTime,
    /// Action.
    pub action: ScheduleAction,
    /// Mapping of the region.
    pub mapping: ScheduledMapping,
    /// Position of the region among the aligned regions inside its mapping, from 0.
    pub index: u64,
}

/// Event of a [`Schedule`], with the position of its mapping there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexedEvent {
    /// Time.
    pub at: ScheduleTime,
    /// Action.
    pub action: ScheduleAction,
    /// Position in [`Schedule::mappings`].
    pub mapping: u32,
    /// Index of the region.
    pub index: u64,
}

/// Schedule: a header and checked events.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    header: ScheduleHeader,
    mappings: Vec<ScheduledMapping>,
    events: Vec<IndexedEvent>,
    known: BTreeMap<ScheduledMapping, u32>,
    times: times::Times,
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        (&self.header, &self.mappings, &self.events)
            == (&other.header, &other.mappings, &other.events)
    }
}

/// Value that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}, found {value}")]
pub struct ScheduleProblem {
    /// Field, such as `at.share`.
    pub field: &'static str,
    /// Value, shortened.
    pub value: String,
    /// Requirement of the field.
    pub problem: String,
}

impl ScheduleProblem {
    /// A problem with a value, which is cut after 80 characters.
    pub(crate) fn new(
        field: &'static str,
        value: impl fmt::Display,
        problem: impl Into<String>,
    ) -> Self {
        let value = value.to_string();
        let cut = if value.chars().count() > 80 { "…" } else { "" };
        let value: String = value.chars().take(80).collect();
        Self { field, value: format!("{value}{cut}"), problem: problem.into() }
    }
}

/// Cause why a schedule cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The first line is not a header of a schedule.
    #[error("line 1: not a schedule of hugepilot, found {found}")]
    NoSchedule {
        /// Start of the line.
        found: String,
    },
    /// The first line has another schema.
    #[error("line 1: schema: expected {SCHEMA:?}, found {found:?}")]
    Schema {
        /// Its schema, shortened.
        found: String,
        /// Whether a later version of hugepilot wrote it.
        is_newer: bool,
    },
    /// A value may not be.
    #[error("line {line}: {problem}")]
    Value {
        /// Line, from 1.
        line: u64,
        /// The value.
        problem: ScheduleProblem,
    },
    /// A line is not JSON.
    #[error("line {line}, column {column}: {problem}")]
    Syntax {
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: usize,
        /// Cause.
        problem: String,
    },
    /// A line is longer than [`MAX_LINE`].
    #[error("line {line} is longer than {MAX_LINE} bytes")]
    LongLine {
        /// Line, from 1.
        line: u64,
    },
}

impl Schedule {
    /// Makes a schedule without events.
    ///
    /// # Errors
    /// A value of the header that may not be.
    pub fn new(header: ScheduleHeader) -> Result<Self, ScheduleProblem> {
        let texts =
            [("program", &header.program), ("source", &header.source), ("policy", &header.policy)];
        for (field, value) in texts {
            check_text(field, value)?;
        }
        let region = header.region_bytes.get();
        let [least, most] = REGION_BYTES;
        if !region.is_power_of_two() || !(least..=most).contains(&region) {
            let problem = format!("expected a power of two from {least} to {most}");
            return Err(ScheduleProblem::new("region_bytes", region, problem));
        }
        check_number("accesses_per_second", header.accesses_per_second, f64::MAX)?;
        check_number("seconds", header.seconds, MAX_SECONDS)?;
        times::check_header(&header)?;
        Ok(Self { header, ..Self::default() })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// A value of the event that may not be, or one event or mapping too many.
    pub fn push(&mut self, event: ScheduleEvent) -> Result<(), ScheduleProblem> {
        self.check(&event)?;
        let ScheduleEvent { at, action, mapping, index } = event;
        self.times.add(&self.header, &at)?;
        let next = u32::try_from(self.mappings.len()).unwrap_or(u32::MAX);
        let mapping = match self.known.get(&mapping) {
            Some(&known) => known,
            None if self.mappings.len() >= MAX_MAPPINGS => {
                let problem = format!("more than {MAX_MAPPINGS} mappings");
                return Err(ScheduleProblem::new("mapping", mapping.name, problem));
            }
            None => {
                self.mappings.push(mapping.clone());
                self.known.insert(mapping, next);
                next
            }
        };
        self.events.push(IndexedEvent { at, action, mapping, index });
        Ok(())
    }

    fn check(&self, event: &ScheduleEvent) -> Result<(), ScheduleProblem> {
        let ScheduleEvent { at, mapping, index, .. } = event;
        if self.events.len() >= MAX_EVENTS {
            let problem = format!("more than {MAX_EVENTS} events");
            return Err(ScheduleProblem::new("event", self.events.len() + 1, problem));
        }
        check_number("at.share", at.share, 1.0)?;
        check_number("at.seconds", at.seconds, MAX_SECONDS)?;
        if let (Some(accesses), Some(all)) = (at.accesses, self.header.accesses)
            && accesses > all
        {
            let problem = format!("expected at most the {all} accesses of the header");
            return Err(ScheduleProblem::new("at.accesses", accesses, problem));
        }
        let time = self.header.seconds_of(at).or_else(|| self.header.share_of(at));
        let problem = match time {
            None if at.accesses.is_some() => {
                "accesses require accesses or accesses_per_second in the header"
            }
            None => "expected share, seconds or accesses",
            Some(time) if !(0.0..=MAX_SECONDS).contains(&time) => "expected a time below 1e9 s",
            Some(_) => "",
        };
        if !problem.is_empty() {
            return Err(ScheduleProblem::new("at", times::shown(at), problem));
        }
        times::check_units(&self.header, at)?;
        check_text("mapping.name", &mapping.name)?;
        if mapping.name.is_empty() {
            return Err(ScheduleProblem::new("mapping.name", "\"\"", "expected a name or [anon]"));
        }
        if mapping.bytes.get() > MAX_ADDRESS {
            let problem = "expected the size of a mapping";
            return Err(ScheduleProblem::new("mapping.bytes", mapping.bytes.get(), problem));
        }
        let regions = mapping.bytes.get() / self.header.region_bytes.get();
        if *index >= regions {
            let problem = format!("expected an index below the {regions} regions of the mapping");
            return Err(ScheduleProblem::new("index", index, problem));
        }
        Ok(())
    }

    /// Returns the header.
    pub const fn header(&self) -> &ScheduleHeader {
        &self.header
    }

    /// Returns the distinct mappings of the events, in the order of first use.
    pub fn mappings(&self) -> &[ScheduledMapping] {
        &self.mappings
    }

    /// Returns the events, in the order of the file.
    pub fn events(&self) -> &[IndexedEvent] {
        &self.events
    }
}

fn check_text(field: &'static str, text: &str) -> Result<(), ScheduleProblem> {
    // They are printed on terminals.
    if text.chars().any(char::is_control) {
        return Err(ScheduleProblem::new(field, text.escape_debug(), "has control characters"));
    }
    if text.len() > MAX_TEXT {
        return Err(ScheduleProblem::new(field, text, format!("longer than {MAX_TEXT} bytes")));
    }
    Ok(())
}

fn check_number(
    field: &'static str,
    number: Option<f64>,
    most: f64,
) -> Result<(), ScheduleProblem> {
    match number {
        Some(number) if !(0.0..=most).contains(&number) => {
            let most = if most == f64::MAX { "any number".to_owned() } else { most.to_string() };
            Err(ScheduleProblem::new(field, number, format!("expected 0 to {most}")))
        }
        _ => Ok(()),
    }
}
