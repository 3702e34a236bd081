//! Counters of a process over time: instructions, cycles, page walks and their cycles.
//!
//! Every thread gets its own events, which threads it starts later inherit. Only user mode is
//! counted. If the hardware has fewer counters than events, the kernel multiplexes them: then
//! counts are scaled up, and [`CounterReading::running_ns`] is the time that was counted.

use std::os::fd::AsFd;

use hugepilot_record::doctor::Cpu;
use hugepilot_record::{Errno, Tid};
use perf_event_open_sys::bindings as sys;

use super::sampler::descriptors_allowed;
use crate::cpu::{self, AMD, ARM, INTEL};
use crate::rights::Rights;
use crate::sys::perf::EventFd;
use crate::sys::reach::{self, Call};
use crate::{KernelError, Process, Unsupported, unsupported};

/// Counts since the counters were opened, in user mode, over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// Instructions retired.
    pub instructions: Option<u64>,
    /// Core cycles.
    pub cycles: Option<u64>,
    /// Page walks for data, by loads and by stores.
    pub walks: Option<u64>,
    /// Cycles with such a walk. Simultaneous walks of a load and a store count twice; up to
    /// Broadwell each walk counts by itself. AMD and ARM do not count these.
    pub walk_cycles: Option<u64>,
    /// Loads that accessed the data TLB, as the kernel defines that on this processor; with
    /// [`Counters::of_tlb`].
    pub tlb_loads: Option<u64>,
    /// Loads that missed the data TLB.
    pub tlb_load_misses: Option<u64>,
    /// Time of all threads together in which the event with the lowest coverage was enabled.
    pub enabled_ns: u64,
    /// Part of that time in which it counted; counts are scaled up if it is less.
    pub running_ns: u64,
}

/// Quantity that an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Instructions,
    Cycles,
    Walks,
    WalkCycles,
    TlbLoads,
    TlbLoadMisses,
}

/// Event to count with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Countable {
    quantity: Quantity,
    /// `perf_event_attr.type`.
    kind: u32,
    config: u64,
}

/// Returns the events to count on `cpu`: instructions and cycles anywhere, page walks by the codes
/// of its vendor.
fn countables(cpu: &Cpu) -> Vec<Countable> {
    let raw = |quantity, config| Countable { quantity, kind: sys::PERF_TYPE_RAW, config };
    let general = |quantity, config: u32| Countable {
        quantity,
        kind: sys::PERF_TYPE_HARDWARE,
        config: u64::from(config),
    };
    let mut events = vec![
        general(Quantity::Instructions, sys::PERF_COUNT_HW_INSTRUCTIONS),
        general(Quantity::Cycles, sys::PERF_COUNT_HW_CPU_CYCLES),
    ];
    let walks = |codes: [u64; 2]| codes.map(|code| raw(Quantity::Walks, code));
    let walk_cycles = |codes: [u64; 2]| codes.map(|code| raw(Quantity::WalkCycles, code));
    // For Intel: completed walks, then cycles with a walk, each of loads and of stores. 0x0100_0000
    // is a threshold of one (cmask=1): cycles with any walk, instead of walks in flight summed over
    // cycles.
    const ANY: u64 = 1 << 24;
    let intel = |completed, cycles| [walks(completed), walk_cycles(cycles)].concat();
    match (cpu.vendor.as_str(), cpu.family, cpu.model) {
        (INTEL, 6, 58 | 62) => events.extend(intel([0x8208, 0x0249], [0x8408, 0x0449])),
        (INTEL, 6, 60 | 61 | 63 | 69..=71 | 79 | 86) => {
            events.extend(intel([0x0e08, 0x0e49], [0x1008, 0x1049]));
        }
        (INTEL, 6, 78 | 85 | 94 | 106 | 108 | 142 | 158) => {
            events.extend(intel([0x0e08, 0x0e49], [ANY | 0x1008, ANY | 0x1049]));
        }
        (INTEL, 6, 143 | 173 | 174 | 207) => {
            events.extend(intel([0x0e12, 0x0e13], [ANY | 0x1012, ANY | 0x1013]));
        }
        (AMD, 23..=26, _) => events.push(raw(Quantity::Walks, 0xf045)),
        (ARM, ..) => events.push(raw(Quantity::Walks, 0x34)),
        // The kernel's generic misses of the data TLB: loads, then stores.
        _ => events.extend([0x1_0003, 0x1_0103].map(|config| Countable {
            quantity: Quantity::Walks,
            kind: sys::PERF_TYPE_HW_CACHE,
            config,
        })),
    }
    events
}

