//! Memory contents never change while programs zero, write, check and collapse their pages.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::time::{Duration, Instant};

use hugepilot_testkit::{Victim, requires};
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use super::{debloat, possible, report};
use crate::workload::SOON;

/// Minimum time to debloat a program, and maximum time until `enough` was tried.
/// `HUGEPILOT_SOAK_SECONDS` sets both.
fn soak() -> [Duration; 2] {
    let asked = env::var("HUGEPILOT_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    [asked.unwrap_or(1), asked.unwrap_or(180)].map(Duration::from_secs)
}

/// Outcomes of all rounds.
#[derive(Debug, Default)]
struct Tally {
    rounds: u64,
    split: u64,
    freed: Bytes,
    skipped: BTreeMap<String, u64>,
    failed: BTreeMap<String, u64>,
}

/// Returns the victim's memory, or the line that states what it lacks.
fn ready(victim: &Victim) -> Result<AddrRange, String> {
    let line = victim.line(SOON).unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let ["ready", start, len, ..] = words[..] else { return Err(line) };
    let start =
        u64::from_str_radix(start.trim_start_matches("0x"), 16).map_err(|_| line.clone())?;
    Ok(AddrRange::at(VirtAddr::new(start), Bytes::new(len.parse().map_err(|_| line.clone())?)))
}

/// Debloats `victim` repeatedly until `enough` was tried; then it verifies all its bytes. Returns
/// its words after `ok`.
#[track_caller]
fn tried(mut victim: Victim, enough: fn(&Tally) -> bool) -> (Tally, Vec<u64>) {
    let mut tally = Tally::default();
    let (begun, [least, most]) = (Instant::now(), soak());
    while begun.elapsed() < least || (!enough(&tally) && begun.elapsed() < most) {
        let done = debloat(&[victim.pid()], "--min-bloat 0%");
        done.sane();
        let ended = || format!("{:?} {done:?}", victim.line_now());
        assert!(matches!(done.status.code(), Some(0 | 1)), "{}", ended());
        let report = report(&done);
        tally.rounds += 1;
        tally.split += report.huge_pages_split;
        tally.freed += report.freed_bytes;
        for (reason, n) in report.skipped {
            *tally.skipped.entry(reason).or_insert(0) += n;
        }
        for (reason, n) in report.failed {
            *tally.failed.entry(reason).or_insert(0) += n;
        }
    }
    let status = victim.finish(SOON);
    assert!(status.success(), "{status}: {:?}; {tally:?}", victim.line_now());
    let said = victim.says("ok", SOON).iter().map(|word| word.parse().expect("a count")).collect();
    eprintln!("{tally:?}; all pages checked, rounds: {said:?}");
    (tally, said)
}

/// Splits really happened, and while they did the victim had time for its checks.
fn split(tally: &Tally) -> bool {
    tally.split > 50 && tally.freed > Bytes::mib(30) && tally.rounds > 20
}

/// And so did checks.
#[track_caller]
fn happened(tally: &Tally, said: &[u64]) {
    assert!(split(tally), "{tally:?}: nothing was tried");
    assert!(said.iter().all(|&rounds| rounds > 5), "{said:?}: nothing was checked");
}

fn churn(mode: &str) -> (Victim, Result<AddrRange, String>) {
    let victim = Victim::c("churn.c", &[mode, "64"]);
    let memory = ready(&victim);
    (victim, memory)
}

#[test]
fn no_byte_of_busy_threads_changes() {
    requires!(possible());
    let (victim, memory) = churn("threads");
    memory.expect("it is ready");
    let (tally, said) = tried(victim, split);
    happened(&tally, &said);
}

#[test]
fn no_byte_changes_while_protection_does() {
    requires!(possible());
    let (victim, memory) = churn("mprotect");
    memory.expect("it is ready");
    let (tally, said) = tried(victim, split);
    happened(&tally, &said);
}

#[test]
fn no_byte_of_parents_and_children_changes() {
    requires!(possible());
    let (victim, memory) = churn("fork");
    memory.expect("it is ready");
    let (tally, said) = tried(victim, split);
    happened(&tally, &said);
}

#[test]
fn locked_memory_is_left_alone() {
    requires!(possible());
    let (victim, memory) = churn("mlock");
    requires!(memory);
    let (tally, _) = tried(victim, |_| true);
    assert_eq!((tally.split, tally.freed), (0, Bytes::ZERO), "{tally:?}");
    assert_eq!(tally.skipped.get("mlocked"), Some(&(32 * tally.rounds)), "{tally:?}");
    assert!(tally.failed.is_empty(), "{tally:?}");
}

#[test]
fn memory_under_userfaultfd_is_left_alone() {
    requires!(possible());
    let (victim, memory) = churn("userfaultfd");
    requires!(memory);
    let (tally, _) = tried(victim, |_| true);
    assert_eq!((tally.split, tally.freed), (0, Bytes::ZERO), "{tally:?}");
    // Those with a page thrown away just now are not huge.
    assert!(tally.skipped.get("userfaultfd") > Some(&(8 * tally.rounds)), "{tally:?}");
    assert!(tally.failed.is_empty(), "{tally:?}");
}

/// A victim with reads in flight, in the first folder whose file system lets it.
fn inflight(mode: &str) -> Result<Victim, String> {
    let mut why = String::new();
    for folder in [env!("CARGO_TARGET_TMPDIR"), "/var/tmp", "/tmp"] {
        let Ok(folder) = tempfile::tempdir_in(Path::new(folder)) else { continue };
        let file = folder.path().join("blocks");
        let victim = Victim::c("inflight.c", &[mode, &file.to_string_lossy(), "64"]);
        match ready(&victim) {
            // Its file has no name any more, so the folder may go.
            Ok(_) => return Ok(victim),
            Err(line) => why = line,
        }
    }
    Err(why)
}

#[test]
fn no_byte_that_a_disk_is_writing_changes() {
    requires!(possible());
    let victim = inflight("direct");
    requires!(victim.as_ref().map(|_| ()));
    let (tally, said) = tried(victim.expect("checked above"), split);
    happened(&tally, &said);
}

#[test]
fn no_byte_in_buffers_of_io_uring_changes() {
    requires!(possible());
    let victim = inflight("uring");
    requires!(victim.as_ref().map(|_| ()));
    let (tally, said) = tried(victim.expect("checked above"), split);
    happened(&tally, &said);
    // Registered buffers are pinned: the call succeeds and splits nothing.
    assert!(tally.failed.get("still_huge") > Some(&tally.rounds), "{tally:?}");
}
