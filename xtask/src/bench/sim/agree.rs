//! Agreement of the live sampler of `tune` and the simulated candidate cache.

use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result};
use hugepilot_reports::sim::{Candidate, SimTlbReport};
use hugepilot_reports::tune::TuneReport;
use serde::{Deserialize, Serialize};

use super::record::Row;
use super::runner::{Bench, words};
use super::table::percent;
use crate::run::{json, show};

pub(super) const METHOD: &str = "\
Regions ranked by `tune --dry-run` on the live program (stall samples, `heat_ratio`) and by the
candidate cache of `sim tlb` under QEMU at its end (walk counts, 128 entries). A region is
known by the size of its mapping, equal within 2 % or 4 MiB, and by its index among the aligned
regions inside. A cell has the regions in both tops, of the size of the smaller top: a ranking may
be shorter, because the sampler lists regions only if they stall. The percentage is the share of
walks: those of the live top over those of the simulated top. Where all hot regions are equally hot,
their order is chance, so few are in both tops although the live ones walk as much. The simulation
ends amid the work: the counters have 8 bits, so a last scan over the memory would erase them.";

pub(super) const HEAD: [&str; 8] = [
    "program",
    "TLBs",
    "regions",
    "ranked live",
    "ranked simulated",
    "top 1 %",
    "top 4 %",
    "top 16 %",
];

/// Shares of the regions that are compared.
const TOPS: [f64; 3] = [0.01, 0.04, 0.16];
/// Workloads of `hugepilot lab workload`.
const WORKLOADS: [&str; 6] = [
    "hot-set --size 256MiB --hot 32MiB",
    "hot-set --size 256MiB --hot 64MiB --pattern chase",
    "hash-map --size 256MiB",
    "tree --size 64MiB",
    "btree --size 256MiB --pages default",
    "gups --size 256MiB",
];
/// Time in which a program fills its memory.
const FILL: Duration = Duration::from_secs(2);
/// All small objects of `malloc` in one mapping: under QEMU, the heap cannot grow otherwise.
const ONE_HEAP: (&str, &str) = ("MALLOC_TOP_PAD_", "536870912");
/// Difference up to which two mappings are alike: this part of the size, or these bytes.
const ALIKE: u64 = 50;
const ALIKE_BYTES: u64 = 4 << 20;
const HUGE: u64 = 2 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) program: String,
    /// Preset; empty in records of former versions.
    #[serde(default)]
    pub(super) preset: String,
    /// Regions that the program uses.
    pub(super) regions: u64,
    /// Regions in each ranking.
    pub(super) ranked: (usize, usize),
    pub(super) tops: Vec<Overlap>,
}

/// Regions in both tops, and the size of the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Overlap {
    pub(super) common: usize,
    pub(super) of: usize,
    /// Simulated walks of the live top, over those of a simulated top of that size.
    pub(super) walks_ratio: f64,
}

