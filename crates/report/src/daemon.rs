//! The log of `daemon`: one line of JSON, and the same for people.

use std::collections::BTreeMap;

use hugepilot_record::daemon::{Event, Line, ProcessFreed, Totals, Why};

/// `line` as one line of JSON.
///
/// # Panics
/// Never: records hold only numbers, texts, lists and maps with text keys.
pub fn daemon_line(line: &Line) -> String {
    let mut text = serde_json::to_string(line).expect("records are plain data");
    text.push('\n');
    text
}

/// `line` for people.
pub fn daemon_text(line: &Line) -> String {
    let seen = &line.seen;
    let dry = if seen.dry_run { "would have " } else { "" };
    let (used, high, low) = (100.0 * seen.use_ratio, seen.high_ratio, seen.low_ratio);
    let what = match &line.event {
        Event::Started { scope, order, .. } => {
            format!("watching {scope}, from {high} down to {low}, order {order}")
        }
        Event::Working { why: Why::High } => format!("working: use is above {high}"),
        Event::Working { why: Why::Pressure } => {
            format!("working: tasks wait for memory, and use is above {low}")
        }
        Event::Planned {
            processes,
            not_sampled,
            unread_huge_pages,
            candidates,
            reclaimable_bytes,
            requested_bytes,
            seconds,
            ..
        } => {
            let unseen =
                if *not_sampled == 0 { String::new() } else { format!(" ({not_sampled} not sampled)") };
            let unread = match unread_huge_pages {
                0 => String::new(),
                count => format!("; {count} huge pages could not be read, and their bloat is unknown"),
            };
            format!(
                "{candidates} huge pages of {processes} processes{unseen} could free {reclaimable_bytes}, {requested_bytes} \
                 wanted; found in {seconds:.1} s{unread}"
            )
        }
        Event::Freed {
            freed_bytes, huge_pages_split, processes, failed, over_budget, recollapse_risk, ..
        } => format!(
            "{dry}freed {freed_bytes} by splitting {huge_pages_split} huge pages{}{}{}{}",
            of(processes),
            counts(", in vain ", failed),
            if *over_budget { ", over the CPU budget because use is critical" } else { "" },
            recollapse_risk.as_deref().map_or_else(String::new, |why| format!(
                "; khugepaged may make these pages huge again, {why}"
            ))
        ),
        Event::Idle(totals) => format!("done: use is below {low}; {}", sums(dry, totals)),
        Event::Exhausted { why, retry_seconds } => {
            format!("nothing left to free: {why}; again in {retry_seconds:.0} s")
        }
        Event::Recollapsed { pid, command, regions, excluded, cause } => format!(
            "{regions} split regions of {pid} ({command}) are huge again, {excluded} are left alone from now on: {cause}"
        ),
        Event::Skipped { pid, command, why } => format!("{pid} ({command}) is left alone: {why}"),
        Event::Limit { lifted: true } => {
            "resting: nothing limits this memory any more, so there is nothing to hold its use against"
                .to_owned()
        }
        Event::Limit { lifted: false } => format!("memory is limited again, to {}", seen.limit_bytes),
        Event::Reloaded { refused: None } => format!("configuration read again: from {high} down to {low}"),
        Event::Reloaded { refused: Some(why) } => {
            format!("configuration not taken, the old one is kept: {why}")
        }
        Event::Stopped(totals) => format!("stopped; {}", sums(dry, totals)),
    };
    format!("{used:5.1}% in use: {what}\n")
}

fn of(processes: &[ProcessFreed]) -> String {
    let of: Vec<String> =
        processes.iter().map(|one| format!("{} ({})", one.pid, one.command)).collect();
    if of.is_empty() { String::new() } else { format!(" of {}", of.join(", ")) }
}

fn counts(what: &str, counts: &BTreeMap<String, u64>) -> String {
    let some: Vec<String> = counts.iter().map(|(why, count)| format!("{why} {count}")).collect();
    if some.is_empty() { String::new() } else { format!("{what}{}", some.join(", ")) }
}

