//! Names that attack the reader of a report.

use hugepilot_recording::{Line, RecordedTrial, Window, profile, recording_report};
use hugepilot_render::model::Report;
use hugepilot_render::{Width, back_end, json};
use hugepilot_units::Nanos;

use crate::example;

/// Escape codes, the end of a script, lines, quotes, formulas, reordering, and a replaced byte.
const HOSTILE: &str = "=cmd|'/c'!A0\x1b[31m\x07</script><img src=x onerror=alert(1)>\r\n\"'`|,;{}\\\
                       \u{9b}2J\u{202e}\u{2028}\u{fffd}";

fn report() -> Report {
    let mut timeline = example::timeline(2, HOSTILE, Window::default());
    timeline.add(Line::Trial(RecordedTrial {
        time: Nanos::seconds(6),
        name: HOSTILE.to_owned(),
        number: 1,
        took: Nanos::seconds(1),
        result: serde_json::Value::Null,
    }));
    timeline.add(Line::Report(serde_json::json!({"schema": HOSTILE})));
    recording_report(&timeline, HOSTILE)
}

fn assert_harmless(text: &str) {
    for c in text.chars().filter(|c| *c != '\n') {
        let is_bidi = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}');
        assert!(!c.is_control() && !is_bidi, "{c:?} in {}", &text[..text.len().min(300)]);
    }
}

#[test]
fn a_terminal_gets_no_escape_codes() {
    let report = report();
    for text in [
        back_end::text(&report, Width::columns(80)),
        back_end::text(&report, Width::UNLIMITED),
        back_end::markdown(&report),
        back_end::csv(&report),
        back_end::openmetrics(&report),
        back_end::svg(&report),
        profile::folded(&example::timeline(2, HOSTILE, Window::default())),
    ] {
        assert!(text.contains("onerror"), "the name is in it");
        assert_harmless(&text);
    }
}

#[test]
fn html_has_no_element_of_a_name() {
    let html = back_end::html(&report());
    let start = html.find("<body>").unwrap();
    let end = html.rfind("<script>").unwrap();
    let body = &html[start..end];
    assert_harmless(body);
    assert!(!body.contains("<img"));
    assert_eq!(body.matches("</script>").count(), 1, "that of the data");
    let data = body.split_once("id=\"plots\">").unwrap().1.split_once("</script>").unwrap().0;
    assert!(!data.contains(['<', '>', '&']));
    let plots: serde_json::Value = serde_json::from_str(data).unwrap();
    assert!(plots.to_string().contains("onerror"));
    assert!(!back_end::svg(&report()).contains("<img"));
}

#[test]
fn json_is_one_value_and_lines_stay_lines() {
    let value: serde_json::Value = serde_json::from_str(&json(&report())).unwrap();
    assert!(value["sections"].to_string().contains("onerror"));
    assert!(!json(&report()).contains('\x1b'));
}

#[test]
fn a_spreadsheet_gets_no_formula() {
    for line in back_end::csv(&report()).lines() {
        for field in line.split(',') {
            let start = field.trim_start_matches('"');
            let is_number = start.trim_end_matches('"').parse::<f64>().is_ok();
            assert!(is_number || !start.starts_with(['=', '+', '@', '-']), "{line}");
        }
    }
}

#[test]
fn openmetrics_has_a_sample_on_each_line() {
    let text = back_end::openmetrics(&report());
    assert!(text.ends_with("# EOF\n"));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (labels, value) = line.rsplit_once("} ").unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let quotes = labels.replace("\\\\", "").replace("\\\"", "").matches('"').count();
        assert_eq!(quotes, 10, "{line}");
    }
}