impl Line {
    pub(super) fn cells(&self) -> Vec<String> {
        let (live, simulated) = self.ranked;
        let counts = [self.regions, live as u64, simulated as u64];
        let top = |&Overlap { common, of, walks_ratio }: &Overlap| {
            format!("{common} of {of}, {}", percent(walks_ratio))
        };
        let counts = counts.iter().map(ToString::to_string);
        [self.program.clone(), self.preset.clone()]
            .into_iter()
            .chain(counts)
            .chain(self.tops.iter().map(top))
            .collect()
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
fn overlap(live: &[Place], simulated: &[(Place, u64)], regions: u64, part: f64) -> Overlap {
    let count = ((regions as f64 * part).round() as usize).max(1);
    let of = count.min(live.len()).min(simulated.len());
    let is_top = |place: &Place| simulated[..of].iter().any(|other| place.is_like(other.0));
    let walks = |place: &Place| {
        simulated.iter().find(|other| place.is_like(other.0)).map_or(0, |other| other.1)
    };
    let top: u64 = simulated[..of].iter().map(|one| one.1).sum();
    Overlap {
        common: live[..of].iter().filter(|place| is_top(place)).count(),
        of,
        walks_ratio: live[..of].iter().map(walks).sum::<u64>() as f64 / top.max(1) as f64,
    }
}

/// Program to rank. It runs until it is ended.
struct Program {
    name: String,
    /// Variable of its environment.
    variable: Option<(&'static str, &'static str)>,
    command: Vec<String>,
}

fn programs(bench: &Bench<'_>) -> Result<Vec<Program>> {
    let own = bench.own();
    let workload = |name: &str| Program {
        name: name.to_owned(),
        variable: Some(ONE_HEAP),
        command: words(&format!("{own} lab workload {name} --seconds 0")),
    };
    let arcs = bench.compiled("arcs", include_str!("programs/arcs.c"))?;
    let graded = bench.compiled("graded", include_str!("programs/graded.c"))?;
    let compiled = |path: &str, name: &str, arguments: &str| Program {
        name: format!("{name} {arguments}"),
        variable: None,
        command: words(&format!("{path} {arguments}")),
    };
    let compiled = [
        compiled(&graded, "graded.c", "128 1000000000000"),
        compiled(&arcs, "arcs.c", "2000000 4000000 1000000"),
    ];
    Ok(WORKLOADS.into_iter().map(workload).chain(compiled).collect())
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    for program in programs(bench)? {
        let live = live(bench, &program)?;
        let (preset, accesses) = (bench.options.preset(), bench.options.accesses);
        let flags = format!("tlb --pages 4k --preset {preset} --max-accesses {accesses}");
        let ran = bench.sim_with::<SimTlbReport>(program.variable, &flags, &program.command)?;
        let machine = ran.report.machines.first().context("a machine")?;
        let place = |one: &Candidate| Some((Place::of(one)?, one.frequency));
        let simulated: Vec<(Place, u64)> = machine.candidates.iter().filter_map(place).collect();
        let regions = ran.report.input.regions;
        let line = Line {
            program: program.name,
            preset: preset.to_owned(),
            regions,
            ranked: (live.len(), simulated.len()),
            tops: TOPS.map(|part| overlap(&live, &simulated, regions, part)).to_vec(),
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

/// Ranks the regions of a program by its stalls, while it runs.
fn live(bench: &Bench<'_>, program: &Program) -> Result<Vec<Place>> {
    let (first, rest) = program.command.split_first().context("a program")?;
    let mut command = Command::new(first);
    command.args(rest).envs(program.variable).stdout(Stdio::null());
    let mut child = command.spawn().with_context(|| show(&command))?;
    thread::sleep(FILL);
    let places = ranked(bench, child.id());
    child.kill().and_then(|()| child.wait()).with_context(|| show(&command))?;
    places
}

fn ranked(bench: &Bench<'_>, pid: u32) -> Result<Vec<Place>> {
    let mut command = Command::new(bench.hugepilot);
    let tune: TuneReport = json(command.args(TUNE).args(["-p", &pid.to_string()]))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let place = |address: u64| Place::in_maps(&maps, address);
    Ok(tune.plan.selected.iter().filter_map(|region| place(region.start.get())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(indices: &[u64]) -> Vec<Place> {
        indices.iter().map(|&index| Place { mapping_bytes: 256 << 20, index }).collect()
    }

    #[test]
    fn tops_are_compared_by_mapping_and_index() {
        let live = places(&[1, 2, 3, 4]);
        let simulated: Vec<(Place, u64)> =
            places(&[2, 9, 1, 8]).into_iter().zip([40, 30, 20, 10]).collect();
        let of = |simulated, part| {
            let Overlap { common, of, walks_ratio } = overlap(&live, simulated, 100, part);
            (common, of, walks_ratio)
        };
        assert_eq!(of(&simulated, 0.04), (2, 4, 0.6));
        assert_eq!(of(&simulated, 0.02), (1, 2, 60.0 / 70.0));
        assert_eq!(of(&simulated, 0.001), (0, 1, 0.5));
        assert_eq!(of(&simulated[..1], 0.16), (0, 1, 0.0));
        assert_eq!(of(&[], 0.16), (0, 0, 0.0));
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
