//! A ring that the kernel wrote, decoded to known records.
//!
//! `testdata/perf/cpu-clock.ring` is one of a shell that ran until its ring of 8 KiB was full and
//! lost samples, and then ran `true` after half of the ring was read. To record it again, set
//! `HUGEPILOT_STORE_RING` to its path, run the test that records, and bless the listing.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hugepilot_testkit::{assert_golden, need, requires};
use hugepilot_units::Nanos;

use super::{Event, Record, parse_record, records};
use crate::sys::perf::stored::StoredRing;
use crate::sys::perf::{EventFd, Ring};

/// Bytes of the data area.
const RING: usize = 8 << 10;
const EVENT: Event = Event::cpu_clock(Nanos::new(100_000));

/// The records between tail and head, a line each.
fn listing(stored: &StoredRing) -> String {
    let mut bytes = Vec::new();
    stored.map().take(&mut bytes);
    let mut text = String::new();
    for record in records(&bytes) {
        let line = match parse_record(record, EVENT.format).expect("a whole record") {
            Record::Sample { ip, pid, tid, time, registers, .. } => {
                let registers = registers.expect("a 64-bit program").0;
                let registers: Vec<_> = registers.iter().map(|one| format!("{one:x}")).collect();
                let (ip, time) = (ip.get(), time.get());
                format!("sample {pid} {} {time} {ip:x}: {}", tid.0, registers.join(" "))
            }
            Record::Lost(count) => format!("lost {count}"),
            Record::Exec(pid) => format!("exec {pid}"),
            Record::Mapped(pid) => format!("mapped {pid}"),
            other => format!("{other:?}"),
        };
        let _ = writeln!(text, "{line}");
    }
    assert_eq!(records(&bytes).map(<[u8]>::len).sum::<usize>(), bytes.len(), "a record is cut");
    text
}

/// Whether the unread part goes on at the begin of the data area.
fn wraps(stored: &StoredRing) -> bool {
    stored.tail / (RING as u64) < stored.head / (RING as u64)
}

/// A shell that works after each line of its input, and then runs `true`.
fn shell() -> Child {
    let work = "read x; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; read x; exec true";
    let mut shell = Command::new("sh");
    shell.args(["-c", work]).stdin(Stdio::piped()).spawn().expect("a shell")
}

/// Returns the full ring, once the shell waits for a line.
fn full(ring: &Ring, shell: &Child) -> StoredRing {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let stored = ring.store();
        let at = std::fs::read_to_string(format!("/proc/{}/wchan", shell.id()));
        let waits = at.is_ok_and(|at| at.contains("pipe"));
        if waits && stored.head + 256 > RING as u64 {
            return stored;
        }
        assert!(Instant::now() < until, "the shell works on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_ring_that_wraps_after_losses_is_recorded() {
    requires!(need::root());
    let mut shell = shell();
    let attributes = EVENT.attributes(false, RING, 0);
    let tid = shell.id().cast_signed();
    let event = EventFd::open(&attributes, tid, -1, None).expect("root may");
    let ring = Ring::map(&event, RING, rustix::param::page_size()).expect("memory");
    event.enable().expect("an open event");
    let mut input = shell.stdin.take().expect("a pipe");
    input.write_all(b"\n").expect("the shell reads");
    let full = full(&ring, &shell);
    let tail = records(&full.data[..full.head as usize]).try_fold(0, |at: u64, record| {
        if at < RING as u64 / 2 { Ok(at + record.len() as u64) } else { Err(at) }
    });
    ring.set_tail(tail.unwrap_or_else(|at| at));
    input.write_all(b"\n").expect("the shell reads");
    assert!(shell.wait().expect("an unreaped child").success());
    event.disable().expect("an open event");
    let stored = ring.store();
    let listing = listing(&stored);
    eprintln!("{listing}");
    assert!(wraps(&stored));
    for kind in ["sample ", "lost ", "exec ", "mapped "] {
        assert!(listing.lines().any(|line| line.starts_with(kind)), "{kind}: {listing}");
    }
    if let Some(path) = std::env::var_os("HUGEPILOT_STORE_RING") {
        std::fs::write(path, stored.file()).expect("writable");
    }
}

#[test]
fn a_recorded_ring_has_these_records() {
    let stored = StoredRing::parse(include_bytes!("../../testdata/perf/cpu-clock.ring"));
    assert!(wraps(&stored) && stored.data.len() == RING);
    assert_golden("testdata/perf/cpu-clock.txt", &listing(&stored));
}
