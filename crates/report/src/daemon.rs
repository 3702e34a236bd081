//! Text and JSON lines of `hugepilot daemon`.

use std::collections::BTreeMap;

use hugepilot_record::daemon::{
    Event, ExclusionCause, ExhaustedCause, Line, ProcessFreed, Promoted, ReloadError, Totals,
    WorkCause,
};

use crate::sentence::{Sentence, explain};
use crate::tune::sentence::trial;

/// Prints `line` as one line of JSON.
///
/// # Panics
/// Never: records hold only numbers, texts, lists and maps with text keys.
pub fn daemon_line(line: &Line) -> String {
    let mut json = serde_json::to_value(line).expect("records are plain data");
    match &line.event {
        Event::Freed { recollapse_risk: Some(risk), .. } => {
            explain(&mut json, "/recollapse_risk", risk);
        }
        Event::Exhausted { cause, .. } => explain(&mut json, "/cause", cause),
        Event::Recollapsed { cause, .. } => explain(&mut json, "/cause", cause),
        Event::Skipped { cause, .. } => explain(&mut json, "/cause", cause),
        Event::Reloaded { error: Some(error) } => explain(&mut json, "/error", error),
        Event::Promoted(Promoted { no_trial: Some(cause), .. }) => {
            explain(&mut json, "/no_trial", cause);
        }
        _ => {}
    }
    format!("{json}\n")
}

/// Prints `line` for people: `<event>: <values>`, and a `help:` line for each suggestion.
pub fn daemon_text(line: &Line) -> String {
    let use_percent = 100.0 * line.memory.use_ratio;
    let dry_run = if line.memory.dry_run { ", dry run" } else { "" };
    let (name, values) = name_and_values(line);
    let help: String = help(&line.event).iter().map(|help| format!("help: {help}\n")).collect();
    format!("{name}: use {use_percent:.1}%{dry_run}, {values}\n{help}")
}

fn name_and_values(line: &Line) -> (&'static str, String) {
    let (high, low) = (line.memory.high_ratio, line.memory.low_ratio);
    match &line.event {
        Event::Started { scope, order, promotion_rules, .. } => {
            let rules = match promotion_rules {
                0 => ", no rule allows promotion".to_owned(),
                rules => format!(", {rules} rules allow promotion"),
            };
            ("started", format!("scope {scope}, high {high}, low {low}, order {order}{rules}"))
        }
        Event::Promoted(promoted) => ("promoted", promoted_values(promoted)),
        Event::Working { cause: WorkCause::High } => ("working", format!("high {high}")),
        Event::Working { cause: WorkCause::Pressure } => {
            let psi = 100.0 * line.memory.psi_some_ratio.unwrap_or_default();
            ("working", format!("memory pressure {psi:.1}%, low {low}"))
        }
        planned @ Event::Planned { .. } => ("planned", planned_values(planned)),
        freed @ Event::Freed { .. } => ("freed", freed_values(freed)),
        Event::Idle(totals) => ("idle", format!("low {low}, {}", sums(totals))),
        Event::Exhausted { cause, retry_seconds } => {
            ("exhausted", format!("{}, next attempt in {retry_seconds:.0} s", cause.text()))
        }
        Event::Recollapsed { pid, command, regions, excluded, cause } => {
            let excluded = match excluded {
                0 => String::new(),
                excluded => format!(", {excluded} excluded from now on"),
            };
            let cause = cause.text();
            let regions = format!("{regions} split regions{excluded}");
            ("recollapsed", format!("process {pid} ({command}), {regions}: {cause}"))
        }
        Event::Skipped { pid, command, cause } => {
            ("skipped", format!("process {pid} ({command}): {}", cause.text()))
        }
        Event::Limit { lifted: true } => {
            ("limit", "no limit on memory, nothing is split".to_owned())
        }
        Event::Limit { lifted: false } => ("limit", format!("limit {}", line.memory.limit_bytes)),
        Event::Reloaded { error: None } => ("reloaded", format!("high {high}, low {low}")),
        Event::Reloaded { error: Some(error) } => {
            ("reloaded", format!("new configuration rejected: {}", error.text()))
        }
        Event::Stopped(totals) => ("stopped", sums(totals)),
    }
}

fn help(event: &Event) -> Vec<String> {
    match event {
        Event::Freed { recollapse_risk: Some(risk), .. } => risk.help(),
        Event::Recollapsed { cause, .. } => cause.help(),
        Event::Skipped { cause, .. } => cause.help(),
        Event::Exhausted { cause, .. } => cause.help(),
        Event::Reloaded { error: Some(error) } => error.help(),
        _ => Vec::new(),
    }
}

fn planned_values(event: &Event) -> String {
    let Event::Planned {
        processes,
        not_sampled,
        unread_huge_pages,
        candidates,
        reclaimable_bytes,
        requested_bytes,
        seconds,
        ..
    } = event
    else {
        return String::new();
    };
    let part = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!(", {count} {what}"),
    };
    format!(
        "{candidates} candidates of {processes} processes, {reclaimable_bytes} reclaimable, \
         {requested_bytes} requested{}{}, {seconds:.1} s",
        part(*not_sampled, "processes not sampled"),
        part(*unread_huge_pages, "huge pages unread")
    )
}

