//! Agreement of the live sampler of `tune` and the simulated candidate cache.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use hugepilot_record::sim::{Candidate, SimTlbReport};
use hugepilot_record::tune::TuneReport;
use serde::{Deserialize, Serialize};

use super::super::workload::Workload;
use super::record::Row;
use super::runner::{Bench, report, words};
use super::table::{percent, share};

pub(super) const METHOD: &str = "\
Regions ranked by `tune --dry-run` on the live program (stall samples, `heat_ratio`) and by the
candidate cache of `sim tlb` under QEMU at its end (walk counts, 128 entries). A region is
known by the size of its mapping, equal within 2 % or 4 MiB, and by its index among the aligned
regions inside. A cell has the regions in both tops, and the size of the smaller top: a ranking may
be shorter, because the sampler lists regions only if they stall. By chance, the share in common
would be about the share of the column.";

pub(super) const HEAD: [&str; 7] =
    ["program", "regions", "ranked live", "ranked simulated", "top 1 %", "top 4 %", "top 16 %"];

/// Shares of the regions that are compared.
const TOPS: [f64; 3] = [0.01, 0.04, 0.16];
/// Workloads of `hugepilot lab workload`.
const PROGRAMS: [&str; 6] = [
    "hot-set --hot 32MiB",
    "hot-set --hot 64MiB --pattern chase",
    "hash-map",
    "tree",
    "btree --pages default",
    "gups",
];
const SIZE: &str = "--size 256MiB";
/// All small objects of `malloc` in one mapping: under QEMU, the heap cannot grow otherwise.
const ONE_HEAP: (&str, &str) = ("MALLOC_TOP_PAD_", "536870912");
/// Difference up to which two mappings are alike: this part of the size, or these bytes.
const ALIKE: u64 = 50;
const ALIKE_BYTES: u64 = 4 << 20;
const HUGE: u64 = 2 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) program: String,
    /// Regions that the program uses.
    pub(super) regions: u64,
    /// Regions in each ranking.
    pub(super) ranked: (usize, usize),
    pub(super) tops: Vec<Overlap>,
}

/// Regions in both tops, and the size of the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Overlap {
    pub(super) common: usize,
    pub(super) of: usize,
}

impl Line {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn cells(&self) -> Vec<String> {
        let (live, simulated) = self.ranked;
        let counts = [self.regions, live as u64, simulated as u64];
        let top = |&Overlap { common, of }: &Overlap| {
            format!("{common} of {of}, {}", percent(share(common as f64, of as f64)))
        };
        let counts = counts.iter().map(ToString::to_string);
        [self.program.clone()].into_iter().chain(counts).chain(self.tops.iter().map(top)).collect()
    }
}

/// Region without its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    mapping_bytes: u64,
    index: u64,
}

impl Place {
    fn is_like(self, other: Self) -> bool {
        let most = (self.mapping_bytes / ALIKE).max(ALIKE_BYTES);
        self.index == other.index && self.mapping_bytes.abs_diff(other.mapping_bytes) <= most
    }

    fn of(candidate: &Candidate) -> Option<Self> {
        let (mapping_bytes, index) = (candidate.mapping_bytes.get(), candidate.inside_index?);
        Some(Self { mapping_bytes, index })
    }

    /// Place of an address in mappings, as `/proc/PID/maps` has them.
    fn in_maps(maps: &str, address: u64) -> Option<Self> {
        let range = |line: &str| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?))
        };
        let holds = |&(start, end): &(u64, u64)| (start..end).contains(&address);
        let (start, end) = maps.lines().filter_map(range).find(holds)?;
        let first = start.next_multiple_of(HUGE);
        let index = address.checked_sub(first)? / HUGE;
        Some(Self { mapping_bytes: end - start, index })
    }
}

