use proptest::prelude::*;

use super::*;

fn event(seconds: f64, action: ScheduleAction, index: u64) -> ScheduleEvent {
    let at = ScheduleTime { seconds: Some(seconds), ..ScheduleTime::default() };
    let mapping = ScheduledMapping { name: "[anon]".to_owned(), ordinal: 1, bytes: Bytes::mib(64) };
    ScheduleEvent { at, action, mapping, index }
}

fn written(schedule: &Schedule) -> Vec<u8> {
    let mut text = Vec::new();
    schedule.write(&mut text).unwrap();
    text
}

/// The header, then these lines.
fn error(lines: &[&str]) -> String {
    let header = r#"{"schema":"hugepilot.schedule/1","program":"p","source":"s","policy":"pcc"}"#;
    let text = [&[header], lines].concat().join("\n");
    Schedule::read(text.as_bytes()).unwrap_err().to_string()
}

fn schedules() -> impl Strategy<Value = Schedule> {
    // Of fewer accesses, rounding to whole ones could contradict the share.
    let numbers = (any::<bool>(), 1u64 << 8..1 << 18, 0.001..1e6);
    let name = prop_oneof![Just("[anon]".to_owned()), "[ -~\u{e9}\u{4e2d}]{1,20}"];
    let mapping = (name, 0u32..9, 1u64..1 << 40);
    let event = (mapping, 0.0..1.0, 0u64..1 << 20, 0u8..6, any::<bool>());
    (numbers, prop::collection::vec(event, 0..40)).prop_map(|((has, accesses, rate), events)| {
        let header = ScheduleHeader {
            program: "a \"b\"".to_owned(),
            source: "simulator".to_owned(),
            policy: "pcc".to_owned(),
            accesses: has.then_some(accesses),
            accesses_per_second: has.then_some(accesses as f64 / rate),
            seconds: has.then_some(rate),
            ..ScheduleHeader::default()
        };
        let mut schedule = Schedule::new(header).unwrap();
        for ((name, ordinal, bytes), share, index, kind, is_promotion) in events {
            let is = |bit| kind & bit != 0;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let accesses = (has && is(2)).then_some((share * accesses as f64) as u64);
            let at = ScheduleTime {
                share: Some(share),
                seconds: (has && is(1)).then_some(share * rate),
                accesses,
            };
            let bytes = Bytes::new((index + 1 + bytes % 9) << 21);
            let mapping = ScheduledMapping { name, ordinal, bytes };
            let action =
                if is_promotion { ScheduleAction::Promote } else { ScheduleAction::Demote };
            schedule.push(ScheduleEvent { at, action, mapping, index }).unwrap();
        }
        schedule
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(schedule in schedules()) {
        prop_assert_eq!(Schedule::read(&written(&schedule)[..]).unwrap(), schedule);
    }

    #[test]
    fn damage_is_an_error_with_its_line_and_never_a_panic(
        schedule in schedules(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut text = written(&schedule);
        let lines = text.iter().filter(|&&byte| byte == b'\n').count();
        if is_cut {
            text.truncate(cut.index(text.len()));
        }
        for (at, byte) in changes {
            if !is_cut {
                let at = at.index(text.len());
                text[at] = byte;
            }
        }
        match Schedule::read(&text[..]) {
            // A cut between lines, or another value in a text, is as good.
            Ok(read) => prop_assert!(read.events().len() <= schedule.events().len()),
            Err(error) => {
                let error = error.to_string();
                let number = error.strip_prefix("line ").unwrap_or_default();
                let number: String = number.chars().take_while(char::is_ascii_digit).collect();
                prop_assert!((1..=lines + 4).contains(&number.parse().unwrap_or(0)), "{error}");
            }
        }
    }

    /// Against a search of all events.
    #[test]
    fn the_order_of_times_is_that_of_all_pairs(
        all in prop::collection::vec((0u32..20, 0u32..40), 1..40),
    ) {
        let mut schedule = Schedule::new(ScheduleHeader::default()).unwrap();
        let mut known: Vec<(f64, f64)> = Vec::new();
        for (share, seconds) in all {
            let (share, seconds) = (f64::from(share) / 20.0, f64::from(seconds) / 20.0);
            let contradicts = |&(other, at): &(f64, f64)| {
                let is_reversed = (other - share) * (at - seconds) < 0.0;
                is_reversed && (at - seconds).abs() > 0.1 + 0.05 * at.max(seconds)
            };
            let at = ScheduleTime { accesses: None, share: Some(share), seconds: Some(seconds) };
            let event = ScheduleEvent { at, ..event(seconds, ScheduleAction::Promote, 0) };
            prop_assert_eq!(schedule.push(event).is_err(), known.iter().any(contradicts));
            if !known.iter().any(contradicts) {
                known.push((share, seconds));
            }
        }
    }

    #[test]
    fn any_bytes_are_no_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Schedule::read(&text[..]);
    }
}

#[test]
fn times_are_converted_by_the_header() {
    let header = ScheduleHeader {
        accesses: Some(1000),
        accesses_per_second: Some(25.0),
        seconds: Some(40.0),
        ..ScheduleHeader::default()
    };
    let accesses = ScheduleTime { accesses: Some(250), ..ScheduleTime::default() };
    assert_eq!(header.share_of(&accesses), Some(0.25));
    assert_eq!(header.seconds_of(&accesses), Some(10.0));
    let share = ScheduleTime { share: Some(0.5), ..ScheduleTime::default() };
    assert_eq!((header.share_of(&share), header.seconds_of(&share)), (Some(0.5), Some(20.0)));
    let seconds = ScheduleTime { seconds: Some(10.0), ..ScheduleTime::default() };
    assert_eq!((header.share_of(&seconds), header.seconds_of(&seconds)), (Some(0.25), Some(10.0)));
    let none = ScheduleHeader::default();
    assert_eq!((none.share_of(&accesses), none.seconds_of(&accesses)), (None, None));
    assert_eq!((none.share_of(&seconds), none.seconds_of(&share)), (None, None));
}

#[test]
fn an_error_has_the_line_the_field_and_the_value() {
    let line = |at: &str, rest: &str| format!("{{\"at\":{at},{rest}}}");
    let mapping = r#""mapping":{"name":"[anon]","ordinal":0,"bytes":4194304}"#;
    let good = line(r#"{"seconds":1}"#, &format!(r#""action":"promote",{mapping},"index":1"#));
    for (at, rest, text) in [
        (r#"{"seconds":-1}"#, "", "line 3: at.seconds: expected 0 to 1000000000, found -1"),
        (r#"{"share":1.5}"#, "", "line 3: at.share: expected 0 to 1, found 1.5"),
        (r#"{"share":"x"}"#, "", "line 3: at.share: expected a number, found \"x\""),
        (r#"{"accesses":7}"#, "", "line 3: at: accesses require accesses or"),
        (r#"{"when":7}"#, "", "line 3: at: expected only the fields accesses, share, seconds, "),
        ("{}", "", "line 3: at: expected share, seconds or accesses, found {}"),
        ("3", "", "line 3: at: expected an object, found 3"),
        (
            r#"{"seconds":1}"#,
            "split",
            "line 3: action: expected promote or demote, found \"split\"",
        ),
        (r#"{"seconds":1}"#, "index", "line 3: index: expected an index below the 2 regions"),
    ] {
        let (action, index) = match rest {
            "" => ("promote", "0"),
            "index" => ("promote", "2"),
            action => (action, "0"),
        };
        let rest = format!(r#""action":"{action}",{mapping},"index":{index}"#);
        let found = error(&[&good, &line(at, &rest)]);
        assert!(found.starts_with(text), "{found}\n{text}");
    }
    assert!(error(&[&good, "", "{"]).starts_with("line 4, column 1: EOF"), "empty lines count");
    let long = format!("{{\"at\":\"{}\"}}", "x".repeat(MAX_LINE));
    assert_eq!(error(&[&long]), "line 2 is longer than 65536 bytes");
    let many = error(&[&good, &good.replace("[anon]", &"x".repeat(5000))]);
    assert!(many.starts_with("line 3: mapping.name: longer than 4096 bytes, found xxx"), "{many}");
}

#[test]
fn other_files_and_versions_are_refused() {
    let read = |text: &str| Schedule::read(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        read("{\"schema\":\"hugepilot.schedule/2\"}"),
        "line 1: schema: expected \"hugepilot.schedule/1\", found \"hugepilot.schedule/2\""
    );
    assert!(read("").starts_with("line 1: not a schedule of hugepilot"));
    assert!(read("\u{7f}ELF").starts_with("line 1: not a schedule of hugepilot"));
    let header = |fields: &str| read(&format!("{{\"schema\":\"hugepilot.schedule/1\",{fields}}}"));
    let texts = r#""program":"p","source":"s","policy":"p""#;
    assert_eq!(header(r#""program":3"#), "line 1: program: expected text, found 3");
    assert_eq!(header(r#""program":"p""#), "line 1: source: expected text, found none");
    let size = header(&format!("{texts},\"region_bytes\":3000000"));
    assert!(size.starts_with("line 1: region_bytes: expected a power of two"), "{size}");
}

#[test]
fn events_and_mappings_are_bounded() {
    let mut schedule = Schedule::new(ScheduleHeader::default()).unwrap();
    for ordinal in 0..u32::try_from(MAX_MAPPINGS).unwrap() {
        let mut event = event(1.0, ScheduleAction::Promote, 3);
        event.mapping.ordinal = ordinal;
        schedule.push(event).unwrap();
    }
    let mut one_more = event(1.0, ScheduleAction::Promote, 3);
    one_more.mapping.ordinal = 1 << 20;
    let problem = schedule.push(one_more).unwrap_err().to_string();
    assert!(problem.contains("more than 4096 mappings"), "{problem}");
    let next = event(1.0, ScheduleAction::Demote, 4);
    let known = schedule.events().len();
    (known..MAX_EVENTS).for_each(|_| schedule.push(next.clone()).unwrap());
    let problem = schedule.push(next).unwrap_err().to_string();
    assert_eq!(problem, "event: more than 1000000 events, found 1000001");
}

/// Steps that are alike add up: the neighbours of an event are not enough.
#[test]
fn times_that_go_back_in_small_steps_are_refused() {
    let mut schedule = Schedule::new(ScheduleHeader::default()).unwrap();
    let mut push = |step: u32| {
        let (share, seconds) = (f64::from(step) / 1000.0, 10.0 - f64::from(step) / 100.0);
        let at = ScheduleTime { accesses: None, share: Some(share), seconds: Some(seconds) };
        schedule.push(ScheduleEvent { at, ..event(seconds, ScheduleAction::Promote, 0) })
    };
    let refused = (0..1000).find(|&step| push(step).is_err());
    // 5 % of 10 s, and 0.1 s.
    assert_eq!(refused, Some(61));
}

#[test]
fn times_that_contradict_each_other_are_refused() {
    let event = |at: &str| {
        let mapping = r#""mapping":{"name":"[anon]","ordinal":0,"bytes":4194304}"#;
        format!(r#"{{"at":{at},"action":"promote",{mapping},"index":1}}"#)
    };
    let read = |header: &str, times: &[&str]| {
        let texts = r#""schema":"hugepilot.schedule/1","program":"p","source":"s","policy":"pcc""#;
        let mut lines = vec![format!("{{{texts}{header}}}")];
        lines.extend(times.iter().map(|at| event(at)));
        Schedule::read(lines.join("\n").as_bytes()).map_err(|error| error.to_string())
    };
    let all = r#","accesses":1000,"accesses_per_second":10,"seconds":100"#;
    for (header, times) in [
        (all, &[r#"{"share":0.5,"seconds":51,"accesses":500}"#][..]),
        (all, &[r#"{"seconds":9}"#, r#"{"seconds":3}"#]),
        ("", &[r#"{"share":0.5,"seconds":9}"#, r#"{"share":0.2,"seconds":3}"#]),
        ("", &[r#"{"share":0.5,"seconds":9}"#, r#"{"share":0.5,"seconds":3}"#]),
        ("", &[r#"{"share":0.501,"seconds":9}"#, r#"{"share":0.5,"seconds":9.01}"#]),
    ] {
        assert_eq!(read(header, times).unwrap().events().len(), times.len(), "{times:?}");
    }
    let units = "at: expected one time in all units, by the header, found ";
    let order = "at: expected the same order of events by share and by seconds, found ";
    for (header, times, problem) in [
        (all, &[r#"{"share":0.5,"seconds":10}"#][..], format!("line 2: {units}")),
        (all, &[r#"{"share":0.5,"accesses":10}"#], format!("line 2: {units}")),
        (all, &[r#"{"seconds":90,"accesses":10}"#], format!("line 2: {units}")),
        (
            r#","accesses_per_second":10"#,
            &[r#"{"seconds":9,"accesses":10}"#],
            format!("line 2: {units}"),
        ),
        (
            "",
            &[r#"{"share":0.5,"seconds":9}"#, r#"{"share":0.2,"seconds":30}"#],
            format!("line 3: {order}"),
        ),
        (
            "",
            &[r#"{"share":0.2,"seconds":30}"#, r#"{"share":0.5,"seconds":9}"#],
            format!("line 3: {order}"),
        ),
        (
            r#","accesses":1000,"accesses_per_second":10,"seconds":3"#,
            &[],
            "line 1: seconds: expected about 100.000: accesses over accesses_per_second".to_owned(),
        ),
    ] {
        let found = read(header, times).unwrap_err();
        assert!(found.starts_with(&problem), "{found}\n{problem}");
    }
}