/// Returns the events of `perf stat -e dTLB-loads,dTLB-load-misses`, and page walks.
fn of_tlb(cpu: &Cpu) -> Vec<Countable> {
    let load = |quantity, config| Countable { quantity, kind: sys::PERF_TYPE_HW_CACHE, config };
    // The cache in the low byte, then the operation, then the result: data TLB, loads, all and
    // misses.
    let mut events = vec![load(Quantity::TlbLoads, 0x3), load(Quantity::TlbLoadMisses, 0x1_0003)];
    events.extend(countables(cpu).into_iter().filter(|event| event.quantity == Quantity::Walks));
    events
}

/// Open counters of a process. They stop on drop.
#[derive(Debug)]
pub struct Counters {
    /// Events with their descriptors, one for each thread.
    events: Vec<(Countable, Vec<EventFd>)>,
}

impl Counters {
    /// Starts counting in all current threads of `process`, and in those that they start later. A
    /// thread that starts while the threads are listed may be missed.
    ///
    /// # Errors
    /// [`Unsupported`] if the hardware or the kernel does not count here.
    pub fn open(process: &Process) -> Result<Self, Unsupported> {
        Self::of(process, countables)
    }

    /// Starts counting loads and misses of the data TLB, and page walks.
    ///
    /// # Errors
    /// As [`Counters::open`].
    pub fn of_tlb(process: &Process) -> Result<Self, Unsupported> {
        Self::of(process, of_tlb)
    }

    fn of(process: &Process, countables: fn(&Cpu) -> Vec<Countable>) -> Result<Self, Unsupported> {
        let other = |error: KernelError| Unsupported::because(&error);
        let cpu = cpu::read(process.root()).map_err(other)?;
        let threads = process.threads().map_err(other)?;
        let countables = countables(&cpu);
        let needed = threads.len() * countables.len();
        if needed > descriptors_allowed() {
            let limit = needed + 1024;
            return Err(Unsupported::ThreadsNeedFiles { threads: threads.len(), limit });
        }
        let mut failure = None;
        let mut events = Vec::new();
        for countable in countables {
            match open_in_all(countable, &threads) {
                Ok(descriptors) if descriptors.is_empty() => {
                    return Err(Unsupported::ProcessGone);
                }
                Ok(descriptors) => events.push((countable, descriptors)),
                Err(errno) => failure = failure.or(Some(errno)),
            }
        }
        match failure {
            Some(errno) if events.is_empty() => {
                let rights = Rights::read(process.root());
                Err(unsupported::of_event(errno, reach::answer(Call::PerfEventOpen), &rights))
            }
            _ => Ok(Self { events }),
        }
    }

    /// Reads the counts up to now, in about a microsecond for each event of each thread.
    ///
    /// # Errors
    /// Those of `read`, never in practice.
    pub fn read(&self) -> Result<CounterReading, Errno> {
        let mut counts = Vec::new();
        for (countable, descriptors) in &self.events {
            let mut whole = Count::default();
            for event in descriptors {
                let mut bytes = [0_u8; 24];
                let length = rustix::io::read(event.as_fd(), &mut bytes)
                    .map_err(|errno| Errno(errno.raw_os_error()))?;
                if length == bytes.len() {
                    whole.add(Count::from_bytes(&bytes));
                }
            }
            counts.push((countable.quantity, whole));
        }
        Ok(sum(&counts))
    }
}

