use hugepilot_record::Prediction;
use hugepilot_render::{JsonReport, Width, back_end, json};
use hugepilot_testkit::assert_golden;

use super::*;
use crate::tune::{PredictedBy, TuneReport};

/// The text of the report of what `--json` prints.
fn shown(report: &impl JsonReport) -> String {
    let all = result_report(&json(report), "x.json").unwrap();
    back_end::text(&all, Width::columns(100))
}

/// Whether a report of the JSON is the document that the command prints, but for the title.
fn is_reported<R: Document>(report: &R) {
    let read = result_report(&json(report), "x.json").unwrap();
    let own = report.document();
    assert_eq!((&read.summary, &read.sections), (&own.summary, &own.sections));
    assert_eq!(read.title, format!("{}: x.json", own.title));
}

#[test]
fn each_schema_has_the_document_of_its_command() {
    is_reported(&crate::tune::text::tests::stopped());
    is_reported(&crate::compare::text::tests::report());
    is_reported(&crate::debloat::text::tests::report());
    let (schema, backend) = (debloat::SCHEMA.to_owned(), shrink::BACKEND.to_owned());
    is_reported(&shrink::ShrinkReport { schema, backend, ..crate::shrink::text::tests::report() });
    let schema = graph::SCHEMA.to_owned();
    is_reported(&graph::GraphReport { schema, ..crate::graph::text::tests::report() });
}

#[test]
fn a_tune_is_as_expected() {
    assert_golden("testdata/report/tune.txt", &shown(&crate::tune::text::tests::stopped()));
}

#[test]
fn the_first_line_the_table_and_the_json_have_one_gain() {
    let mut report = crate::tune::text::tests::stopped();
    report.forecast.predicted_speedup = Some(Prediction { low: 1.33, median: 2.49, high: 4.16 });
    report.forecast.eligible_speedup = Some(Prediction { low: 1.02, median: 1.13, high: 1.45 });
    let stated = |report: &TuneReport| {
        let text = shown(report);
        let rows =
            text.lines().filter(|line| line.starts_with("gain ") || line.contains("the model  "));
        let rows = rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
        let value: serde_json::Value = serde_json::from_str(&json(report)).unwrap();
        let source = value["gain"]["source"].as_str().unwrap().to_owned();
        (rows.collect::<Vec<_>>(), source, value["gain"]["speedup"].as_f64().unwrap())
    };
    let first = |report: &TuneReport| crate::tune::text::verdict(report);
    report.forecast.predicted_by = Some(PredictedBy::Trial);
    let row = "gain 1.33x to 4.16x by the trial".to_owned();
    assert_eq!(stated(&report), (vec![row], "trial".to_owned(), 2.49));
    assert!(first(&report).ends_with("1.33x to 4.16x as fast by the trial"));
    report.forecast.predicted_by = Some(PredictedBy::Model);
    let rows = [
        "gain 2.49x (1.33–4.16) by the model",
        "speedup of all eligible memory by the model 1.13x (1.02–1.45)",
    ];
    assert_eq!(stated(&report), (rows.map(str::to_owned).to_vec(), "model".to_owned(), 2.49));
    assert!(first(&report).ends_with("predicted 2.49x (1.33–4.16) by the model"));
    (report.measured.speedup, report.measured.speedup_interval) = (Some(1.15), None);
    let row = "gain 1.15x, measured".to_owned();
    assert_eq!(stated(&report), (vec![row], "measured".to_owned(), 1.15));
    assert!(first(&report).ends_with(", 1.15x as fast"), "{}", first(&report));
}

#[test]
fn the_hottest_regions_of_a_tune_are_listed_and_the_others_counted() {
    let mut report = crate::tune::text::tests::stopped();
    report.plan.selected = vec![report.plan.selected[0].clone(); 25];
    let text = shown(&report);
    assert_eq!(text.matches("[anon]").count(), 8, "{text}");
    assert!(text.contains("17 regions are not shown: --json of the command has all"), "{text}");
}

#[test]
fn other_json_has_a_cause() {
    let error = |text: &str| result_report(text, "x").unwrap_err();
    assert_eq!(error("{\"schema\":\"x/1\"}"), "schema \"x/1\" has no report");
    for junk in ["[]", "", "\u{7f}ELF", "{}"] {
        assert_eq!(error(junk), "neither a recording nor a journal nor JSON of hugepilot");
    }
    assert_eq!(error("{"), "the end of its JSON is missing");
    assert_eq!(error("{\n\"a\": b}"), "line 2 of it is not JSON");
    assert!(error("{}\n{}").starts_with("it has text after its first JSON object"));
    assert!(error("{\"schema\":\"hugepilot.compare/2\"}").contains("missing field"));
    let wrong = error("{\"schema\":\"hugepilot.compare/2\",\n\"command\": 7}");
    assert!(wrong.starts_with("its JSON differs from its schema: invalid type"), "{wrong}");
    assert!(wrong.ends_with("at line 2 column 12"), "{wrong}");
    let value = serde_json::json!({"schema": "hugepilot.compare/2", "command": 7});
    let recorded = value_report(&value, "x").unwrap_err();
    assert!(recorded.ends_with("expected a sequence"), "a line of no file: {recorded}");
}
