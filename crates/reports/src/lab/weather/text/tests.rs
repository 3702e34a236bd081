//! Golden of the conditions for experiments.

use hugepilot_testkit::assert_golden;
use serde::de::DeserializeOwned;

use super::*;
use crate::lab::weather::{FRAGMENT_SCHEMA, PAGE_CACHE_SCHEMA, PRESSURE_SCHEMA, WARM_SCHEMA};

const REPORTS: &str = include_str!("../../../../testdata/lab-weather.ndjson");

fn read<R: DeserializeOwned>(line: &str) -> R {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn text(line: &str) -> String {
    let schema = read::<Value>(line)["schema"].as_str().unwrap_or_default().to_owned();
    match schema.as_str() {
        PRESSURE_SCHEMA => pressure_text(&read(line)),
        FRAGMENT_SCHEMA => fragment_text(&read(line)),
        PAGE_CACHE_SCHEMA => page_cache_text(&read(line)),
        WARM_SCHEMA => warm_text(&read(line)),
        _ => quiet_text(&read(line), Width::UNLIMITED),
    }
}

#[test]
fn texts_of_all_conditions() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/lab-weather.txt");
    let texts: Vec<String> = REPORTS.lines().map(text).collect();
    assert_golden(golden, &texts.join("\n"));
    let line = read::<PressureReport>(REPORTS.lines().next().unwrap()).line().unwrap();
    assert!(line.contains("\"text\":\"swap is on") && line.contains("\"help\":[\"a larger"));
}