/// Opens an event in each of `threads` that lives.
fn open_in_all(countable: Countable, threads: &[Tid]) -> Result<Vec<EventFd>, Errno> {
    let attributes = attributes(countable);
    let mut descriptors = Vec::with_capacity(threads.len());
    for tid in threads {
        match EventFd::open(&attributes, tid.0, -1, None) {
            Ok(event) => descriptors.push(event),
            Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(descriptors)
}

fn attributes(countable: Countable) -> sys::perf_event_attr {
    let mut attr = sys::perf_event_attr::default();
    attr.size = u32::try_from(size_of::<sys::perf_event_attr>()).unwrap_or(0);
    attr.type_ = countable.kind;
    attr.config = countable.config;
    attr.read_format =
        (sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;
    attr.set_inherit(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

/// Count of one event, or of an event over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    value: u64,
    enabled_ns: u64,
    running_ns: u64,
}

impl Count {
    /// Parses the format that `read_format` requests.
    fn from_bytes(bytes: &[u8; 24]) -> Self {
        let word =
            |i: usize| u64::from_ne_bytes(bytes[i * 8..i * 8 + 8].try_into().unwrap_or_default());
        Self { value: word(0), enabled_ns: word(1), running_ns: word(2) }
    }
    /// Adds the count of another thread.
    fn add(&mut self, other: Self) {
        self.value = self.value.saturating_add(other.value);
        self.enabled_ns = self.enabled_ns.saturating_add(other.enabled_ns);
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
    }
    /// Returns the count scaled to all of the time; `None` if the event was enabled but never got a
    /// counter.
    fn scaled(self) -> Option<u64> {
        if self.enabled_ns == self.running_ns {
            return Some(self.value);
        }
        let all = u128::from(self.value) * u128::from(self.enabled_ns);
        all.checked_div(u128::from(self.running_ns))
            .map(|all| u64::try_from(all).unwrap_or(u64::MAX))
    }
    /// Returns the share of the time that was counted.
    #[allow(clippy::cast_precision_loss)]
    fn coverage(self) -> f64 {
        if self.enabled_ns == 0 { 1.0 } else { self.running_ns as f64 / self.enabled_ns as f64 }
    }
}

/// Sums events by quantity. A quantity counted by two events needs both.
fn sum(counts: &[(Quantity, Count)]) -> CounterReading {
    let of = |wanted| {
        let fitting: Vec<Count> = counts
            .iter()
            .filter(|(quantity, _)| *quantity == wanted)
            .map(|&(_, count)| count)
            .collect();
        let scaled: Option<Vec<u64>> = fitting.iter().map(|count| count.scaled()).collect();
        scaled.filter(|values| !values.is_empty())?.into_iter().reduce(u64::saturating_add)
    };
    let least =
        counts.iter().map(|&(_, count)| count).min_by(|a, b| a.coverage().total_cmp(&b.coverage()));
    let least = least.unwrap_or_default();
    CounterReading {
        instructions: of(Quantity::Instructions),
        cycles: of(Quantity::Cycles),
        walks: of(Quantity::Walks),
        walk_cycles: of(Quantity::WalkCycles),
        tlb_loads: of(Quantity::TlbLoads),
        tlb_load_misses: of(Quantity::TlbLoadMisses),
        enabled_ns: least.enabled_ns,
        running_ns: least.running_ns,
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::*;
    use crate::Root;

    fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
        Cpu { vendor: vendor.into(), model_name: String::new(), family, model, hypervisor: false }
    }
    fn codes(cpu: &Cpu, quantity: Quantity) -> Vec<u64> {
        let fitting = countables(cpu).into_iter().filter(|event| event.quantity == quantity);
        fitting.map(|event| event.config).collect()
    }

    #[test]
    fn each_vendor_has_its_own_codes_for_walks() {
        let table = [
            (cpu(INTEL, 6, 62), vec![0x8208, 0x0249], vec![0x8408, 0x0449]),
            (cpu(INTEL, 6, 79), vec![0x0e08, 0x0e49], vec![0x1008, 0x1049]),
            (cpu(INTEL, 6, 85), vec![0x0e08, 0x0e49], vec![0x100_1008, 0x100_1049]),
            (cpu(INTEL, 6, 207), vec![0x0e12, 0x0e13], vec![0x100_1012, 0x100_1013]),
            (cpu(AMD, 25, 17), vec![0xf045], vec![]),
            (cpu(ARM, 8, 0xd0c), vec![0x34], vec![]),
            (cpu("Other", 1, 1), vec![0x1_0003, 0x1_0103], vec![]),
        ];
        for (cpu, walks, cycles) in table {
            assert_eq!(codes(&cpu, Quantity::Walks), walks, "{cpu:?}");
            assert_eq!(codes(&cpu, Quantity::WalkCycles), cycles, "{cpu:?}");
            assert_eq!(codes(&cpu, Quantity::Instructions).len(), 1);
        }
    }

    #[test]
    fn the_tlb_is_counted_by_generic_events() {
        let events = of_tlb(&cpu(INTEL, 6, 207));
        let codes: Vec<_> = events.iter().map(|event| (event.quantity, event.config)).collect();
        let wanted = [
            (Quantity::TlbLoads, 0x3),
            (Quantity::TlbLoadMisses, 0x1_0003),
            (Quantity::Walks, 0x0e12),
            (Quantity::Walks, 0x0e13),
        ];
        assert_eq!(codes, wanted);
    }

    #[test]
    fn multiplexed_counts_are_scaled_and_marked() {
        let full = Count { value: 1000, enabled_ns: 50, running_ns: 50 };
        let half = Count { value: 30, enabled_ns: 50, running_ns: 25 };
        let never = Count { value: 0, enabled_ns: 50, running_ns: 0 };
        let counts = [(Quantity::Cycles, full), (Quantity::Walks, half), (Quantity::Walks, full)];
        let reading = sum(&counts);
        assert_eq!((reading.cycles, reading.walks), (Some(1000), Some(1060)));
        assert_eq!((reading.instructions, reading.walk_cycles), (None, None));
        assert_eq!((reading.enabled_ns, reading.running_ns), (50, 25));
        let reading = sum(&[(Quantity::Walks, half), (Quantity::Walks, never)]);
        assert_eq!(
            (reading.walks, reading.running_ns),
            (None, 0),
            "one of two events has no count"
        );
        assert_eq!(sum(&[]), CounterReading::default());
    }

    #[test]
    fn descriptors_are_read_as_three_words() {
        let mut bytes = [0; 24];
        for (i, word) in [7_u64, 8, 9].into_iter().enumerate() {
            bytes[i * 8..i * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        }
        let mut count = Count::from_bytes(&bytes);
        assert_eq!(count, Count { value: 7, enabled_ns: 8, running_ns: 9 });
        count.add(count);
        assert_eq!(count, Count { value: 14, enabled_ns: 16, running_ns: 18 });
    }

    #[test]
    fn this_process_is_counted_or_the_reason_returned() {
        let pid = Pid(i32::try_from(std::process::id()).unwrap());
        let process = Process::open(&Root::live(), pid).unwrap();
        match Counters::open(&process) {
            Ok(counters) => {
                let first = counters.read().unwrap();
                let second = counters.read().unwrap();
                assert!(second.enabled_ns >= first.enabled_ns);
                assert!(second.instructions >= first.instructions);
            }
            Err(reason) => {
                eprintln!("skipped: no counters here: {reason}");
                assert!(!reason.to_string().is_empty());
            }
        }
    }
}