fn sums(dry: &str, totals: &Totals) -> String {
    let Totals { freed_bytes, huge_pages_split, recollapses, seconds, cpu_seconds } = totals;
    let recollapses = if *recollapses == 0 {
        String::new()
    } else {
        format!(", {recollapses} made huge again by others")
    };
    format!(
        "{dry}freed {freed_bytes} by splitting {huge_pages_split} huge pages{recollapses}, in {seconds:.1} s with {cpu_seconds:.2} s \
         of CPU time"
    )
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_record::daemon::{SCHEMA, Seen};
    use hugepilot_testkit::assert_golden;
    use hugepilot_units::{Bytes, Share};

    use super::*;

    fn seen() -> Seen {
        let [high_ratio, low_ratio, critical_ratio, psi_start_ratio] =
            [80.0, 65.0, 92.0, 20.0].map(Share::percent);
        Seen {
            use_ratio: 0.8125,
            used_bytes: Bytes::gib(13),
            limit_bytes: Bytes::gib(16),
            hard_limit_use_ratio: 0.8125,
            psi_some_ratio: Some(0.015),
            high_ratio,
            low_ratio,
            critical_ratio,
            psi_start_ratio,
            dry_run: false,
        }
    }

    fn lines() -> Vec<Line> {
        let totals = Totals {
            freed_bytes: Bytes::gib(3),
            huge_pages_split: 2000,
            recollapses: 3,
            seconds: 4.5,
            cpu_seconds: 0.4375,
        };
        let (pid, command) = (Pid(4711), "redis-server".to_owned());
        let counts = |why: &str| BTreeMap::from([(why.to_owned(), 2)]);
        let freed = |over_budget| Event::Freed {
            freed_bytes: Bytes::gib(3),
            huge_pages_split: 2000,
            skipped: counts("changed"),
            failed: counts("still_huge"),
            processes: vec![ProcessFreed {
                pid,
                command: command.clone(),
                freed_bytes: Bytes::gib(3),
                huge_pages_split: 2000,
            }],
            seconds: 1.0,
            cpu_seconds: 0.25,
            over_budget,
            recollapse_risk: over_budget.then(|| "because THP is always".to_owned()),
        };
        let planned = Event::Planned {
            order: "heat".into(),
            processes: 2,
            not_sampled: 1,
            huge_pages: 4000,
            unread_huge_pages: 32,
            candidates: 3000,
            reclaimable_bytes: Bytes::gib(4),
            requested_bytes: Bytes::gib(3),
            skipped: counts("cooling_down"),
            seconds: 3.5,
            over_budget: false,
        };
        let started = Event::Started {
            scope: "system".into(),
            order: "heat".into(),
            interval_seconds: 1.0,
            cpu_budget_ratio: Share::percent(10.0),
            cool_down_seconds: 600.0,
            max_recollapses: 3,
        };
        let events = [
            started,
            Event::Working { why: Why::High },
            Event::Working { why: Why::Pressure },
            Event::Skipped { pid, command: command.clone(), why: "protected".into() },
            Event::Recollapsed {
                pid,
                command: command.clone(),
                regions: 3,
                excluded: 1,
                cause: "khugepaged".into(),
            },
            planned,
            freed(false),
            freed(true),
            Event::Idle(totals),
            Event::Exhausted { why: "all were tried".into(), retry_seconds: 10.0 },
            Event::Limit { lifted: true },
            Event::Limit { lifted: false },
            Event::Reloaded { refused: None },
            Event::Reloaded { refused: Some("d.toml:1: high: found 80".into()) },
            Event::Stopped(totals),
        ];
        events
            .map(|event| Line { schema: SCHEMA.into(), unix_seconds: 1.25, event, seen: seen() })
            .into()
    }

    #[test]
    fn every_event_for_people_and_for_programs() {
        let path = |name: &str| format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
        assert_golden(path("daemon.txt"), &lines().iter().map(daemon_text).collect::<String>());
        assert_golden(path("daemon.ndjson"), &lines().iter().map(daemon_line).collect::<String>());
    }

    #[test]
    fn a_dry_run_only_would_have() {
        for line in lines() {
            let dry = Line {
                seen: hugepilot_record::daemon::Seen { dry_run: true, ..line.seen },
                ..line
            };
            let text = daemon_text(&dry);
            assert_eq!(text.contains("freed "), text.contains("would have freed "), "{text}");
        }
    }
}
