//! Tests: every event as text and as JSON.

use hugepilot_record::{AccessError, Pid, RecollapseCause, RecollapseRisk, SkipReason, ThpScope};
use hugepilot_testkit::assert_golden;
use hugepilot_units::{Bytes, Share};

use super::*;
use crate::daemon::{
    BlockedStalls, ExclusionCause, ExhaustedCause, MemoryUse, ReloadError, SCHEMA, WaitingCause,
};
use crate::tune::{NoTrial, TrialReport, TrialVerdict};

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

const RISK: RecollapseRisk = RecollapseRisk { thp_enabled: ThpScope::Always, max_ptes_none: 511 };
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

fn promoted(trial: bool) -> Promoted {
    let trial = trial.then_some(TrialReport {
        verdict: TrialVerdict::Gain,
        ratio: Some(0.74),
        low_ratio: Some(0.57),
        high_ratio: Some(0.94),
        high_speedup: Some(1.34),
        pairs: Some(106),
        samples: Some(777),
        seconds: 1.6,
        confirmed: Some(true),
    });
    Promoted {
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
        blocked_by: None,
        stopped: None,
        seconds: 9.75,
    }
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

fn freed(over_budget: bool) -> Freed {
    let process = ProcessFreed {
        pid: PID,
        command: COMMAND.into(),
        freed_bytes: Bytes::gib(3),
        huge_pages_split: 2000,
    };
    Freed {
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
    let waiting = |cause| Event::Waiting { cause };
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
        waiting(WaitingCause::MemoryScarce),
        waiting(WaitingCause::NoProcess { min_resident_bytes: Bytes::mib(64) }),
        waiting(WaitingCause::NoneInTurn { idle: 3, resting: 2, new: 1 }),
        Event::Working { cause: WorkCause::High },
        Event::Working { cause: WorkCause::Pressure },
        skipped(ExclusionCause::Protected),
        skipped(ExclusionCause::Forks { seen: true }),
        skipped(ExclusionCause::OomProtected { oom_score_adj: -1000 }),
        skipped(ExclusionCause::Unreadable(AccessError {
            error: "cannot read /proc/4711/smaps: EACCES".into(),
            help: vec!["run as root".into()],
        })),
        recollapsed,
        Event::Promoted(promoted(true)),
        Event::WouldPromote(promoted(false)),
        planned(),
        Event::Freed(freed(false)),
        Event::Freed(freed(true)),
        Event::WouldFree(freed(true)),
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

fn lines() -> Vec<DaemonLine> {
    let line = |event| {
        let (schema, unix_seconds) = (SCHEMA.into(), 1.25);
        DaemonLine { schema, unix_seconds, cgroup: None, event, memory: memory() }
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
fn a_dry_run_says_what_it_would_do() {
    for line in lines() {
        assert!(!daemon_text(&line).contains("dry run"));
        let dry = DaemonLine { memory: MemoryUse { dry_run: true, ..line.memory }, ..line };
        let text = daemon_text(&dry);
        assert!(text.contains(": use 81.2%, dry run, "), "{text}");
        if !matches!(dry.event, Event::Freed(_) | Event::Promoted(_)) {
            assert!(!text.contains("freed") && !text.contains("promoted"), "{text}");
        }
    }
}

#[test]
fn lines_with_sentences_are_read_as_they_were_written() {
    for line in lines() {
        assert_eq!(serde_json::from_str::<DaemonLine>(&daemon_line(&line)).unwrap(), line);
    }
}

#[test]
fn a_process_of_a_rule_that_gets_nothing_has_the_cause_and_help() {
    let blocked = Promoted {
        huge_pages_promoted: 0,
        blocked_by: Some(BlockedStalls { code: SkipReason::SharedAfterFork, stall_ratio: 0.4 }),
        ..promoted(false)
    };
    let line = DaemonLine { event: Event::Promoted(blocked), ..lines().remove(0) };
    let text = daemon_text(&line);
    assert!(text.contains("; most stalls are in regions that another process maps"), "{text}");
    assert!(text.contains("\nhelp: "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&daemon_line(&line)).unwrap();
    assert_eq!(json["blocked_by"]["code"], "shared_after_fork");
    assert!(json["blocked_by"]["help"][0].is_string(), "{json}");
}
