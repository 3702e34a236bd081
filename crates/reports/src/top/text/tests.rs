//! Rows, their order, and the screen at two sizes.

use hugepilot_record::{AccessError, Answer, Pid, Prediction};
use hugepilot_testkit::assert_golden;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::*;
use crate::top::{SCHEMA, TopNote, TopWarning};

const HOSTILE: &str = "a\u{200b}\u{202e}b\u{1b}[2J漢字漢字漢字漢字漢字漢字";

fn process(pid: i32, command: &str) -> TopProcess {
    TopProcess {
        pid: Pid(pid),
        user_id: Some(1000),
        user: Some("ada".to_owned()),
        command: command.to_owned(),
        cpu_ratio: Some(0.02),
        resident_bytes: Bytes::mib(300),
        thp_bytes: Some(Bytes::mib(30)),
        thp_ratio: Some(0.1),
        zero_filled_bytes: None,
        samples: 0,
        stall_ratio: None,
        predicted_speedup: None,
        answer: None,
        blocked_by: None,
        note: Some(TopNote::Idle),
    }
}

fn report() -> TopReport {
    let busy = TopProcess {
        cpu_ratio: Some(1.987),
        resident_bytes: Bytes::mib(12345),
        thp_bytes: Some(Bytes::gib(1)),
        thp_ratio: Some(0.083),
        zero_filled_bytes: Some(Bytes::mib(100)),
        samples: 2160,
        stall_ratio: Some(0.62),
        predicted_speedup: Some(Prediction { low: 1.02, median: 1.17, high: 1.4 }),
        answer: Some(Answer::Gain),
        note: None,
        ..process(4711, "pagerank")
    };
    let small = TopProcess {
        resident_bytes: Bytes::kib(900),
        thp_bytes: Some(Bytes::ZERO),
        thp_ratio: Some(0.0),
        note: Some(TopNote::TooSmall),
        ..process(1_048_576, HOSTILE)
    };
    let denied = TopProcess {
        user_id: Some(70_000),
        user: None,
        cpu_ratio: None,
        thp_bytes: None,
        thp_ratio: None,
        note: Some(TopNote::NoPermission),
        ..process(8, "sshd")
    };
    let refused = TopProcess {
        cpu_ratio: Some(0.5),
        note: Some(TopNote::NotSampled { error: "perf_event_open: EPERM".to_owned() }),
        ..process(9, "größe")
    };
    let first = AccessError { error: "EACCES".to_owned(), help: vec!["be root".to_owned()] };
    TopReport {
        schema: SCHEMA.to_owned(),
        interval_seconds: 2.0,
        own_cpu_ratio: 0.0042,
        cpu_budget_ratio: 0.01,
        own_cpu_seconds: 0.1,
        sampled_processes: 1,
        sampling_rate_hz: 100,
        processes: vec![denied, refused, small, busy, process(10, "idle")],
        warnings: vec![TopWarning::NoPermission { processes: 1, first }],
    }
}

fn screen(width: u16, height: u16) -> String {
    let mut report = report();
    sort_top(&mut report.processes, TopColumn::Stall, false);
    let screen = TopScreen {
        report: &report,
        column: TopColumn::Stall,
        reverse: false,
        selected: 0,
        offset: 0,
        paused: false,
        interval: "2s",
        message: None,
        color: true,
    };
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw_top(&screen, &mut buffer);
    lines(&buffer)
}

