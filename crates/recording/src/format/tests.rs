use hugepilot_record::{
    Cpu, GroupTime, Metric, MetricKind, MetricScope, Pid, ProcessId, ProvenanceCounts, Tid, Unit,
};
use hugepilot_units::{Bytes, Nanos, Region};
use proptest::prelude::*;

use super::*;

fn head() -> Head {
    let metric = Metric {
        name: "page_faults".to_owned(),
        unit: Unit::Count,
        kind: MetricKind::Counter,
        scope: MetricScope::Process,
        source: "/proc/PID/stat".to_owned(),
        description: "page faults".to_owned(),
        group: None,
        missing: None,
    };
    let missing =
        Metric { name: "walks".to_owned(), missing: Some("no PMU".to_owned()), ..metric.clone() };
    Head {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        command: vec!["hugepilot".to_owned(), "record".to_owned()],
        started_unix_seconds: 1.5,
        started: Nanos::millis(3),
        every: Nanos::millis(100),
        machine: RecordedMachine {
            cpu: Cpu {
                vendor: "AuthenticAMD".to_owned(),
                model_name: String::new(),
                family: 26,
                model: 2,
                hypervisor: true,
            },
            cpus: 2,
            memory_bytes: 1 << 34,
            kernel: "6.18.0".to_owned(),
            thp: "madvise".to_owned(),
            base_page_bytes: 4096,
            huge_page_bytes: 2 << 20,
            tlb: None,
        },
        metrics: vec![metric, missing],
        sampler: Some("cpu-clock at 500 Hz".to_owned()),
        sampler_missing: None,
    }
}

fn lines() -> Vec<Line> {
    let id = ProcessId { pid: Pid(7), start_ticks: 9, command: "db".to_owned() };
    let slice = |time: u64| {
        Line::Slice(Slice {
            time: Nanos::millis(time),
            length: Nanos::millis(100),
            pid: Some(Pid(7)),
            tid: None,
            values: vec![Some(12.0), None],
            groups: vec![GroupTime { enabled_ns: 4, running_ns: 2 }],
        })
    };
    vec![
        Line::Process(RecordedProcess { time: Nanos::millis(3), id, threads: Vec::new() }),
        slice(103),
        Line::Heat(HeatSlice {
            time: Nanos::millis(103),
            length: Nanos::millis(100),
            pid: Pid(7),
            samples: 9,
            addressed: 8,
            scattered: 7,
            regions: vec![HotRegion(Region::new(4), 8, 1, Some(true))],
            mappings: Vec::new(),
            threads: Vec::new(),
        }),
        Line::Journal(serde_json::json!({"schema": "hugepilot.journal/3"})),
        Line::Journal(serde_json::json!({"number": 1})),
        Line::Trial(RecordedTrial {
            time: Nanos::millis(104),
            name: "thp".to_owned(),
            number: 2,
            took: Nanos::millis(9),
            result: serde_json::json!({"wall_seconds": 0.009}),
        }),
        Line::Phase(Phase { time: Nanos::millis(104), name: "bfs".to_owned() }),
        slice(203),
        Line::Report(serde_json::json!({"schema": "hugepilot.tune/4"})),
        Line::End(End {
            time: Nanos::millis(203),
            exit: Some("0".to_owned()),
            samples: ProvenanceCounts::default(),
            own_cpu: Nanos::millis(1),
            ..End::default()
        }),
    ]
}

/// A recording with a member for each line.
fn written() -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), head()).unwrap();
    for line in lines() {
        writer.add(&line).unwrap();
        writer.flush().unwrap();
    }
    let bytes = writer.bytes();
    let file = writer.finish().unwrap();
    assert_eq!(bytes, file.len() as u64);
    file
}

fn text_of(file: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(file), &mut text).unwrap();
    text
}

type Read = (Vec<Line>, bool, Option<RecordingError>);

fn read_with(file: &[u8], limits: RecordingLimits) -> Result<Read, RecordingError> {
    let mut reader = RecordingReader::new(file, limits)?;
    let mut lines = Vec::new();
    let mut failed = None;
    for line in &mut reader {
        match line {
            Ok(line) => lines.push(line),
            Err(error) => failed = Some(error),
        }
    }
    Ok((lines, reader.is_cut(), failed))
}

fn read(file: &[u8]) -> Result<Read, RecordingError> {
    read_with(file, RecordingLimits::default())
}