/// Compares the first `share` of `regions` of two rankings, at least one region.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn overlap(live: &[Place], simulated: &[Place], regions: u64, share: f64) -> Overlap {
    let count = ((regions as f64 * share).round() as usize).max(1);
    let top = |all: &[Place]| all.iter().copied().take(count).collect::<Vec<_>>();
    let (live, simulated) = (top(live), top(simulated));
    let is_common = |one: &&Place| simulated.iter().any(|other| one.is_like(*other));
    let common = live.iter().filter(is_common).count();
    Overlap { common, of: live.len().min(simulated.len()) }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    for program in PROGRAMS {
        let live = live(bench, program)?;
        let ops = bench.options.accesses / 50;
        let command = words(&format!("{} lab workload {program} {SIZE} --ops {ops}", bench.own()));
        let flags = format!("tlb --pages 4k --preset {}", bench.options.preset);
        let ran = bench.sim_with::<SimTlbReport>(Some(ONE_HEAP), &flags, &command)?;
        let machine = ran.report.machines.first().context("a machine")?;
        let simulated: Vec<Place> = machine.candidates.iter().filter_map(Place::of).collect();
        let regions = ran.report.input.regions;
        let line = Line {
            program: program.to_owned(),
            regions,
            ranked: (live.len(), simulated.len()),
            tops: TOPS.map(|share| overlap(&live, &simulated, regions, share)).to_vec(),
        };
        let shown = format!("{}\nhugepilot {} -p PID", ran.command, TUNE.join(" "));
        bench.add(&shown, Row::Agree(line))?;
    }
    Ok(())
}

/// A dry run that lists every region with stalls, whatever its gain.
const TUNE: [&str; 10] = [
    "tune",
    "--dry-run",
    "--json",
    "--budget",
    "100%",
    "--min-gain",
    "0%",
    "--horizon",
    "1h",
    "--max-added=100%",
];

/// Ranks the regions of the running workload by its stalls.
fn live(bench: &Bench<'_>, program: &str) -> Result<Vec<Place>> {
    let args = words(&format!("{program} {SIZE}"));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let workload = Workload::start_with(bench.hugepilot, ONE_HEAP, &args)?;
    let mut command = Command::new(bench.hugepilot);
    let tune: TuneReport = report(command.args(TUNE).args(["-p", &workload.pid]))?;
    let maps = fs::read_to_string(format!("/proc/{}/maps", workload.pid))?;
    let place = |address: u64| Place::in_maps(&maps, address);
    Ok(tune.selected.iter().filter_map(|region| place(region.start.get())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(indices: &[u64]) -> Vec<Place> {
        indices.iter().map(|&index| Place { mapping_bytes: 256 << 20, index }).collect()
    }

    #[test]
    fn tops_are_compared_by_mapping_and_index() {
        let (live, simulated) = (places(&[1, 2, 3, 4]), places(&[2, 9, 1, 8]));
        assert_eq!(overlap(&live, &simulated, 100, 0.04), Overlap { common: 2, of: 4 });
        assert_eq!(overlap(&live, &simulated, 100, 0.02), Overlap { common: 1, of: 2 });
        assert_eq!(overlap(&live, &simulated, 100, 0.001), Overlap { common: 0, of: 1 });
        assert_eq!(overlap(&live, &simulated[..1], 100, 0.16), Overlap { common: 1, of: 1 });
        assert_eq!(overlap(&live, &[], 100, 0.16), Overlap { common: 0, of: 0 });
        let other = Place { mapping_bytes: 128 << 20, index: 1 };
        assert!(!other.is_like(live[0]));
        let near = Place { mapping_bytes: (256 << 20) + 4096, index: 1 };
        assert!(near.is_like(live[0]));
    }

    #[test]
    fn an_address_has_an_index_among_the_aligned_regions() {
        let maps = "\
7f0000100000-7f0000a00000 rw-p 00000000 00:00 0 \n\
7f0000a00000-7f0000a01000 r--p 00000000 fe:00 7 /lib/libc.so.6\n";
        let place = |address| Place::in_maps(maps, address);
        let expected = |index| Some(Place { mapping_bytes: 0x90_0000, index });
        assert_eq!(place(0x7f00_0020_0000), expected(0));
        assert_eq!(place(0x7f00_0060_0000), expected(2));
        assert_eq!(place(0x7f00_0010_0000), None, "before the first aligned region");
        assert_eq!(place(0x7f00_1000_0000), None);
    }
}
