use std::rc::Rc;
use std::sync::Arc;

use hugepilot_kernel::{KernelError, Target};
use hugepilot_record::{
    Headroom, Mapping, MappingKind, Pressure, ProcessMemory, RegionPages, Window,
};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};

use super::*;

/// Lines on the pipe, and in the journal.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<[Vec<u8>; 2]>>);

impl Lines {
    fn guard(&self) -> TrialGuard {
        let Self(lines) = self.clone();
        TrialGuard::new(move |line, is_any_open| {
            let [pipe, journal] = &mut *lines.lock().unwrap();
            pipe.extend_from_slice(line);
            if is_any_open { journal.extend_from_slice(line) } else { journal.clear() }
        })
    }
    fn pipe(&self) -> Vec<u8> {
        self.0.lock().unwrap()[0].clone()
    }
    fn journal(&self) -> Vec<u8> {
        self.0.lock().unwrap()[1].clone()
    }
}

const fn pages(number: u64, huge: bool) -> RegionPages {
    let mut pages = RegionPages::on_base_pages(Region::new(number), 512);
    pages.huge = huge;
    pages
}

fn seen(pid: i32) -> ProcessSnapshot {
    let range = AddrRange::at(VirtAddr::new(0), Bytes::gib(1));
    let mut stack = Mapping::anonymous(range);
    stack.kind = MappingKind::Stack;
    let memory = ProcessMemory {
        time: Nanos::ZERO,
        sizes: PageSizes::X86_64,
        mappings: vec![stack],
        heat: Vec::new(),
        stacks: BTreeSet::new(),
        pages: [3, 4, 5].map(|number| (Region::new(number), pages(number, false))).into(),
        thp_disabled: false,
        untouched: Bytes::ZERO,
        headroom: Headroom::UNLIMITED,
        pressure: Pressure::default(),
    };
    let id = ProcessId { pid: Pid(pid), start_ticks: 7, command: "db".to_owned() };
    ProcessSnapshot { id, window: Window::default(), memory }
}

fn promotion(region: u64) -> Promotion {
    Promotion {
        region: Region::new(region),
        heat_ratio: 0.0,
        sampled_pages: 0,
        added: Bytes::ZERO,
        lazily_freed: Bytes::ZERO,
        mapping: String::new(),
    }
}

/// Processes that a guard would open, and the regions that it would return.
fn left(text: &[u8]) -> Vec<(Pid, u64)> {
    let gone =
        |pid: Pid| -> Result<Rc<dyn Target>, KernelError> { Err(KernelError::NoProcess { pid }) };
    let report = open_trials(text).undo(false, 0, &gone, &|| false);
    report.processes.iter().map(|one| (one.pid, one.promoted_regions)).collect()
}

#[test]
fn the_regions_of_open_trials_are_returned() {
    let lines = Lines::default();
    let guard = lines.guard();
    guard.ended(&seen(1).id);
    assert!(lines.pipe().is_empty(), "no trial, no message");
    guard.begins(&seen(1), &[promotion(3), promotion(4)]);
    guard.begins(&seen(2), &[promotion(5)]);
    let both = lines.pipe();
    assert_eq!(left(&both), [(Pid(1), 2), (Pid(2), 1)]);
    guard.ended(&seen(1).id);
    guard.ended(&seen(1).id);
    let text = lines.pipe();
    assert_eq!(left(&text), [(Pid(2), 1)]);
    assert_eq!(text.iter().filter(|&&byte| byte == b'\n').count(), 3);
    // Whatever was sent when the other one was killed, the complete messages count.
    for cut in 0..text.len() {
        left(&text[..cut]);
    }
    let first = both.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    assert_eq!(left(&both[..both.len() - 5]), left(&both[..first]));
}

#[test]
fn the_journal_has_the_open_trials_and_is_empty_without_one() {
    let lines = Lines::default();
    let open = || left(&lines.journal());
    let guard = lines.guard();
    guard.begins(&seen(1), &[promotion(3), promotion(4)]);
    guard.begins(&seen(2), &[promotion(5)]);
    assert_eq!(open(), [(Pid(1), 2), (Pid(2), 1)]);
    guard.ended(&seen(1).id);
    assert_eq!(open(), [(Pid(2), 1)]);
    guard.ended(&seen(2).id);
    assert!(lines.journal().is_empty());
}

#[test]
fn a_region_that_was_huge_before_a_trial_is_never_returned() {
    let mut process = seen(1);
    process.memory.pages.insert(Region::new(3), pages(3, true));
    let lines = Lines::default();
    let guard = lines.guard();
    guard.begins(&process, &[promotion(3), promotion(4)]);
    assert_eq!(left(&lines.journal()), [(Pid(1), 1)]);
}
