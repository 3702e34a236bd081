//! Samples whose data address the processor itself gives.
//!
//! Sources are tried in this order: Intel's precise events for loads and stores that missed the second-level TLB (every
//! sample is a page walk), Intel's load latency (the samples say which missed), AMD's instruction-based sampling (the
//! same). Where none works, the CPU clock and a decoder of instructions take over.

use hugepilot_record::doctor::Cpu;
use hugepilot_record::{Pattern, Provenance, Sample};
use hugepilot_units::Bytes;
use perf_event_open_sys::bindings as sys;

use super::pmu::{Pmu, Words};
use super::{Event, Record, SampleFormat, trial};
use crate::Root;
use crate::cpu::{AMD, ARM, INTEL};
use crate::refusal::Refusal;
use crate::rights::Rights;

/// One kind of hardware sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareSource {
    /// As `doctor` calls it.
    pub name: &'static str,
    /// What to open. The period may be changed; for IBS it stays a multiple of 16.
    pub event: Event,
    /// Which of its samples are page walks.
    pub what_it_samples: WhatItSamples,
}

/// What a source's samples are samples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhatItSamples {
    /// Accesses that missed the second-level TLB: every sample counts.
    Walks,
    /// All accesses, or slow ones: those count whose data source says that they missed the second-level TLB.
    Accesses,
}

/// What a machine may have, in the order to try it, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Worth opening. Only [`HardwareSource::try_open`] shows whether one works.
    pub sources: Vec<HardwareSource>,
    /// What this processor has in principle, and why it cannot be used: name and reason.
    pub skipped: Vec<(&'static str, String)>,
}

const STLB_LOADS: &str = "PEBS loads that missed the STLB";
const STLB_STORES: &str = "PEBS stores that missed the STLB";
const LOAD_LATENCY: &str = "PEBS load latency";
const IBS: &str = "IBS micro-ops";
const SPE: &str = "ARM SPE";

/// Walks are rare enough to take one in so many (a prime, so as not to march in step with a loop).
const WALK_PERIOD: u64 = 1009;
const SLOW_LOAD_PERIOD: u64 = 2003;
/// Micro-ops between two IBS samples: a multiple of 16, as the hardware counts in these.
const IBS_PERIOD: u64 = 16 * 12_503;
/// Cycles from which a load is slow: longer than the second-level cache takes.
const SLOW_LOAD_CYCLES: u32 = 32;

const ADDRESS: SampleFormat =
    SampleFormat { address: true, weight: false, data_source: true, registers: false };
const ADDRESS_AND_COST: SampleFormat = SampleFormat { weight: true, ..ADDRESS };

/// What `cpu` may offer.
pub fn candidates(root: &Root, cpu: &Cpu) -> Candidates {
    match cpu.vendor.as_str() {
        INTEL => intel(root),
        AMD => amd(root),
        ARM => Candidates {
            skipped: vec![(SPE, "its trace buffer is not decoded by this version".to_owned())],
            ..Candidates::default()
        },
        _ => Candidates::default(),
    }
}

fn intel(root: &Root) -> Candidates {
    // Hybrid processors name their large cores; elsewhere there is one unit.
    let pmu = ["cpu_core", "cpu"].into_iter().find_map(|name| Pmu::read(root, name));
    let kind = pmu.as_ref().map_or(sys::PERF_TYPE_RAW, |pmu| pmu.kind);
    let stlb = |name, config| HardwareSource {
        name,
        event: hardware(kind, [config, 0, 0], 2, WALK_PERIOD, ADDRESS),
        what_it_samples: WhatItSamples::Walks,
    };
    let mut found = Candidates {
        sources: vec![stlb(STLB_LOADS, 0x11d0), stlb(STLB_STORES, 0x12d0)],
        skipped: Vec::new(),
    };
    match load_latency(root, pmu.as_ref()) {
        Ok(event) => found.sources.push(HardwareSource {
            name: LOAD_LATENCY,
            event,
            what_it_samples: WhatItSamples::Accesses,
        }),
        Err(why) => found.skipped.push((LOAD_LATENCY, why)),
    }
    found
}

