use hugepilot_testkit::assert_golden;

use super::*;
use crate::{JsonReport, Width, back_end, json};

/// The text of the report of what `--json` prints.
fn shown(report: &impl JsonReport) -> String {
    let all = result_report(&json(report), "x.json").unwrap();
    back_end::text(&all, Width::columns(100))
}

#[test]
fn a_comparison_is_as_expected() {
    assert_golden("testdata/report/compare.txt", &shown(&crate::compare::tests::report()));
}

#[test]
fn a_graph_run_is_as_expected() {
    let report =
        graph::GraphReport { schema: graph::SCHEMA.to_owned(), ..crate::graph::tests::report() };
    assert_golden("testdata/report/graph.txt", &shown(&report));
}

#[test]
fn a_debloat_is_as_expected() {
    assert_golden("testdata/report/debloat.txt", &shown(&crate::debloat::tests::report()));
}

#[test]
fn a_tune_is_as_expected() {
    assert_golden("testdata/report/tune.txt", &shown(&crate::tune::tests::stopped()));
}

#[test]
fn other_json_has_a_cause() {
    let error = |text: &str| result_report(text, "x").unwrap_err();
    assert_eq!(error("{\"schema\":\"x/1\"}"), "schema \"x/1\" has no report");
    assert_eq!(error("[]"), "neither a recording nor JSON of hugepilot");
    assert!(error("{").starts_with("neither a recording nor JSON of hugepilot: "));
    assert!(error("{\"schema\":\"hugepilot.compare/2\"}").contains("missing field"));
}