fn lines(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut skip = 0;
        let mut line = String::new();
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                line.push_str(symbol);
                skip = symbol.width().max(1) - 1;
            } else {
                skip -= 1;
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[test]
fn the_screen_of_80_by_24_is_the_golden_one() {
    assert_golden("testdata/top-80x24.txt", &screen(80, 24));
}

#[test]
fn a_wide_screen_has_the_notes() {
    let text = screen(160, 12);
    assert!(text.contains("not sampled: perf_event_open: EPERM"), "{text}");
    assert_golden("testdata/top-160x12.txt", &text);
}

#[test]
fn a_warning_fits_into_eighty_columns() {
    let text = screen(80, 12);
    let line = text.lines().nth(1).unwrap();
    let expected =
        "every 2s  by STALL_%  |  warning: 1 may not be read, help: hugepilot top --once";
    assert_eq!(line.trim_end(), expected);
    let narrow = screen(70, 12);
    let line = narrow.lines().nth(1).unwrap();
    assert_eq!(line.trim_end(), "every 2s  by STALL_%  |  warning: 1 may not be read");
}

#[test]
fn no_screen_is_too_small() {
    for (width, height) in [(0, 0), (1, 1), (3, 2), (20, 4), (79, 5), (99, 6), (100, 7)] {
        let _ = screen(width, height);
    }
}

#[test]
fn hostile_names_keep_to_their_column() {
    for width in 20..200 {
        let text = screen(width, 12);
        assert!(text.lines().all(|line| line.width() <= usize::from(width)), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{200b}', '\u{202e}']), "{text}");
    }
    assert_eq!(safe("a\u{202e}\u{200b}é\n"), "a\\u{202e}\\u{200b}é\\u{a}");
    assert_eq!(fit("漢字漢", 4, false), "漢… ", "a wide character does not fit half");
    assert_eq!((fit("ab", 4, true), fit("abc", 0, false)), ("  ab".to_owned(), String::new()));
}

#[test]
fn sizes_fit_their_column() {
    let gib = |gib: f64| size(format!("{gib}GiB").parse().unwrap());
    assert_eq!([gib(12.06), gib(1.25), gib(999.75)], ["12.1GiB", "1.25GiB", "1000GiB"]);
    assert_eq!(size(Bytes::mib(1023)), "1023MiB");
}

#[test]
fn each_column_sorts_and_unknown_values_come_last() {
    let order = |column, reverse| {
        let mut processes = report().processes;
        sort_top(&mut processes, column, reverse);
        processes.iter().map(|process| process.pid.0).collect::<Vec<_>>()
    };
    assert_eq!(order(TopColumn::Pid, false), [8, 9, 10, 4711, 1_048_576]);
    assert_eq!(order(TopColumn::Pid, true), [1_048_576, 4711, 10, 9, 8]);
    assert_eq!(order(TopColumn::Cpu, false)[..2], [4711, 9]);
    assert_eq!(order(TopColumn::Cpu, false)[4], 8);
    assert_eq!(order(TopColumn::Cpu, true)[4], 8, "unknown stays last");
    assert_eq!(order(TopColumn::Stall, false)[..2], [4711, 9], "then by CPU time");
    assert_eq!(order(TopColumn::Thp, true)[0], 1_048_576);
    assert_eq!(order(TopColumn::User, false)[0], 8, "70000 sorts before ada");
    for column in TopColumn::ALL {
        assert_eq!(order(column, false).len(), 5, "{column:?}");
    }
    assert_eq!(TopColumn::Pid.moved(-1), TopColumn::Note);
    assert_eq!(TopColumn::Note.moved(1), TopColumn::Pid);
}

#[test]
fn text_is_complete_and_fits_a_terminal() {
    let text = top_text(&report(), Width::UNLIMITED, TopColumn::Stall, false);
    for part in [
        "5 processes, ",
        "; own CPU 0.4 %; 1 sampled\n",
        " 4711 ada   ",
        "not sampled: perf_event_open: EPERM\n",
        "漢字漢字漢字漢字漢字漢字",
        "note: GAIN_% is predicted by a model",
        "warning: 1 process may not be read",
        "help: be root\n",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    let one = TopReport { processes: vec![process(7, "a")], ..report() };
    let text = top_text(&one, Width::UNLIMITED, TopColumn::Stall, false);
    assert!(text.starts_with("1 process, 300MiB resident, "), "{text}");
    let narrow = top_text(&report(), Width::columns(80), TopColumn::Stall, false);
    let table = narrow.lines().skip(2).take(6);
    assert!(table.clone().all(|line| line.width() <= 80), "{narrow}");
}

#[test]
fn json_has_sentences_and_reads_back() {
    let value: Value = serde_json::from_str(&hugepilot_render::json(&report())).unwrap();
    assert_eq!(value["processes"][0]["note"]["code"], "no_permission");
    assert_eq!(value["processes"][0]["note"]["text"], "the process may not be read");
    assert_eq!(value["processes"][3]["note"], Value::Null);
    assert_eq!(value["warnings"][0]["help"][0], "be root");
    assert_eq!(serde_json::from_value::<TopReport>(value).unwrap(), report());
}

#[test]
fn stalls_are_shown_by_mapping_the_most_first() {
    let mapping = |start: u64, stalls, name: &str| MappingStalls {
        range: AddrRange::at(hugepilot_units::VirtAddr::new(start), Bytes::mib(4)),
        name: name.to_owned(),
        rss: Bytes::mib(4),
        thp: Bytes::mib(2),
        stalls,
    };
    let all = [mapping(4096, 0, "none"), mapping(8192, 25, "[heap]"), mapping(9 << 20, 75, "x")];
    let text = mapping_stalls_text(&all, Width::UNLIMITED);
    let names: Vec<_> = text.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(names, ["NAME", "x", "[heap]"], "{text}");
    assert!(text.contains("75.0 %") && text.contains("900000"), "{text}");
    assert_eq!(mapping_stalls_text(&all[..1], Width::UNLIMITED), "");
}
