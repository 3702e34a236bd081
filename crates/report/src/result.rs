//! Reports of the JSON of other commands: `compare`, `debloat`, `graph`, `sim` and `tune`.

#[cfg(test)]
mod tests;
mod tune;

use hugepilot_record::sim::{
    POLICY_SCHEMA, REUSE_SCHEMA, SimPolicyReport, SimReuseReport, SimTlbReport, SimUtilityReport,
    TLB_SCHEMA, UTILITY_SCHEMA,
};
use hugepilot_record::{compare, debloat, graph};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::{Bar, Bars, Cell, Chart, Document, Plot, Report, Section, Table, Unit};

/// A report of the JSON in `text`; `name` is its file.
///
/// # Errors
/// The cause, if it is not the output of a command that has a plot.
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
pub(crate) fn value_report(value: &Value, name: &str) -> Result<Report, String> {
    report_of(value, None, name)
}

/// A report of a value; errors name the lines of its `text`.
fn report_of(value: &Value, text: Option<&str>, name: &str) -> Result<Report, String> {
    match value["schema"].as_str() {
        Some(UTILITY_SCHEMA) => document::<SimUtilityReport>(value, text, name),
        Some(POLICY_SCHEMA) => document::<SimPolicyReport>(value, text, name),
        Some(REUSE_SCHEMA) => document::<SimReuseReport>(value, text, name),
        Some(TLB_SCHEMA) => document::<SimTlbReport>(value, text, name),
        Some(hugepilot_record::tune::SCHEMA) => Ok(tune::tuned(&parsed(value, text)?, name)),
        Some(compare::SCHEMA) => document::<compare::CompareReport>(value, text, name),
        Some(graph::SCHEMA) => document::<graph::GraphReport>(value, text, name),
        Some(debloat::SCHEMA) if value["backend"] != "shrinker" => {
            Ok(debloated(&parsed(value, text)?, name))
        }
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

fn plot(title: &str, chart: Chart) -> Plot {
    Plot { title: title.to_owned(), text: String::new(), chart }
}

fn debloated(report: &debloat::DebloatReport, name: &str) -> Report {
    let columns = [
        "process",
        "pid",
        "bloat before",
        "bloat after",
        "freed",
        "THP split",
        "THP before",
        "THP after",
    ];
    let mut table = Table::new("Processes", columns);
    let (mut bloat, mut pages) = (Vec::new(), Vec::new());
    for process in &report.processes {
        let bytes = |value: hugepilot_units::Bytes| Cell::of(Some(value.as_f64()), Unit::Bytes, "");
        let count = |value: u64| Cell::of(Some(value as f64), Unit::Count, "");
        table.row(vec![
            process.command.clone().into(),
            process.pid.to_string().into(),
            bytes(process.bloat_bytes_before),
            bytes(process.bloat_bytes_after),
            bytes(process.freed_bytes),
            count(process.huge_pages_split),
            count(process.huge_pages_before),
            count(process.huge_pages_after),
        ]);
        let bar = |when: &str, value: f64| {
            let name = format!("{} (pid {}), {when}", process.command, process.pid);
            Bar { name, value: Some(value), range: None }
        };
        bloat.push(bar("before", process.bloat_bytes_before.as_f64()));
        bloat.push(bar("after", process.bloat_bytes_after.as_f64()));
        pages.push(bar("before", process.huge_pages_before as f64));
        pages.push(bar("after", process.huge_pages_after as f64));
    }
    let chart = |name: &str, unit, bars| Chart::Bars(Bars { name: name.to_owned(), unit, bars });
    let bloat = plot("Bloat by process", chart("bloat", Unit::Bytes, bloat));
    let pages = plot("Huge pages by process", chart("huge pages", Unit::Count, pages));
    let mut all = Report::new(format!("Bloat in {name}"));
    let freed = Cell::of(Some(report.freed_bytes.as_f64()), Unit::Bytes, "").text();
    let before = Cell::of(Some(report.bloat_bytes.as_f64()), Unit::Bytes, "").text();
    all.summary.push(match report.dry_run {
        true => format!("Found {before} of bloat. A run without --dry-run would free {freed}."),
        false => format!("Found {before} of bloat, and freed {freed}."),
    });
    let text = "Bloat is memory on huge pages that holds only zeros.";
    all.add(Section::new("Bloat", text).with(bloat).with(pages).with(table));
    all
}
