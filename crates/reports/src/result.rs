//! Documents of the JSON of commands: `compare`, `debloat`, `graph`, `sim` and `tune`.

#[cfg(test)]
mod tests;

use hugepilot_render::model::{Document, Report};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{compare, debloat, experiment, graph, shrink, sim, tune};

/// A report of the JSON in `text`; `name` is its file.
///
/// # Errors
/// The cause, if it is not the output of a command that has a document.
pub fn result_report(text: &str, name: &str) -> Result<Report, String> {
    report_of(&object(text)?, Some(text), name)
}

const NOTHING: &str = "neither a recording nor a journal nor JSON of hugepilot";

/// The JSON object that `text` is.
fn object(text: &str) -> Result<Value, String> {
    if !text.trim_start().starts_with('{') {
        return Err(NOTHING.to_owned());
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match (values.next(), values.next()) {
        (Some(Ok(value)), None) => Ok(value),
        (Some(Err(error)), _) if error.is_eof() => Err("the end of its JSON is missing".to_owned()),
        (Some(Err(error)), _) => Err(format!("line {} of it is not JSON", error.line())),
        _ => Err("it has text after its first JSON object, and a report is of one".to_owned()),
    }
}

/// A report of the JSON of a command.
///
/// # Errors
/// As [`result_report`].
pub fn value_report(value: &Value, name: &str) -> Result<Report, String> {
    report_of(value, None, name)
}

/// A report of a value; errors name the lines of its `text`.
fn report_of(value: &Value, text: Option<&str>, name: &str) -> Result<Report, String> {
    match value["schema"].as_str() {
        Some(sim::UTILITY_SCHEMA) => document::<sim::SimUtilityReport>(value, text, name),
        Some(sim::POLICY_SCHEMA) => document::<sim::SimPolicyReport>(value, text, name),
        Some(sim::REUSE_SCHEMA) => document::<sim::SimReuseReport>(value, text, name),
        Some(sim::TLB_SCHEMA) => document::<sim::SimTlbReport>(value, text, name),
        Some(tune::SCHEMA) => document::<tune::TuneReport>(value, text, name),
        Some(experiment::SCHEMA) => document::<experiment::LabReport>(value, text, name),
        Some(compare::SCHEMA) => document::<compare::CompareReport>(value, text, name),
        Some(graph::SCHEMA) => document::<graph::GraphReport>(value, text, name),
        Some(debloat::SCHEMA) if value["backend"] == shrink::BACKEND => {
            document::<shrink::ShrinkReport>(value, text, name)
        }
        Some(debloat::SCHEMA) => document::<debloat::DebloatReport>(value, text, name),
        Some(schema) => {
            let schema: String = schema.chars().take(64).collect();
            Err(format!("schema {schema:?} has no report"))
        }
        None => Err(NOTHING.to_owned()),
    }
}

/// The document of a report, with the name of its file.
fn document<R: Document + DeserializeOwned>(
    value: &Value,
    text: Option<&str>,
    name: &str,
) -> Result<Report, String> {
    let mut document = parsed::<R>(value, text)?.document();
    document.title = format!("{}: {name}", document.title);
    Ok(document)
}

fn parsed<R: DeserializeOwned>(value: &Value, text: Option<&str>) -> Result<R, String> {
    let read = R::deserialize(value);
    // Only the text gives an error its position.
    let read = read.or_else(|error| text.map_or(Err(error), serde_json::from_str));
    read.map_err(|error| format!("its JSON differs from its schema: {error}"))
}
