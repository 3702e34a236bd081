//! Perf events: which processes inherit them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hugepilot_kernel::perf::{Event, PerfSampler, Record, SamplerOptions};
use hugepilot_kernel::{Process, Root};
use hugepilot_record::Pid;
use hugepilot_testkit::{need, requires};
use hugepilot_units::Nanos;

/// Returns the samples of a shell, and those of the processes that it starts.
fn samples(with_children: bool) -> (usize, usize) {
    // Busy for half a second, then its child for one.
    let script = "trap end=1 USR1; read line; (sleep 0.5; kill -USR1 $$) & \
                  while [ -z \"$end\" ]; do :; done; timeout 1 yes";
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid(i32::try_from(shell.id()).unwrap());
    let process = Process::open(&Root::live(), pid).unwrap();
    let usual = SamplerOptions::new(Event::cpu_clock(Nanos::new(1_000_001)));
    let mut perf =
        PerfSampler::attach(&process, SamplerOptions { with_children, ..usual }).unwrap();
    perf.enable().unwrap();
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let (mut own, mut others) = (0, 0);
    let begun = Instant::now();
    while shell.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(20) {
        perf.drain(Nanos::millis(50), |record| match record {
            Record::Sample { pid: sampled, .. } if sampled == pid => own += 1,
            Record::Sample { .. } => others += 1,
            _ => {}
        });
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
    (own, others)
}

#[test]
fn child_processes_inherit_only_the_events_that_are_for_them() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let (own, children) = samples(true);
    assert!(own > 20 && children > 20, "{own} and {children}");
    let (own, children) = samples(false);
    assert!(own > 20 && children == 0, "{own} and {children}");
}
