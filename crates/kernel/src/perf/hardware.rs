//! Hardware samples, whose data address comes from the processor.
//!
//! Sources are tried in this order: Intel's precise events for loads and stores that missed the
//! second-level TLB (every sample is a page walk), Intel's load latency (each sample shows whether
//! it missed), AMD's instruction-based sampling (the same). If none works, the CPU clock with an
//! instruction decoder remains.

use hugepilot_record::{Cpu, Pattern, Provenance, Sample};
use hugepilot_units::Bytes;
use perf_event_open_sys::bindings as sys;

use super::pmu::{Pmu, Words};
use super::{Event, Record, SampleFormat, trial};
use crate::cpu::{AMD, ARM, INTEL};
use crate::rights::Rights;
use crate::{Root, Unsupported};

/// Source of hardware samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareSource {
    /// Name, as `doctor` prints it.
    pub name: &'static str,
    /// Event to open. The period may be changed; for IBS it stays a multiple of 16.
    pub event: Event,
    /// Kind of its samples.
    pub sample_kind: SampleKind,
}

/// Kind of accesses that a source samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// Accesses that missed the second-level TLB: every sample counts.
    Walks,
    /// All accesses, or slow ones: samples count if their data source shows that they missed the
    /// second-level TLB.
    Accesses,
}

/// Sources that a machine may have, in the order to try them, and those that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Sources to try. Only [`HardwareSource::try_open`] shows whether one works.
    pub sources: Vec<HardwareSource>,
    /// Sources that cannot be used here, by name, with the reason.
    pub skipped: Vec<(&'static str, Unsupported)>,
}

const STLB_LOADS: &str = "PEBS loads that missed the STLB";
const STLB_STORES: &str = "PEBS stores that missed the STLB";
const LOAD_LATENCY: &str = "PEBS load latency";
const IBS: &str = "IBS micro-ops";
const SPE: &str = "ARM SPE";

/// Walks per sample: a prime, so that samples do not fall into step with a loop.
const WALK_PERIOD: u64 = 1009;
const SLOW_LOAD_PERIOD: u64 = 2003;
/// Micro-ops between two IBS samples: a multiple of 16, as the hardware counts in these.
const IBS_PERIOD: u64 = 16 * 12_503;
/// Cycles from which a load is slow: more than the second-level cache takes.
const SLOW_LOAD_CYCLES: u32 = 32;

const ADDRESS: SampleFormat = SampleFormat {
    address: true,
    weight: false,
    data_source: true,
    registers: false,
    callers: false,
};
const ADDRESS_AND_COST: SampleFormat = SampleFormat { weight: true, ..ADDRESS };

/// Returns the sources that `cpu` may have.
pub fn candidates(root: &Root, cpu: &Cpu) -> Candidates {
    match cpu.vendor.as_str() {
        INTEL => intel(root),
        AMD => amd(root),
        ARM => {
            Candidates { skipped: vec![(SPE, Unsupported::SpeNotDecoded)], ..Candidates::default() }
        }
        _ => Candidates::default(),
    }
}

fn intel(root: &Root) -> Candidates {
    // Hybrid processors name their large cores; others have one unit.
    let pmu = ["cpu_core", "cpu"].into_iter().find_map(|name| Pmu::read(root, name));
    let kind = pmu.as_ref().map_or(sys::PERF_TYPE_RAW, |pmu| pmu.kind);
    let stlb = |name, config| HardwareSource {
        name,
        event: hardware(kind, [config, 0, 0], 2, WALK_PERIOD, ADDRESS),
        sample_kind: SampleKind::Walks,
    };
    let mut found = Candidates {
        sources: vec![stlb(STLB_LOADS, 0x11d0), stlb(STLB_STORES, 0x12d0)],
        skipped: Vec::new(),
    };
    match load_latency(root, pmu.as_ref()) {
        Ok(event) => found.sources.push(HardwareSource {
            name: LOAD_LATENCY,
            event,
            sample_kind: SampleKind::Accesses,
        }),
        Err(reason) => found.skipped.push((LOAD_LATENCY, reason)),
    }
    found
}

