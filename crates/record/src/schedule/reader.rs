//! Reader of schedules.

use std::io::{BufRead, Read};

use hugepilot_units::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    MAX_LINE, SCHEMA, Schedule, ScheduleAction, ScheduleError, ScheduleEvent, ScheduleHeader,
    ScheduleProblem,
};

/// Start of [`SCHEMA`] without the version.
const NAME: &str = "hugepilot.schedule/";

impl Schedule {
    /// Reads a schedule. Lines without text are skipped.
    ///
    /// # Errors
    /// The first line that is not what a schedule may have, with its field and value.
    pub fn read(mut from: impl BufRead) -> Result<Self, ScheduleError> {
        let mut line = Vec::new();
        next_line(&mut from, &mut line, 1)?;
        let header = header_of(&line)?;
        let mut schedule =
            Self::new(header).map_err(|problem| ScheduleError::Value { line: 1, problem })?;
        for number in 2.. {
            if !next_line(&mut from, &mut line, number)? {
                break;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let event: ScheduleEvent = parse(&line, number, event_problem)?;
            let pushed = schedule.push(event);
            pushed.map_err(|problem| ScheduleError::Value { line: number, problem })?;
        }
        Ok(schedule)
    }
}

/// Reads the next line. Returns whether there is one.
fn next_line(
    from: &mut impl BufRead,
    line: &mut Vec<u8>,
    number: u64,
) -> Result<bool, ScheduleError> {
    line.clear();
    from.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', line)?;
    if line.len() > MAX_LINE {
        return Err(ScheduleError::LongLine { line: number });
    }
    Ok(!line.is_empty())
}

fn header_of(line: &[u8]) -> Result<ScheduleHeader, ScheduleError> {
    /// The part of a header that every version has.
    #[derive(Deserialize)]
    struct Named {
        schema: String,
    }
    let cut = |text: &str| text.chars().take(80).collect::<String>();
    let Ok(Named { schema }) = serde_json::from_slice(line) else {
        let found = format!("{:?}", cut(String::from_utf8_lossy(line).trim_end()));
        return Err(ScheduleError::NoSchedule { found });
    };
    if schema != SCHEMA {
        let number = |schema: &str| schema.strip_prefix(NAME)?.parse::<u64>().ok();
        let is_newer = number(&schema) > number(SCHEMA);
        return Err(ScheduleError::Schema { found: cut(&schema), is_newer });
    }
    parse(line, 1, header_problem)
}

/// Parses a line. If that fails, `problem` names the field.
fn parse<T: DeserializeOwned>(
    line: &[u8],
    number: u64,
    problem: fn(&Value) -> Option<ScheduleProblem>,
) -> Result<T, ScheduleError> {
    let error = match serde_json::from_slice(line) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    let problem = serde_json::from_slice(line).ok().and_then(|value: Value| problem(&value));
    Err(match problem {
        Some(problem) => ScheduleError::Value { line: number, problem },
        None => {
            // The message ends with a position, whose line is always 1.
            let text = error.to_string();
            let text = text.split(" at line ").next().unwrap_or_default().to_owned();
            ScheduleError::Syntax { line: number, column: error.column(), problem: text }
        }
    })
}

fn header_problem(header: &Value) -> Option<ScheduleProblem> {
    let texts = ["program", "source", "policy"];
    let numbers = ["accesses_per_second", "seconds"];
    let names = ["schema", "region_bytes", "accesses"];
    texts
        .into_iter()
        .find_map(|name| field::<String>(header, name, name, "expected text"))
        .or_else(|| optional::<Bytes>(header, "region_bytes", "region_bytes", "expected bytes"))
        .or_else(|| optional::<u64>(header, "accesses", "accesses", "expected a count"))
        .or_else(|| {
            numbers
                .into_iter()
                .find_map(|name| optional::<f64>(header, name, name, "expected a number"))
        })
        .or_else(|| unknown(header, "header", &[&texts[..], &numbers, &names].concat()))
}

fn event_problem(event: &Value) -> Option<ScheduleProblem> {
    if !event.is_object() {
        return Some(ScheduleProblem::new("event", event, "expected an object"));
    }
    let part = |name| event.get(name).unwrap_or(&Value::Null);
    let (at, mapping) = (part("at"), part("mapping"));
    let whole = [("at", at), ("mapping", mapping)];
    whole
        .into_iter()
        .find(|(_, part)| !part.is_object())
        .map(|(name, part)| ScheduleProblem::new(name, part, "expected an object"))
        .or_else(|| optional::<u64>(at, "accesses", "at.accesses", "expected a count"))
        .or_else(|| optional::<f64>(at, "share", "at.share", "expected a number"))
        .or_else(|| optional::<f64>(at, "seconds", "at.seconds", "expected a number"))
        .or_else(|| unknown(at, "at", &["accesses", "share", "seconds"]))
        .or_else(|| {
            field::<ScheduleAction>(event, "action", "action", "expected promote or demote")
        })
        .or_else(|| field::<String>(mapping, "name", "mapping.name", "expected text"))
        .or_else(|| field::<u32>(mapping, "ordinal", "mapping.ordinal", "expected a position"))
        .or_else(|| field::<Bytes>(mapping, "bytes", "mapping.bytes", "expected bytes"))
        .or_else(|| unknown(mapping, "mapping", &["name", "ordinal", "bytes"]))
        .or_else(|| field::<u64>(event, "index", "index", "expected a position"))
        .or_else(|| unknown(event, "event", &["at", "action", "mapping", "index"]))
}

/// Problem with a field that must be there.
fn field<T: DeserializeOwned>(
    object: &Value,
    name: &str,
    shown: &'static str,
    expected: &str,
) -> Option<ScheduleProblem> {
    let Some(value) = object.get(name) else {
        return Some(ScheduleProblem::new(shown, "none", expected));
    };
    let is_wrong = serde_json::from_value::<T>(value.clone()).is_err();
    is_wrong.then(|| ScheduleProblem::new(shown, value, expected))
}

/// Problem with a field that may be absent or `null`.
fn optional<T: DeserializeOwned>(
    object: &Value,
    name: &str,
    shown: &'static str,
    expected: &str,
) -> Option<ScheduleProblem> {
    object.get(name).filter(|value| !value.is_null())?;
    field::<T>(object, name, shown, expected)
}

/// Problem with a field that is not one of `known`.
fn unknown(object: &Value, shown: &'static str, known: &[&str]) -> Option<ScheduleProblem> {
    let name = object.as_object()?.keys().find(|name| !known.contains(&name.as_str()))?;
    let expected = format!("expected only the fields {}", known.join(", "));
    Some(ScheduleProblem::new(shown, format!("{name:?}"), expected))
}