fn freed_values(event: &Event) -> String {
    let Event::Freed {
        freed_bytes,
        huge_pages_split,
        processes,
        failed,
        over_budget,
        recollapse_risk,
        ..
    } = event
    else {
        return String::new();
    };
    let over_budget = if *over_budget { ", CPU budget exceeded (use is critical)" } else { "" };
    let risk = recollapse_risk.map_or_else(String::new, |risk| format!("; {}", risk.text()));
    format!(
        "{freed_bytes} by {huge_pages_split} splits{}{}{over_budget}{risk}",
        of(processes),
        counts(", failed ", failed)
    )
}

fn promoted_values(promoted: &Promoted) -> String {
    let Promoted { pid, command, rule, huge_pages_promoted, promoted_bytes, seconds, .. } =
        promoted;
    let demoted = match promoted.huge_pages_demoted {
        0 => String::new(),
        count => format!(", {count} returned to base pages"),
    };
    let trial = trial(promoted.no_trial, promoted.trial);
    let trial = trial.map_or_else(String::new, |trial| format!("; {trial}"));
    let stopped = promoted.stopped.map_or_else(String::new, |stop| format!("; {stop}"));
    format!(
        "process {pid} ({command}) by rule {rule}: {huge_pages_promoted} huge pages \
         ({promoted_bytes}){demoted}{} in {seconds:.1} s{trial}{stopped}",
        counts(", failed ", &promoted.failed)
    )
}

fn of(processes: &[ProcessFreed]) -> String {
    let of: Vec<String> =
        processes.iter().map(|one| format!("{} ({})", one.pid, one.command)).collect();
    if of.is_empty() { String::new() } else { format!(" of {}", of.join(", ")) }
}

fn counts(what: &str, counts: &BTreeMap<String, u64>) -> String {
    let some: Vec<String> =
        counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    if some.is_empty() { String::new() } else { format!("{what}{}", some.join(", ")) }
}

fn sums(totals: &Totals) -> String {
    let Totals { freed_bytes, huge_pages_split, recollapses, seconds, cpu_seconds, .. } = totals;
    let promoted = match totals.huge_pages_promoted {
        0 => String::new(),
        count => format!(", promoted {} by {count} collapses", totals.promoted_bytes),
    };
    let recollapses = match recollapses {
        0 => String::new(),
        count => format!(", {count} regions re-collapsed"),
    };
    format!(
        "freed {freed_bytes} by {huge_pages_split} splits{recollapses}{promoted}, {seconds:.1} s, \
         CPU time {cpu_seconds:.2} s"
    )
}

impl Sentence for ExhaustedCause {
    fn text(&self) -> String {
        match self {
            Self::NoCandidates => "no huge page has enough bloat and may be split now".to_owned(),
            Self::AllTried { candidates } => format!("all {candidates} candidates were tried"),
            Self::BrokenMemory { corrupted_bytes } => format!(
                "{corrupted_bytes} of memory are broken (HardwareCorrupted in /proc/meminfo), and \
                 a split reads every page"
            ),
        }
    }
    fn help(&self) -> Vec<String> {
        match self {
            Self::BrokenMemory { .. } => {
                vec!["find the module, and replace it: sudo dmesg | grep -iE 'edac|mce'".to_owned()]
            }
            _ => Vec::new(),
        }
    }
}

impl Sentence for ExclusionCause {
    fn text(&self) -> String {
        match self {
            Self::Protected => "protected by the configuration".to_owned(),
            Self::OomProtected { oom_score_adj } => {
                format!("the system needs it (oom_score_adj {oom_score_adj})")
            }
            Self::Unreadable(error) => error.text(),
            Self::Stopped { stop } => stop.to_string(),
        }
    }
    fn help(&self) -> Vec<String> {
        match self {
            Self::Unreadable(error) => error.help(),
            _ => Vec::new(),
        }
    }
}