fn load_latency(root: &Root, pmu: Option<&Pmu>) -> Result<Event, Unsupported> {
    let pmu = pmu.ok_or(Unsupported::NoCpuUnit)?;
    if pmu.event(root, "mem-loads-aux").is_some() {
        return Err(Unsupported::MemLoadsAux);
    }
    let text = pmu.event(root, "mem-loads").ok_or(Unsupported::NoMemLoads)?;
    let terms = text.split(',').filter(|term| !term.trim().starts_with("ldlat"));
    let text: Vec<&str> = terms.collect();
    let words = pmu
        .encode(&format!("{},ldlat={SLOW_LOAD_CYCLES}", text.join(",")))
        .ok_or(Unsupported::MemLoadsUnknown)?;
    Ok(hardware(pmu.kind, words, 2, SLOW_LOAD_PERIOD, ADDRESS_AND_COST))
}

fn amd(root: &Root) -> Candidates {
    let skip = |reason| Candidates { sources: Vec::new(), skipped: vec![(IBS, reason)] };
    let Some(pmu) = Pmu::read(root, "ibs_op") else {
        return skip(Unsupported::NoIbs);
    };
    // The hardware cannot exclude the kernel. Newer kernels can drop such samples, and then require
    // no capability.
    let filtered = pmu.knows("swfilt");
    let Some(words) = pmu.encode(if filtered { "cnt_ctl=1,swfilt=1" } else { "cnt_ctl=1" }) else {
        return skip(Unsupported::IbsMicroOps);
    };
    let mut event = hardware(pmu.kind, words, 0, IBS_PERIOD, ADDRESS_AND_COST);
    event.exclude_kernel = filtered;
    let source = HardwareSource { name: IBS, event, sample_kind: SampleKind::Accesses };
    Candidates { sources: vec![source], skipped: Vec::new() }
}

const fn hardware(
    kind: u32,
    words: Words,
    precise_ip: u8,
    period: u64,
    format: SampleFormat,
) -> Event {
    let [config, config1, config2] = words;
    Event { kind, config, config1, config2, precise_ip, exclude_kernel: true, period, format }
}

/// More pages than any second-level TLB holds.
const TRIAL_MEMORY: Bytes = Bytes::mib(48);

impl HardwareSource {
    /// Opens it on a child that loads from all of its memory, and counts the page walks with an
    /// address that arrive. Takes a quarter of a second at most.
    ///
    /// # Errors
    /// [`Unsupported`], also if no sample arrives.
    pub fn try_open(&self, root: &Root, rights: &Rights) -> Result<u64, Unsupported> {
        let is_walk = |record: &Record<'_>| self.sample(record).is_some();
        match trial::samples_of(root, TRIAL_MEMORY, self.event, rights, is_walk)? {
            0 => Err(Unsupported::NoPageWalks),
            count => Ok(count),
        }
    }

    /// Returns the page walk in `record`; `None` if it is another record, or has no address of user
    /// memory.
    pub fn sample(&self, record: &Record<'_>) -> Option<Sample> {
        let &Record::Sample { ip, pid, tid, time, address, data_source, registers, .. } = record
        else {
            return None;
        };
        let address = address.filter(|address| (1..1 << 63).contains(&address.get()))?;
        let walked = match self.sample_kind {
            SampleKind::Walks => true,
            SampleKind::Accesses => data_source.is_some_and(missed_last_tlb),
        };
        walked.then(|| Sample {
            time,
            pid,
            tid,
            ip,
            address: Some(address),
            provenance: Provenance::Exact,
            // Each walk needed its own translation, unlike a stream of neighbours.
            pattern: Pattern::Scattered,
            stack: registers.map(|registers| registers.stack_pointer()),
        })
    }
}