#[test]
fn what_was_written_is_read() {
    let file = written();
    let reader = RecordingReader::new(&file[..], RecordingLimits::default()).unwrap();
    assert_eq!(*reader.head(), head());
    for file in [file.clone(), text_of(&file)] {
        assert!(RecordingReader::is_likely(&file));
        let (read, is_cut, failed) = read(&file).unwrap();
        assert_eq!((read, is_cut), (lines(), false));
        assert!(failed.is_none(), "{failed:?}");
    }
}

#[test]
fn a_cut_file_is_read_up_to_the_cut() {
    for file in [written(), text_of(&written())] {
        let mut before = 0;
        for cut in 0..file.len() {
            match read(&file[..cut]) {
                Ok((read, _, failed)) => {
                    assert!(failed.is_none(), "{cut}: {failed:?}");
                    assert_eq!(read, lines()[..read.len()], "{cut}");
                    assert!(read.len() >= before, "{cut}: a longer file has at least as much");
                    before = read.len();
                }
                Err(error) => {
                    assert!(matches!(error, RecordingError::NoRecording), "{cut}: {error}");
                    assert_eq!(cut, 0, "only an empty file is no recording");
                }
            }
        }
        assert!(before >= lines().len() - 1, "all but the last line");
    }
}

#[test]
fn a_file_cut_inside_its_head_has_no_lines_and_is_cut() {
    let head = text_of(&written()).iter().position(|&byte| byte == b'\n').unwrap();
    for (file, cuts) in [(written(), 1..200), (text_of(&written()), 1..head + 1)] {
        for cut in cuts {
            let mut reader =
                RecordingReader::new(&file[..cut], RecordingLimits::default()).unwrap();
            assert_eq!((reader.next().is_none(), reader.is_cut()), (true, true), "{cut}");
            assert_eq!(*reader.head(), Head::default(), "{cut}");
        }
    }
}

#[test]
fn a_stored_recording_is_read() {
    let (read, is_cut, failed) = read(include_bytes!("samples/version-2.ndjson.gz")).unwrap();
    assert!(failed.is_none() && !is_cut, "{failed:?}");
    assert_eq!(read, lines());
}

#[test]
fn the_heat_of_a_stored_recording_names_mappings_once() {
    let stored = &include_bytes!("samples/version-2-names.ndjson.gz")[..];
    let read = read_and_written_again(stored);
    let heat = read.iter().filter_map(|line| match line {
        Line::Heat(heat) => Some(heat),
        _ => None,
    });
    let names: Vec<_> = heat.flat_map(|heat| &heat.mappings).map(|one| &*one.1).collect();
    assert_eq!(names, ["[anon]", "[anon]", "/usr/lib/libpython3.11.so.1.0", "[stack]"]);
}

#[test]
fn the_heat_of_a_stored_recording_has_its_threads_if_there_are_several() {
    let stored = &include_bytes!("samples/version-2-threads.ndjson.gz")[..];
    let read = read_and_written_again(stored);
    let heat = read.iter().filter_map(|line| match line {
        Line::Heat(heat) => Some(heat),
        _ => None,
    });
    let threads: Vec<&[ThreadStalls]> = heat.map(|heat| &heat.threads[..]).collect();
    let both = [ThreadStalls(Tid(2027), 4, 2), ThreadStalls(Tid(2031), 15, 11)];
    assert_eq!(threads, [&[][..], &both]);
}

/// Lines of a stored recording. Writing it again adds nothing.
fn read_and_written_again(stored: &[u8]) -> Vec<Line> {
    let head = RecordingReader::new(stored, RecordingLimits::default()).unwrap().head().clone();
    let (read, is_cut, failed) = read(stored).unwrap();
    assert!(failed.is_none() && !is_cut, "{failed:?}");
    let mut writer = RecordingWriter::new(Vec::new(), head).unwrap();
    read.iter().for_each(|line| writer.add(line).unwrap());
    let [again, stored] = [&writer.finish().unwrap(), stored].map(text_of);
    assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(stored).unwrap());
    read
}

#[test]
fn fields_of_later_versions_of_hugepilot_are_ignored() {
    let file = String::from_utf8(text_of(&written())).unwrap();
    let later = file.replacen("\"name\":\"bfs\"", "\"name\":\"bfs\",\"later\":[1]", 1);
    assert_ne!(file, later);
    assert_eq!(read(later.as_bytes()).unwrap().0, lines());
}

