//! Text and JSON lines of `hugepilot daemon`.

use std::collections::BTreeMap;

use hugepilot_render::sentence::{Sentence, explain};
use hugepilot_render::table::{counted, process_count};

use crate::daemon::{DaemonLine, Event, Freed, ProcessFreed, Promoted, Totals, WorkCause};
use crate::explain::text::regions;
use crate::tune::text::sentence::trial;

/// Prints `line` as one line of JSON.
///
/// # Panics
/// Never: records hold only numbers, texts, lists and maps with text keys.
pub fn daemon_line(line: &DaemonLine) -> String {
    let mut json = serde_json::to_value(line).expect("records are plain data");
    match &line.event {
        Event::Freed(freed) | Event::WouldFree(freed) => {
            if let Some(risk) = &freed.recollapse_risk {
                explain(&mut json, "/recollapse_risk", risk);
            }
        }
        Event::Exhausted { cause, .. } => explain(&mut json, "/cause", cause),
        Event::Recollapsed { cause, .. } => explain(&mut json, "/cause", cause),
        Event::Skipped { cause, .. } => explain(&mut json, "/cause", cause),
        Event::Waiting { cause } => explain(&mut json, "/cause", cause),
        Event::Reloaded { error: Some(error) } => explain(&mut json, "/error", error),
        Event::Promoted(promoted) | Event::WouldPromote(promoted) => {
            if let Some(cause) = &promoted.no_trial {
                explain(&mut json, "/no_trial", cause);
            }
            if let Some(blocked) = &promoted.blocked_by {
                explain(&mut json, "/blocked_by", blocked);
            }
        }
        _ => {}
    }
    format!("{json}\n")
}

/// Prints `line` for people: `<event>: <values>`, and a `help:` line for each suggestion.
pub fn daemon_text(line: &DaemonLine) -> String {
    let use_percent = 100.0 * line.memory.use_ratio;
    let dry_run = if line.memory.dry_run { ", dry run" } else { "" };
    let (name, values) = name_and_values(line);
    let help: String = help(&line.event).iter().map(|help| format!("help: {help}\n")).collect();
    let of = line.cgroup.as_ref().map_or_else(String::new, |cgroup| format!(" of {cgroup}"));
    format!("{name}: use {use_percent:.1}%{of}{dry_run}, {values}\n{help}")
}

fn name_and_values(line: &DaemonLine) -> (&'static str, String) {
    let (high, low) = (line.memory.high_ratio, line.memory.low_ratio);
    let dry_run = line.memory.dry_run;
    match &line.event {
        Event::Started { scope, order, promotion_rules, .. } => {
            let rules = match promotion_rules {
                0 => ", no rule allows promotion".to_owned(),
                rules => format!(", {rules} rules allow promotion"),
            };
            ("started", format!("scope {scope}, high {high}, low {low}, order {order}{rules}"))
        }
        Event::Promoted(promoted) => ("promoted", promoted_values(promoted)),
        Event::WouldPromote(promoted) => ("would promote", promoted_values(promoted)),
        Event::Waiting { cause } => ("waiting", cause.text()),
        Event::Working { cause: WorkCause::High } => ("working", format!("high {high}")),
        Event::Working { cause: WorkCause::Pressure } => {
            let psi = 100.0 * line.memory.psi_some_ratio.unwrap_or_default();
            ("working", format!("memory pressure {psi:.1}%, low {low}"))
        }
        planned @ Event::Planned { .. } => ("planned", planned_values(planned)),
        Event::Freed(freed) => ("freed", freed_values(freed)),
        Event::WouldFree(freed) => ("would free", freed_values(freed)),
        Event::Idle(totals) => ("idle", format!("low {low}, {}", sums(totals, dry_run))),
        Event::Exhausted { cause, retry_seconds } => {
            ("exhausted", format!("{}, next attempt in {retry_seconds:.0} s", cause.text()))
        }
        Event::Recollapsed { pid, command, regions, excluded, cause } => {
            let excluded = match excluded {
                0 => String::new(),
                excluded => format!(", {excluded} excluded from now on"),
            };
            let cause = cause.text();
            let regions = counted(*regions, "split region", "split regions") + &excluded;
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
        Event::Stopped(totals) => ("stopped", sums(totals, dry_run)),
    }
}

fn help(event: &Event) -> Vec<String> {
    match event {
        Event::Freed(Freed { recollapse_risk: Some(risk), .. })
        | Event::WouldFree(Freed { recollapse_risk: Some(risk), .. }) => risk.help(),
        Event::Recollapsed { cause, .. } => cause.help(),
        Event::Skipped { cause, .. } => cause.help(),
        Event::Exhausted { cause, .. } => cause.help(),
        Event::Waiting { cause } => cause.help(),
        Event::Promoted(promoted) | Event::WouldPromote(promoted) => {
            promoted.blocked_by.map(|blocked| blocked.help()).unwrap_or_default()
        }
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
    let part = |count: u64, what: String| match count {
        0 => String::new(),
        _ => format!(", {what}"),
    };
    format!(
        "{} of {}, {reclaimable_bytes} reclaimable, {requested_bytes} requested{}{}, \
         {seconds:.1} s",
        counted(*candidates, "candidate", "candidates"),
        process_count(*processes),
        part(*not_sampled, process_count(*not_sampled) + " not sampled"),
        part(*unread_huge_pages, huge_pages(*unread_huge_pages) + " unread")
    )
}

fn freed_values(freed: &Freed) -> String {
    let over_budget =
        if freed.over_budget { ", CPU budget exceeded (use is critical)" } else { "" };
    let risk = freed.recollapse_risk.map_or_else(String::new, |risk| format!("; {}", risk.text()));
    format!(
        "{} by {}{}{}{over_budget}{risk}",
        freed.freed_bytes,
        counted(freed.huge_pages_split, "split", "splits"),
        of(&freed.processes),
        counts(", failed ", &freed.failed)
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
    let blocked =
        promoted.blocked_by.map_or_else(String::new, |blocked| format!("; {}", blocked.text()));
    format!(
        "process {pid} ({command}) by rule {rule}: {} ({promoted_bytes}){demoted}{} in \
         {seconds:.1} s{trial}{blocked}{stopped}",
        huge_pages(*huge_pages_promoted),
        counts(", failed ", &promoted.failed)
    )
}

fn huge_pages(count: u64) -> String {
    counted(count, "huge page", "huge pages")
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

fn sums(totals: &Totals, dry_run: bool) -> String {
    let [freed, promoted] =
        if dry_run { ["would free", "would promote"] } else { ["freed", "promoted"] };
    let Totals { freed_bytes, huge_pages_split, recollapses, seconds, cpu_seconds, .. } = totals;
    let promoted = match totals.huge_pages_promoted {
        0 => String::new(),
        count => {
            let collapses = counted(count, "collapse", "collapses");
            format!(", {promoted} {} by {collapses}", totals.promoted_bytes)
        }
    };
    let recollapses = match recollapses {
        0 => String::new(),
        count => format!(", {} re-collapsed", regions(*count)),
    };
    format!(
        "{freed} {freed_bytes} by {}{recollapses}{promoted}, {seconds:.1} s, CPU time \
         {cpu_seconds:.2} s",
        counted(*huge_pages_split, "split", "splits")
    )
}

#[cfg(test)]
mod tests;