/// Whether `perf_mem_data_src` shows that the last level of the TLB had no translation, or that a
/// walk fetched it.
fn missed_last_tlb(data_source: u64) -> bool {
    const SHIFT: u32 = 26;
    const MISS: u64 = 0x04;
    const LEVEL_2: u64 = 0x10;
    const WALKER: u64 = 0x20;
    const BITS: u64 = 0x7f;
    let tlb = data_source >> SHIFT & BITS;
    tlb & (MISS | LEVEL_2) == MISS | LEVEL_2 || tlb & WALKER != 0
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{Pid, Tid};
    use hugepilot_units::{Nanos, VirtAddr};

    use super::super::pmu::tests::unit;
    use super::super::{parse_record, records};
    use super::*;
    use crate::sys::perf::stored::StoredRing;

    fn cpu(vendor: &str) -> Cpu {
        Cpu {
            vendor: vendor.into(),
            model_name: String::new(),
            family: 6,
            model: 85,
            hypervisor: false,
        }
    }
    fn source(
        vendor: &str,
        files: &[(&str, &[(&str, &str)])],
        name: &str,
    ) -> Option<HardwareSource> {
        let dir = tempfile::tempdir().unwrap();
        for (pmu, files) in files {
            unit(dir.path(), pmu, files);
        }
        let found = candidates(&Root::at(dir.path()), &cpu(vendor));
        found.sources.into_iter().find(|source| source.name == name)
    }

    const CORE: [(&str, &str); 5] = [
        ("type", "4"),
        ("format/event", "config:0-7"),
        ("format/umask", "config:8-15"),
        ("format/ldlat", "config1:0-15"),
        ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
    ];
    const IBS_UNIT: [(&str, &str); 2] = [("type", "11"), ("format/cnt_ctl", "config:19")];

    /// A sample record as the kernel writes it: header, ip, pid and tid, time, address, then weight
    /// when asked for, then the data source.
    fn sample(format: SampleFormat, address: u64, data_source: u64) -> Vec<u8> {
        let mut words = vec![0x40_1000, 7 | 8 << 32, 99, address];
        words.extend(format.weight.then_some(250));
        words.push(data_source);
        let size = u16::try_from(8 + words.len() * 8).unwrap();
        let mut bytes = sys::PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
        bytes.extend(2_u16.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word: &u64| word.to_ne_bytes()));
        bytes
    }
    fn samples(source: &HardwareSource, ring: &[u8]) -> Vec<Sample> {
        let format = source.event.format;
        records(ring).filter_map(|bytes| source.sample(&parse_record(bytes, format)?)).collect()
    }

    const TLB: u32 = 26;
    const NOT_AVAILABLE: u64 = 0x01 << TLB;
    const L1_HIT: u64 = (0x02 | 0x08) << TLB;
    const L2_HIT: u64 = (0x02 | 0x10) << TLB;
    const L2_MISS: u64 = (0x04 | 0x10) << TLB;
    const WALKED: u64 = (0x02 | 0x20) << TLB;
    const EITHER_HIT: u64 = (0x02 | 0x08 | 0x10) << TLB;
    /// A load from DRAM, as all of them are.
    const LOAD: u64 = 0x02 | 0x82 << 5;

    #[test]
    fn precise_miss_events_are_walks_whatever_the_data_source_says() {
        let source = source(INTEL, &[("cpu", &CORE)], STLB_LOADS).unwrap();
        assert_eq!(
            (source.event.kind, source.event.config, source.event.precise_ip),
            (4, 0x11d0, 2)
        );
        let ring = [0x7f00_0000_1008, 0x7f00_0020_0000]
            .map(|at| sample(ADDRESS, at, LOAD | NOT_AVAILABLE));
        let found = samples(&source, &ring.concat());
        assert_eq!(found.len(), 2);
        let first = found[0];
        assert_eq!((first.pid, first.tid, first.time), (Pid(7), Tid(8), Nanos::new(99)));
        assert_eq!(
            (first.ip.get(), first.address),
            (0x40_1000, Some(VirtAddr::new(0x7f00_0000_1008)))
        );
        assert_eq!((first.provenance, first.stack), (Provenance::Exact, None));
    }

    #[test]
    fn of_all_accesses_only_those_that_missed_the_last_level_count() {
        let source = source(AMD, &[("ibs_op", &IBS_UNIT)], IBS).unwrap();
        let kinds = [L1_HIT, L2_HIT, L2_MISS, EITHER_HIT, NOT_AVAILABLE, WALKED, 0];
        let ring: Vec<Vec<u8>> = (1_u64..)
            .zip(kinds)
            .map(|(i, kind)| sample(source.event.format, i << 12, LOAD | kind))
            .collect();
        let pages: Vec<u64> = samples(&source, &ring.concat())
            .iter()
            .map(|s| s.address.unwrap().get() >> 12)
            .collect();
        assert_eq!(pages, [3, 6]);
    }

    #[test]
    fn samples_without_an_address_of_the_program_are_dropped() {
        let source = source(INTEL, &[("cpu", &CORE)], STLB_STORES).unwrap();
        for address in [0, 0xffff_8880_0000_1000] {
            assert!(samples(&source, &sample(ADDRESS, address, LOAD)).is_empty());
        }
        let cut = &sample(ADDRESS, 4096, LOAD)[..40];
        assert!(samples(&source, cut).is_empty());
        assert!(source.sample(&Record::Lost(3)).is_none());
    }

    #[test]
    fn load_latency_takes_its_terms_from_sysfs() {
        let found = source(INTEL, &[("cpu", &CORE)], LOAD_LATENCY).unwrap();
        let event = found.event;
        assert_eq!((event.config, event.config1), (0x1cd, u64::from(SLOW_LOAD_CYCLES)));
        assert!(event.format.weight && event.format.data_source && !event.format.registers);
        assert_eq!(source(INTEL, &[], LOAD_LATENCY), None);
        let golden_cove =
            [&CORE[..], &[("events/mem-loads-aux", "event=0x03,umask=0x82")]].concat();
        assert_eq!(source(INTEL, &[("cpu", &golden_cove)], LOAD_LATENCY), None);
        let hybrid = [("cpu_core", &[("type", "9")][..]), ("cpu_atom", &[("type", "10")])];
        assert_eq!(source(INTEL, &hybrid, STLB_LOADS).unwrap().event.kind, 9);
    }

    /// A ring whose unread part, `records`, begins this number of bytes before the end of its data.
    fn wrapped(before_end: usize, records: &[u8]) -> StoredRing {
        let mut data = vec![0; rustix::param::page_size()];
        let begin = data.len() - before_end;
        data[begin..].copy_from_slice(&records[..before_end]);
        data[..records.len() - before_end].copy_from_slice(&records[before_end..]);
        let tail = 5 * data.len() as u64 + begin as u64;
        StoredRing { head: tail + records.len() as u64, tail, data }
    }

    #[test]
    fn a_ring_that_wraps_has_its_walks_with_their_costs() {
        let lost = [sys::PERF_RECORD_LOST.to_ne_bytes(), (24_u32 << 16).to_ne_bytes()].concat();
        let lost = [lost, 1_u64.to_ne_bytes().to_vec(), 17_u64.to_ne_bytes().to_vec()].concat();
        let pebs = source(INTEL, &[("cpu", &CORE)], LOAD_LATENCY).unwrap();
        let ibs = source(AMD, &[("ibs_op", &IBS_UNIT)], IBS).unwrap();
        for source in [pebs, ibs] {
            let format = source.event.format;
            let sample = |page: u64, kind| sample(format, page << 12, LOAD | kind);
            let ring = [sample(1, L2_MISS), sample(2, L1_HIT), lost.clone(), sample(3, WALKED)];
            let ring = ring.concat();
            for before_end in (8..ring.len()).step_by(8) {
                let mut bytes = Vec::new();
                wrapped(before_end, &ring).map().take(&mut bytes);
                assert_eq!(bytes, ring, "{before_end}");
            }
            let parsed: Vec<_> =
                records(&ring).filter_map(|record| parse_record(record, format)).collect();
            let costs = parsed.iter().filter_map(|record| match record {
                Record::Sample { weight, .. } => *weight,
                _ => None,
            });
            assert_eq!(costs.collect::<Vec<_>>(), [250; 3]);
            assert_eq!(parsed[2], Record::Lost(17));
            let walks = parsed.iter().filter_map(|record| source.sample(record)?.address);
            let pages: Vec<u64> = walks.map(|address| address.get() >> 12).collect();
            assert_eq!(pages, [1, 3], "{}", source.name);
        }
    }

    #[test]
    fn ibs_excludes_the_kernel_only_if_it_can() {
        let plain = source(AMD, &[("ibs_op", &IBS_UNIT)], IBS).unwrap().event;
        assert_eq!(
            (plain.kind, plain.config, plain.config2, plain.exclude_kernel),
            (11, 1 << 19, 0, false)
        );
        assert_eq!(plain.period % 16, 0);
        let newer = [&IBS_UNIT[..], &[("format/swfilt", "config2:0")]].concat();
        let newer = source(AMD, &[("ibs_op", &newer)], IBS).unwrap().event;
        assert_eq!((newer.config2, newer.exclude_kernel), (1, true));
        let found = candidates(&Root::at("/nowhere"), &cpu(AMD));
        assert!(found.sources.is_empty() && found.skipped[0].1 == Unsupported::NoIbs);
        assert_eq!(candidates(&Root::at("/nowhere"), &cpu(ARM)).skipped[0].0, SPE);
        assert_eq!(candidates(&Root::at("/nowhere"), &cpu("Other")), Candidates::default());
    }

    #[test]
    fn every_source_here_works_or_has_a_reason() {
        let (root, rights) = (Root::live(), Rights::read(&Root::live()));
        let cpu = crate::cpu::read(&root).unwrap();
        for source in candidates(&root, &cpu).sources {
            match source.try_open(&root, &rights) {
                Ok(count) => assert!(count > 0),
                Err(reason) => eprintln!("skipped: {}: {reason}", source.name),
            }
        }
    }
}