/// The text of the journal in a recording.
fn journal_of(file: &[u8]) -> std::io::Result<String> {
    let reader = RecordingReader::new(file, RecordingLimits::default());
    let mut text = String::new();
    let mut journal = RecordedJournal::new(reader.map_err(std::io::Error::other)?);
    std::io::Read::read_to_string(&mut journal, &mut text)?;
    Ok(text)
}

#[test]
fn the_journal_of_a_recording_is_its_lines_up_to_a_cut() {
    let whole = "{\"schema\":\"hugepilot.journal/3\"}\n{\"number\":1}\n";
    for file in [written(), text_of(&written())] {
        assert_eq!(journal_of(&file).unwrap(), whole);
        for cut in 0..file.len() {
            if let Ok(journal) = journal_of(&file[..cut]) {
                // Of a line that was cut, the bracket around it may be left.
                assert!(whole.starts_with(journal.trim_end_matches('}')), "{cut}: {journal}");
            }
        }
    }
}

#[test]
fn foreign_lines_are_written_as_their_values() {
    let value = serde_json::json!({"b": 1, "a": [2]});
    let mut writer = RecordingWriter::new(Vec::new(), head()).unwrap();
    writer.add_journal(&value).unwrap();
    writer.add_report(&value).unwrap();
    let (read, ..) = read(&writer.finish().unwrap()).unwrap();
    assert_eq!(read, [Line::Journal(value.clone()), Line::Report(value)]);
}

#[test]
fn a_line_that_only_begins_as_one_of_a_journal_is_damage() {
    let file = String::from_utf8(text_of(&written())).unwrap();
    let damaged = file.replacen("journal/3\"}}\n", "journal/3\"} }]\n", 1);
    let error = journal_of(damaged.as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "line 5 is damaged: not a line of a journal");
}

#[test]
fn what_is_no_recording_has_an_error() {
    let none = |file: &[u8]| matches!(read(file), Err(RecordingError::NoRecording));
    assert!(none(b""));
    assert!(none(b"{\"schema\":\"hugepilot.journal/3\"}\n"));
    assert!(none(b"{\"schema\":\"hugepilot.jour"));
    assert!(none(&[0x1f, 0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    let newer = String::from_utf8(text_of(&written())).unwrap();
    let newer = newer.replacen("recording/2", "recording/3", 1);
    let error = read(newer.as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "schema \"hugepilot.recording/3\"; this hugepilot reads \"hugepilot.recording/2\""
    );
}

#[test]
fn bounds_and_damage_have_their_line() {
    let file = text_of(&written());
    let limits = |line, total| RecordingLimits { line: Bytes::new(line), total: Bytes::new(total) };
    let first = file.iter().position(|&byte| byte == b'\n').unwrap() as u64 + 1;
    let (read_lines, _, failed) = read_with(&file, limits(first, first + 300)).unwrap();
    assert!(!read_lines.is_empty() && read_lines.len() < lines().len());
    assert!(matches!(failed, Some(RecordingError::Long { .. })), "{failed:?}");
    assert!(matches!(
        read_with(&file, limits(first - 1, 1 << 20)),
        Err(RecordingError::Long { line: 1, .. })
    ));
    let damaged = String::from_utf8(file).unwrap().replacen("\"pid\":7", "\"pid\":x", 2);
    let (_, _, failed) = read(damaged.as_bytes()).unwrap();
    assert!(failed.unwrap().to_string().starts_with("line 2 is damaged: "));
}

proptest! {
    #[test]
    fn damage_never_panics_and_never_invents(at in 0usize..4096, bit in 0u8..8) {
        let mut file = written();
        let at = at % file.len();
        file[at] ^= 1 << bit;
        if let Ok((read, ..)) = read(&file) {
            prop_assert!(read.len() <= lines().len());
        }
    }
}

#[test]
fn an_end_has_the_tree_and_the_span_or_is_as_before() {
    let none = serde_json::to_string(&End::default()).unwrap();
    assert!(!none.contains("tree") && !none.contains("span"), "{none}");
    let tree = Some(TreeUse { faults: 9, unseen_faults: 4, ..TreeUse::default() });
    let end = End { tree, span: Some("from the start".to_owned()), ..End::default() };
    let text = serde_json::to_string(&end).unwrap();
    assert_eq!(serde_json::from_str::<End>(&text).unwrap(), end);
}