fn load_latency(root: &Root, pmu: Option<&Pmu>) -> Result<Event, String> {
    let pmu = pmu.ok_or("the kernel shows no counters of the processor (no cpu unit in sysfs)")?;
    if pmu.event(root, "mem-loads-aux").is_some() {
        return Err("this core wants the event in a group with mem-loads-aux, which is not supported".into());
    }
    let text = pmu.event(root, "mem-loads").ok_or("the cpu unit has no event mem-loads")?;
    let terms = text.split(',').filter(|term| !term.trim().starts_with("ldlat"));
    let text: Vec<&str> = terms.collect();
    let words = pmu
        .encode(&format!("{},ldlat={SLOW_LOAD_CYCLES}", text.join(",")))
        .ok_or("the cpu unit does not know its own event mem-loads")?;
    Ok(hardware(pmu.kind, words, 2, SLOW_LOAD_PERIOD, ADDRESS_AND_COST))
}

fn amd(root: &Root) -> Candidates {
    let skip = |why: &str| Candidates { sources: Vec::new(), skipped: vec![(IBS, why.to_owned())] };
    let Some(pmu) = Pmu::read(root, "ibs_op") else {
        return skip("the kernel shows no ibs_op unit: the processor has none, or the hypervisor hides it");
    };
    // The hardware cannot leave the kernel out; newer kernels can throw such samples away, and then let everybody in.
    let filtered = pmu.knows("swfilt");
    let Some(words) = pmu.encode(if filtered { "cnt_ctl=1,swfilt=1" } else { "cnt_ctl=1" }) else {
        return skip("the ibs_op unit cannot count micro-ops (no cnt_ctl)");
    };
    let mut event = hardware(pmu.kind, words, 0, IBS_PERIOD, ADDRESS_AND_COST);
    event.exclude_kernel = filtered;
    let source = HardwareSource { name: IBS, event, what_it_samples: WhatItSamples::Accesses };
    Candidates { sources: vec![source], skipped: Vec::new() }
}

const fn hardware(kind: u32, words: Words, precise_ip: u8, period: u64, format: SampleFormat) -> Event {
    let [config, config1, config2] = words;
    Event { kind, config, config1, config2, precise_ip, exclude_kernel: true, period, format }
}

/// More pages than any second-level TLB holds.
const TRIAL_MEMORY: Bytes = Bytes::mib(48);

impl HardwareSource {
    /// Opens it on a child of ours that loads from all over its memory, and counts the page walks that come back with an
    /// address. A quarter of a second at most.
    ///
    /// # Errors
    /// Why it is not to be had, no samples among the reasons.
    pub fn try_open(&self, root: &Root, rights: &Rights) -> Result<u64, Refusal> {
        let is_walk = |record: &Record| self.sample(record).is_some();
        match trial::samples_of(root, TRIAL_MEMORY, self.event, rights, is_walk)? {
            0 => Err(Refusal::because("the event opened, but no page walk with an address came")),
            count => Ok(count),
        }
    }

    /// The page walk that `record` tells of; `None` when it is something else, or has no address of user memory.
    pub fn sample(&self, record: &Record) -> Option<Sample> {
        let &Record::Sample { ip, pid, tid, time, address, data_source, registers, .. } = record else {
            return None;
        };
        let address = address.filter(|address| (1..1 << 63).contains(&address.get()))?;
        let walked = match self.what_it_samples {
            WhatItSamples::Walks => true,
            WhatItSamples::Accesses => data_source.is_some_and(missed_last_tlb),
        };
        walked.then(|| Sample {
            time,
            pid,
            tid,
            ip,
            address: Some(address),
            provenance: Provenance::Exact,
            // It needed a translation of its own, which a stream of neighbours does not.
            pattern: Pattern::Scattered,
            stack: registers.map(|registers| registers.stack_pointer()),
        })
    }
}

/// Whether `perf_mem_data_src` says that the last level of the TLB had no translation, or that a walk fetched it.
fn missed_last_tlb(data_source: u64) -> bool {
    const SHIFT: u32 = 26;
    const MISS: u64 = 0x04;
    const LEVEL_2: u64 = 0x10;
    const WALKER: u64 = 0x20;
    const BITS: u64 = 0x7f;
    let tlb = data_source >> SHIFT & BITS;
    tlb & (MISS | LEVEL_2) == MISS | LEVEL_2 || tlb & WALKER != 0
}
