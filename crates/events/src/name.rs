//! Names of sets, metrics and events.

use hugepilot_record::Cpu;

use super::code::{DeviceEvent, EventCode};
use super::design::{Design, plain};
use super::generic;
use super::metrics::{METRICS, MetricDefinition, MetricSet, SETS};

/// Meaning of a name on a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetOrEvent {
    /// Set of metrics.
    Set(&'static MetricSet),
    /// Metric.
    Metric(&'static MetricDefinition),
    /// Event of this processor.
    Event(NamedEvent),
}

/// Event with the name that it was requested by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEvent {
    /// Name, as requested.
    pub name: String,
    /// Code on this processor.
    pub code: EventCode,
    /// Source of the code: a list, or perf.
    pub source: String,
}

/// Cause why a name is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// Neither a set, a metric nor an event.
    #[error("unknown event {name:?}{}", nearest_text(nearest))]
    Unknown {
        /// Name, cut at 64 characters.
        name: String,
        /// Similar names, the most similar first.
        nearest: Vec<String>,
    },
    /// Another processor has the event.
    #[error("{name} is an event of {design}; {here} lacks it{}", nearest_text(nearest))]
    OtherDesign {
        /// Name of the event.
        name: String,
        /// The newest design that has it.
        design: &'static str,
        /// Design of this processor.
        here: &'static str,
        /// Similar names of this processor.
        nearest: Vec<String>,
    },
    /// Terms of a unit that cannot be read.
    #[error("{name:?} is not an event: {cause}")]
    Malformed {
        /// Name, cut at 64 characters.
        name: String,
        /// Cause.
        cause: &'static str,
    },
}

fn nearest_text(nearest: &[String]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    format!("; similar: {}", nearest.join(", "))
}

/// Longest name of which an error repeats all.
const SHOWN: usize = 64;

/// Returns what `name` stands for on `cpu`.
///
/// # Errors
/// [`EventError`] with similar names.
pub fn parse(cpu: &Cpu, name: &str) -> Result<SetOrEvent, EventError> {
    if let Some(set) = MetricSet::named(name) {
        return Ok(SetOrEvent::Set(set));
    }
    if let Some(metric) = MetricDefinition::named(name) {
        return Ok(SetOrEvent::Metric(metric));
    }
    let design = Design::of(cpu);
    let event = |code, source: &str| {
        SetOrEvent::Event(NamedEvent { name: name.to_owned(), code, source: source.to_owned() })
    };
    if name.contains('/') {
        return devices(name).map(|code| event(code, "sysfs"));
    }
    if let Some(code) = generic::code(name) {
        return Ok(event(code, "perf-list(1)"));
    }
    if let Some((design, listed)) = design.and_then(|design| Some((design, design.event(name)?))) {
        return Ok(event(listed.code(), design.source()));
    }
    let of_memory = design.and_then(|design| Some((design, design.memory_event(name)?)));
    if let Some((design, listed)) = of_memory {
        return Ok(event(listed.code(), design.memory_source()));
    }
    if let Some(config) = raw(name) {
        return Ok(event(EventCode::raw(config), "raw code"));
    }
    Err(unknown(design, name))
}

/// Returns the code of `rUUEE`.
fn raw(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r').or_else(|| name.strip_prefix("0x"))?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_hex && digits.len() <= 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Returns the events of `unit/terms/`, or of several joined by `+`.
pub(super) fn devices(name: &str) -> Result<EventCode, EventError> {
    let malformed =
        |cause| EventError::Malformed { name: name.chars().take(SHOWN).collect(), cause };
    let event = |part: &str| {
        let inner = part.strip_suffix('/').ok_or(malformed("a unit's terms end with /"))?;
        let (unit, terms) = inner.split_once('/').ok_or(malformed("expected unit/terms/"))?;
        let is_word = |text: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            !text.is_empty() && text.chars().all(fits)
        };
        // The name of a unit becomes part of a path.
        if !is_word(unit) || unit.starts_with('.') {
            return Err(malformed("a unit has letters, digits, _ and -"));
        }
        let is_term = |term: &str| {
            let (key, value) = term.split_once('=').unwrap_or((term, "1"));
            is_word(key) && !key.starts_with('.') && is_word(value)
        };
        if !terms.split(',').all(is_term) {
            return Err(malformed("terms are name=number, separated by commas"));
        }
        Ok(DeviceEvent { unit: unit.to_owned(), terms: terms.to_owned() })
    };
    name.split('+').map(event).collect::<Result<_, _>>().map(EventCode::Devices)
}

impl super::ListedEvent {
    /// Returns its code.
    pub const fn code(&self) -> EventCode {
        EventCode::Fixed { kind: super::code::RAW, config: self.config, config1: self.config1 }
    }
}

fn unknown(design: Option<Design>, name: &str) -> EventError {
    let nearest = nearest(design, name);
    let elsewhere = Design::ALL.into_iter().rev().find_map(|other| {
        let listed = other.event(name).map(|listed| listed.name);
        let listed = listed.or_else(|| Some(other.memory_event(name)?.name))?;
        Some((listed.to_owned(), other.name()))
    });
    match elsewhere {
        Some((name, other)) => {
            let here = design.map_or("this processor", Design::name);
            EventError::OtherDesign { name, design: other, here, nearest }
        }
        None => EventError::Unknown { name: name.chars().take(SHOWN).collect(), nearest },
    }
}

/// Similar names, at most three.
fn nearest(design: Option<Design>, name: &str) -> Vec<String> {
    const SHOWN_NAMES: usize = 3;
    let wanted = plain(&name.chars().take(SHOWN).collect::<String>());
    let sets = SETS.iter().map(|set| set.name.to_owned());
    let metrics = METRICS.iter().map(|metric| metric.name.to_owned());
    let listed = design.into_iter().flat_map(Design::events).map(|event| event.name.to_owned());
    let memory = design.into_iter().flat_map(Design::memory_events);
    let listed = listed.chain(memory.map(|event| event.name.to_owned()));
    let names = sets.chain(metrics).chain(generic::names()).chain(listed);
    let limit = wanted.chars().count() / 3;
    let mut near: Vec<(usize, String)> = names
        .map(|name| (distance(&wanted, &plain(&name)), name))
        .filter(|&(distance, _)| distance <= limit)
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(SHOWN_NAMES).map(|(_, name)| name).collect()
}

/// Insertions, deletions and replacements that turn `a` into `b` (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