impl Sentence for ReloadError {
    fn text(&self) -> String {
        match self {
            Self::Config { error } => error.clone(),
            Self::CgroupChanged => "cgroup cannot change while the daemon runs".to_owned(),
        }
    }
    fn help(&self) -> Vec<String> {
        match self {
            Self::Config { .. } => Vec::new(),
            Self::CgroupChanged => vec!["stop the daemon and start it again".to_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::daemon::{MemoryUse, SCHEMA};
    use hugepilot_record::tune::{NoTrial, TrialReport, TrialVerdict};
    use hugepilot_record::{AccessError, Pid, RecollapseCause, RecollapseRisk, ThpScope};
    use hugepilot_testkit::assert_golden;
    use hugepilot_units::{Bytes, Share};

    use super::*;

    fn memory() -> MemoryUse {
        let [high_ratio, low_ratio, critical_ratio, psi_start_ratio] =
            [80.0, 65.0, 92.0, 20.0].map(Share::percent);
        MemoryUse {
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

    const RISK: RecollapseRisk =
        RecollapseRisk { thp_enabled: ThpScope::Always, max_ptes_none: 511 };
    const PID: Pid = Pid(4711);
    const COMMAND: &str = "redis-server";
    const TOTALS: Totals = Totals {
        freed_bytes: Bytes::gib(3),
        huge_pages_split: 2000,
        recollapses: 3,
        huge_pages_promoted: 480,
        promoted_bytes: Bytes::mib(960),
        seconds: 4.5,
        cpu_seconds: 0.4375,
    };

    fn counts(reason: &str) -> BTreeMap<String, u64> {
        BTreeMap::from([(reason.to_owned(), 2)])
    }

    fn started() -> Event {
        Event::Started {
            scope: "system".into(),
            order: "heat".into(),
            interval_seconds: 1.0,
            cpu_budget_ratio: Share::percent(10.0),
            cool_down_seconds: 600.0,
            max_recollapses: 3,
            promotion_rules: 2,
        }
    }

    fn promoted(trial: bool) -> Event {
        let trial = trial.then_some(TrialReport {
            verdict: TrialVerdict::Gain,
            ratio: Some(0.74),
            low_ratio: Some(0.57),
            high_ratio: Some(0.94),
            pairs: 106,
            samples: 777,
            seconds: 1.6,
            confirmed: Some(true),
        });
        Event::Promoted(Promoted {
            pid: PID,
            command: COMMAND.into(),
            rule: 1,
            huge_pages_promoted: 480,
            promoted_bytes: Bytes::mib(960),
            huge_pages_demoted: 0,
            failed: counts("EAGAIN"),
            no_trial: trial.is_none().then_some(NoTrial::PointerChases { ratio: 0.98 }),
            trial,
            expected_speedup: None,
            stopped: None,
            seconds: 9.75,
        })
    }

    fn planned() -> Event {
        Event::Planned {
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
        }
    }

    fn freed(over_budget: bool) -> Event {
        let process = ProcessFreed {
            pid: PID,
            command: COMMAND.into(),
            freed_bytes: Bytes::gib(3),
            huge_pages_split: 2000,
        };
        Event::Freed {
            freed_bytes: Bytes::gib(3),
            huge_pages_split: 2000,
            skipped: counts("changed"),
            failed: counts("still_huge"),
            processes: vec![process],
            seconds: 1.0,
            cpu_seconds: 0.25,
            over_budget,
            recollapse_risk: over_budget.then_some(RISK),
        }
    }

    fn events() -> Vec<Event> {
        let skipped = |cause| Event::Skipped { pid: PID, command: COMMAND.into(), cause };
        let exhausted = |cause| Event::Exhausted { cause, retry_seconds: 10.0 };
        let rejected = |error| Event::Reloaded { error: Some(error) };
        let recollapsed = Event::Recollapsed {
            pid: PID,
            command: COMMAND.into(),
            regions: 3,
            excluded: 1,
            cause: RecollapseCause::KhugepagedOrProgram(RISK),
        };
        vec![
            started(),
            Event::Working { cause: WorkCause::High },
            Event::Working { cause: WorkCause::Pressure },
            skipped(ExclusionCause::Protected),
            skipped(ExclusionCause::OomProtected { oom_score_adj: -1000 }),
            skipped(ExclusionCause::Unreadable(AccessError {
                error: "cannot read /proc/4711/smaps: EACCES".into(),
                help: vec!["run as root".into()],
            })),
            recollapsed,
            promoted(true),
            promoted(false),
            planned(),
            freed(false),
            freed(true),
            Event::Idle(TOTALS),
            exhausted(ExhaustedCause::NoCandidates),
            exhausted(ExhaustedCause::AllTried { candidates: 3000 }),
            exhausted(ExhaustedCause::BrokenMemory { corrupted_bytes: Bytes::kib(8) }),
            Event::Limit { lifted: true },
            Event::Limit { lifted: false },
            Event::Reloaded { error: None },
            rejected(ReloadError::Config { error: "d.toml:1: high: found 80".into() }),
            rejected(ReloadError::CgroupChanged),
            Event::Stopped(TOTALS),
        ]
    }

    fn lines() -> Vec<Line> {
        let line = |event| {
            let (schema, unix_seconds) = (SCHEMA.into(), 1.25);
            Line { schema, unix_seconds, event, memory: memory() }
        };
        events().into_iter().map(line).collect()
    }

    #[test]
    fn every_event_for_people_and_for_programs() {
        let path = |name: &str| format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
        assert_golden(path("daemon.txt"), &lines().iter().map(daemon_text).collect::<String>());
        assert_golden(path("daemon.ndjson"), &lines().iter().map(daemon_line).collect::<String>());
    }

    #[test]
    fn a_dry_run_is_marked() {
        for line in lines() {
            assert!(!daemon_text(&line).contains("dry run"));
            let dry = Line { memory: MemoryUse { dry_run: true, ..line.memory }, ..line };
            assert!(daemon_text(&dry).contains(": use 81.2%, dry run, "), "{dry:?}");
        }
    }

    #[test]
    fn lines_with_sentences_are_read_as_they_were_written() {
        for line in lines() {
            assert_eq!(serde_json::from_str::<Line>(&daemon_line(&line)).unwrap(), line);
        }
    }
}
