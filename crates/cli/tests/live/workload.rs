//! Workloads as targets.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use hugepilot_kernel::{Process, Root, memory};
use hugepilot_policy::Limits;
use hugepilot_record::{Pid, Promotion};
use hugepilot_testkit::Victim;
use hugepilot_units::{AddrRange, Bytes, PageSizes, Region, Share};

use crate::tool::HUGEPILOT;

/// Time limit for a victim to become ready.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Arguments of a workload with 64 hot regions of 256, enough work for a while.
pub(crate) const HOT_SET: &str = "hot-set --footprint 512MiB --hot 128MiB --pages default";

/// A workload that runs until it is dropped.
pub(crate) struct Workload {
    pub(crate) victim: Victim,
    /// First address of each announced hot region.
    pub(crate) hot: BTreeSet<u64>,
}

impl Workload {
    /// Starts `hugepilot lab workload` with the arguments in `line`.
    #[track_caller]
    pub(crate) fn start(line: &str) -> Self {
        Self::by(Command::new(HUGEPILOT), line)
    }

    /// Starts several, which fill their memory at the same time.
    #[track_caller]
    pub(crate) fn start_all<const N: usize>(lines: [&str; N]) -> [Self; N] {
        lines.map(|line| spawn(Command::new(HUGEPILOT), line)).map(Self::ready)
    }

    /// Starts it by `command`, which runs the program.
    #[track_caller]
    pub(crate) fn by(command: Command, line: &str) -> Self {
        Self::ready(spawn(command, line))
    }

    #[track_caller]
    fn ready(victim: Victim) -> Self {
        let mut hot = BTreeSet::new();
        loop {
            let line = victim.line(SOON).expect("a ready workload");
            match line.split_once(' ') {
                Some(("hot", range)) => hot.extend(regions_of(range)),
                Some(("ready", _)) => return Self { victim, hot },
                _ => panic!("unexpected line {line:?}"),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.victim.pid()
    }
}

#[track_caller]
fn spawn(mut command: Command, line: &str) -> Victim {
    command.args(["lab", "workload"]).args(line.split_whitespace());
    command.args(["--announce", "--seconds", "0"]);
    Victim::spawn(command)
}

/// Returns the first address of each region in a range printed as `start-end`.
fn regions_of(range: &str) -> Vec<u64> {
    let (start, end) = range.split_once('-').expect("start-end");
    let hex =
        |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address");
    (hex(start)..hex(end)).step_by(sizes().huge.as_usize()).collect()
}

pub(crate) fn sizes() -> PageSizes {
    memory::page_sizes(&Root::live()).expect("page sizes")
}

#[track_caller]
pub(crate) fn open(pid: u32) -> Process {
    Process::open(&Root::live(), Pid(pid.cast_signed())).expect("a live process")
}

/// Returns every whole region in `memory`, as a policy without rules selects them.
pub(crate) fn picks(memory: AddrRange) -> Vec<Promotion> {
    let pick = |region: Region| Promotion {
        region,
        heat_ratio: 0.0,
        sampled_pages: 0,
        added: Bytes::ZERO,
        lazily_freed: Bytes::ZERO,
        mapping: "[anon]".to_owned(),
    };
    sizes().regions_inside(memory).map(pick).collect()
}

/// Returns the weakest limits: sparse regions are promoted too.
pub(crate) fn eager() -> Limits {
    Limits { min_resident: Share::percent(0.0), ..Limits::default() }
}
