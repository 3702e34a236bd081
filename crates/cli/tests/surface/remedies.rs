//! Help lines of all sentences: each is in a table, with the live test that tries it.
//!
//! The instances of an enum come from its JSON Schema, so a new variant has its help here, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use hugepilot_record as record;
use hugepilot_record::Sentence;
use hugepilot_recording as recording;
use hugepilot_reports as reports;
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Values that a schema permits: each variant and each value of a field at least once.
fn instances(schema: &Value, all: &Value) -> Vec<Value> {
    if let Some(name) = schema["$ref"].as_str() {
        // A cause may have causes: each level of an enum within itself is a copy with less below.
        let mut below = all.clone();
        let Some(schema) = below.pointer_mut(&name[1..]).map(Value::take) else {
            return Vec::new();
        };
        return instances(&schema, &below);
    }
    for word in ["oneOf", "anyOf"] {
        if let Some(variants) = schema[word].as_array() {
            let fields = schema.get("properties").map(|_| object(schema, all));
            let variants = variants.iter().flat_map(|variant| instances(variant, all));
            return match fields.as_deref() {
                Some([fields, ..]) => variants.map(|variant| joined(fields, &variant)).collect(),
                _ => variants.collect(),
            };
        }
    }
    if let Some(value) = schema.get("const") {
        return vec![value.clone()];
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.clone();
    }
    match &schema["type"] {
        Value::Array(types) => types.iter().flat_map(|name| of_type(name, schema, all)).collect(),
        name => of_type(name, schema, all),
    }
}

fn of_type(name: &Value, schema: &Value, all: &Value) -> Vec<Value> {
    match name.as_str() {
        Some("object") => object(schema, all),
        Some("array") => {
            let items = instances(&schema["items"], all);
            items.into_iter().map(|item| json!([item])).chain([json!([])]).collect()
        }
        Some("string") => vec![json!("NAME")],
        Some("integer") => vec![json!(1), json!(0)],
        Some("number") => vec![json!(0.5)],
        Some("boolean") => vec![json!(true), json!(false)],
        _ => vec![Value::Null],
    }
}

/// Objects: the first value of each field, then each other value of one field.
fn object(schema: &Value, all: &Value) -> Vec<Value> {
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let values: BTreeMap<String, Vec<Value>> =
        fields.iter().map(|(name, field)| (name.clone(), instances(field, all))).collect();
    let first: Map<String, Value> = values
        .iter()
        .filter_map(|(name, values)| Some((name.clone(), values.first()?.clone())))
        .collect();
    let other = |(name, values): (&String, &Vec<Value>)| {
        let with = |value: &Value| {
            let mut object = first.clone();
            object.insert(name.clone(), value.clone());
            Value::Object(object)
        };
        values.iter().skip(1).map(with).collect::<Vec<_>>()
    };
    let others: Vec<Value> = values.iter().flat_map(other).collect();
    [Value::Object(first)].into_iter().chain(others).collect()
}

fn joined(fields: &Value, variant: &Value) -> Value {
    let mut object = fields.as_object().cloned().unwrap_or_default();
    object.extend(variant.as_object().cloned().unwrap_or_default());
    Value::Object(object)
}

/// Help lines of an enum, with `N` for numbers.
fn help_of<T: Sentence + JsonSchema + DeserializeOwned>(lines: &mut BTreeSet<String>) {
    let schema = serde_json::to_value(schema_for!(T)).unwrap();
    let values = instances(&schema, &schema);
    let read: Vec<T> =
        values.iter().filter_map(|value| serde_json::from_value(value.clone()).ok()).collect();
    let name = std::any::type_name::<T>();
    assert!(!read.is_empty(), "{name}: none of {} instances is read: {values:?}", values.len());
    for help in read.iter().flat_map(Sentence::help) {
        lines.insert(plain(&help));
    }
}

fn plain(help: &str) -> String {
    let mut plain = String::new();
    for c in help.chars() {
        match (c.is_ascii_digit(), plain.ends_with('N')) {
            (true, true) => {}
            (true, false) => plain.push('N'),
            _ => plain.push(c),
        }
    }
    plain
}

/// The tests of the table, or why none tries the lines, and the lines below each.
fn table() -> Vec<(String, Vec<String>)> {
    let mut sections = Vec::<(String, Vec<String>)>::new();
    for line in include_str!("../remedies.txt").lines() {
        match (line.strip_prefix("## "), sections.last_mut()) {
            (Some(name), _) => sections.push((name.to_owned(), Vec::new())),
            (None, Some((_, lines))) if !line.is_empty() => lines.push(line.to_owned()),
            _ => {}
        }
    }
    sections
}

/// Whether a function with this name is in a file of this folder.
fn is_defined(name: &str, folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return is_defined(name, &path);
        }
        let is_code = path.extension().is_some_and(|extension| extension == "rs");
        is_code && fs::read_to_string(path).unwrap().contains(&format!("fn {name}()"))
    })
}

/// Help lines of the conditions for experiments.
fn help_of_conditions(lines: &mut BTreeSet<String>) {
    use reports::lab::weather::{Noise, Shortfall, WeatherRefusal, WeatherWarning};
    help_of::<Noise>(lines);
    help_of::<Shortfall>(lines);
    help_of::<WeatherRefusal>(lines);
    help_of::<WeatherWarning>(lines);
}

#[test]
fn each_help_line_is_in_the_table_and_each_test_of_it_exists() {
    let mut lines = BTreeSet::new();
    macro_rules! add {
        ($($sentence:ty),* $(,)?) => { $(help_of::<$sentence>(&mut lines);)* };
    }
    add!(
        record::AccessError,
        record::KernelReason,
        record::Obstacle,
        record::RecollapseCause,
        record::RecollapseRisk,
        record::SkipReason,
        record::Stop,
        reports::compare::StallsUnavailable,
        reports::daemon::BlockedStalls,
        reports::daemon::ExclusionCause,
        reports::daemon::ExhaustedCause,
        reports::daemon::ReloadError,
        reports::daemon::WaitingCause,
        reports::debloat::DebloatWarning,
        reports::doctor::Detail,
        reports::doctor::SettingRisk,
        reports::graph::GraphWarning,
        reports::lab::LabWarning,
        reports::pool::PoolNote,
        reports::pool::PoolShortfall,
        reports::pool::PoolWarning,
        recording::NoBegin,
        reports::run::CompareWarning,
        reports::run::EffectCause,
        reports::run::RunWarning,
        reports::settings::SettingWarning,
        reports::shrink::ShrinkWarning,
        reports::status::StatusWarning,
        reports::top::TopNote,
        reports::top::TopWarning,
        record::trace::TraceWarning,
        reports::tune::NoMetric,
        reports::tune::NoTrial,
        reports::tune::NoVerdict,
        reports::tune::TuneWarning,
        reports::undo::UndoState,
    );
    help_of_conditions(&mut lines);
    let table = table();
    let tried: Vec<&String> = table.iter().flat_map(|(_, lines)| lines).collect();
    let known: BTreeSet<String> = tried.iter().map(|line| (*line).clone()).collect();
    assert_eq!(tried.len(), known.len(), "a line is in the table twice");
    let new: Vec<_> = lines.difference(&known).collect();
    let gone: Vec<_> = known.difference(&lines).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "crates/cli/tests/remedies.txt lacks {new:#?}, and has {gone:#?}, which no report prints"
    );
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (test, _) in table.iter().filter(|(name, _)| !name.starts_with("not tried")) {
        let name = test.rsplit("::").next().unwrap();
        assert!(is_defined(name, crates), "no test is called {test}");
    }
}
