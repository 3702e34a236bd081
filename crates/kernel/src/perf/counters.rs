//! Counters of a process over time: instructions, cycles, page walks and their cycles.
//!
//! Every thread gets its own events, which threads it starts later inherit. Only user mode is
//! counted. If the hardware has fewer counters than events, the kernel multiplexes them: then
//! counts are scaled up, and [`CounterReading::running_ns`] is the time that was counted.

use hugepilot_events::{Design, EventReading, ResolvedEvent, parse, resolve};
use hugepilot_record::{Cpu, GroupTime};

use super::groups::{CounterTarget, GroupCounters};
use crate::cpu::{self, ARM};
use crate::{Process, Unsupported};

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

impl Quantity {
    /// Returns the quantity of a metric.
    fn of(metric: &str) -> Option<Self> {
        Some(match metric {
            "instructions" => Self::Instructions,
            "cycles" => Self::Cycles,
            "dtlb_load_walks" | "dtlb_store_walks" | "dtlb_walks" | DTLB_WALK => Self::Walks,
            _ if metric.ends_with("_walk_active") => Self::WalkCycles,
            _ if metric.ends_with("_walk_duration") => Self::WalkCycles,
            "dtlb_loads" => Self::TlbLoads,
            "dtlb_load_misses" => Self::TlbLoadMisses,
            _ => return None,
        })
    }
}

/// `DTLB_WALK`, an event of the ARM architecture, for cores without a list.
const DTLB_WALK: &str = "r34";

/// Returns the events of page walks on `cpu`.
fn walks(cpu: &Cpu) -> Vec<&'static str> {
    if cpu.vendor == ARM && Design::of(cpu).is_none() {
        return vec![DTLB_WALK];
    }
    vec!["dtlb_load_walks", "dtlb_store_walks", "dtlb_walks"]
}

/// Returns the events to count on `cpu`: instructions and cycles anywhere, page walks as far as
/// its vendor counts them.
fn countables(cpu: &Cpu) -> Vec<ResolvedEvent> {
    let cycles = [
        "dtlb_load_walk_active",
        "dtlb_store_walk_active",
        "dtlb_load_walk_duration",
        "dtlb_store_walk_duration",
    ];
    events(cpu, &[&["instructions", "cycles"], &walks(cpu)[..], &cycles].concat())
}

/// Returns the events of `perf stat -e dTLB-loads,dTLB-load-misses`, and page walks.
fn of_tlb(cpu: &Cpu) -> Vec<ResolvedEvent> {
    events(cpu, &[&["dTLB-loads", "dTLB-load-misses"], &walks(cpu)[..]].concat())
}

fn events(cpu: &Cpu, names: &[&str]) -> Vec<ResolvedEvent> {
    let names: Vec<_> = names.iter().filter_map(|name| parse(cpu, name).ok()).collect();
    resolve(cpu, &names).events
}

/// Open counters of a process. They stop on drop.
#[derive(Debug)]
pub struct Counters {
    /// Quantity of each event.
    quantities: Vec<Option<Quantity>>,
    counters: GroupCounters,
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

    fn of(process: &Process, events: fn(&Cpu) -> Vec<ResolvedEvent>) -> Result<Self, Unsupported> {
        let root = process.root();
        let cpu = cpu::read(root).map_err(|error| Unsupported::because(&error))?;
        let events = events(&cpu);
        let counters = GroupCounters::open(root, CounterTarget::Process(process), &events)?;
        let mut quantities: Vec<Option<Quantity>> =
            events.iter().map(|event| Quantity::of(&event.metric.name)).collect();
        let mut failure = None;
        for (index, cause) in counters.missing() {
            failure = failure.or(Some(cause));
            quantities[index] = None;
        }
        match failure {
            Some(cause) if quantities.iter().all(Option::is_none) => Err(cause.clone()),
            _ => Ok(Self { quantities, counters }),
        }
    }

    /// Reads the counts up to now, in about a microsecond for each event of each thread.
    pub fn read(&self) -> CounterReading {
        let readings = self.quantities.iter().zip(self.counters.read());
        // A failed read is a count that never ran.
        let never = EventReading { time: GroupTime { enabled_ns: 1, running_ns: 0 }, value: 0 };
        let counts =
            readings.filter_map(|(&quantity, reading)| Some((quantity?, reading.unwrap_or(never))));
        sum(&counts.collect::<Vec<_>>())
    }
}

/// Sums events by quantity. A quantity counted by two events needs both.
fn sum(counts: &[(Quantity, EventReading)]) -> CounterReading {
    let of = |wanted| {
        let fitting = counts.iter().filter(|(quantity, _)| *quantity == wanted);
        let scaled: Option<Vec<u64>> = fitting.map(|(_, count)| count.scaled()).collect();
        scaled.filter(|values| !values.is_empty())?.into_iter().reduce(u64::saturating_add)
    };
    let coverage = |count: &EventReading| count.coverage().unwrap_or(1.0);
    let least = counts
        .iter()
        .map(|&(_, count)| count)
        .min_by(|a, b| coverage(a).total_cmp(&coverage(b)))
        .unwrap_or_default();
    CounterReading {
        instructions: of(Quantity::Instructions),
        cycles: of(Quantity::Cycles),
        walks: of(Quantity::Walks),
        walk_cycles: of(Quantity::WalkCycles),
        tlb_loads: of(Quantity::TlbLoads),
        tlb_load_misses: of(Quantity::TlbLoadMisses),
        enabled_ns: least.time.enabled_ns,
        running_ns: least.time.running_ns,
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_events::EventCode;
    use hugepilot_record::Pid;

    use super::*;
    use crate::Root;
    use crate::cpu::{AMD, INTEL};

    fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
        Cpu { vendor: vendor.into(), model_name: String::new(), family, model, hypervisor: false }
    }
    fn config(event: &ResolvedEvent) -> u64 {
        match event.code {
            EventCode::Fixed { config, .. } => config,
            EventCode::Devices(_) => panic!("{event:?}"),
        }
    }
    fn codes(cpu: &Cpu, quantity: Quantity) -> Vec<u64> {
        let events = countables(cpu);
        let fits = |event: &&ResolvedEvent| Quantity::of(&event.metric.name) == Some(quantity);
        events.iter().filter(fits).map(config).collect()
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
            (cpu(ARM, 8, 0xd4b), vec![0x34], vec![]),
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
        let codes: Vec<_> = events
            .iter()
            .map(|event| (Quantity::of(&event.metric.name).unwrap(), config(event)))
            .collect();
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
        let count = |value, running_ns| EventReading {
            value,
            time: GroupTime { enabled_ns: 50, running_ns },
        };
        let (full, half, never) = (count(1000, 50), count(30, 25), count(0, 0));
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
    fn this_process_is_counted_or_the_reason_returned() {
        let pid = Pid(i32::try_from(std::process::id()).unwrap());
        let process = Process::open(&Root::live(), pid).unwrap();
        match Counters::open(&process) {
            Ok(counters) => {
                let first = counters.read();
                let second = counters.read();
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
