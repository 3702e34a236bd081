use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use hugepilot_kernel::{KernelError, Target};
use hugepilot_record::{Headroom, Mapping, MappingKind, Pressure, ProcessMemory, Window};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};

use super::*;

/// Pipe whose text can be read.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
        pages: BTreeMap::new(),
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
    let pipe = Pipe::default();
    let shared = pipe.clone();
    let guard = TrialGuard::new(move || Ok(Box::new(shared.clone())));
    guard.ended(&seen(1).id);
    assert!(pipe.0.lock().unwrap().is_empty(), "no trial, no message");
    guard.begins(&seen(1), &[promotion(3), promotion(4)]);
    guard.begins(&seen(2), &[promotion(5)]);
    let both = pipe.0.lock().unwrap().clone();
    assert_eq!(left(&both), [(Pid(1), 2), (Pid(2), 1)]);
    guard.ended(&seen(1).id);
    guard.ended(&seen(1).id);
    let text = pipe.0.lock().unwrap().clone();
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
fn a_guard_that_cannot_start_is_not_tried_again() {
    let tries = Arc::new(Mutex::new(0));
    let count = Arc::clone(&tries);
    let guard = TrialGuard::new(move || {
        *count.lock().unwrap() += 1;
        Err(io::ErrorKind::NotFound.into())
    });
    guard.begins(&seen(1), &[promotion(3)]);
    guard.ended(&seen(1).id);
    guard.begins(&seen(1), &[promotion(3)]);
    assert_eq!(*tries.lock().unwrap(), 1);
}
