//! Documents and JSON of `hugepilot sim`.

mod notices;
mod policy;
mod reuse;
#[cfg(test)]
mod tests;

use hugepilot_record::sentence::number;
use serde_json::Value;

use crate::sim::{
    Candidate, MappingCounts, PresetFacts, SimCpu, SimInput, SimMachine, SimTlbReport,
};

pub use notices::{more_decisions, smallest_budget};

use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{
    Bar, Cell, Curve, Document, Notice, Plot, Report, Section, Table, Unit,
};
use hugepilot_render::sentence::explain_all;
use hugepilot_render::table::{Width, counted, table};

/// Rows of a table that may be long.
const SHOWN: usize = 16;

impl JsonReport for SimTlbReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_input(json, &self.input);
    }
}

/// Adds the sentences of the observations about the sources.
fn explain_input(json: &mut Value, input: &SimInput) {
    explain_all(json, "/input/warnings", &input.warnings);
}

impl Document for SimTlbReport {
    fn document(&self) -> Report {
        let mut all = begun("TLB misses", &self.input, Some(&self.cpu), Vec::new());
        let columns = ["pages", "L1 misses", "walks", "walk ratio", "references", "per walk"];
        let row = |machine: &SimMachine| {
            let counts = &machine.counts;
            [
                machine.page_bytes.into(),
                Cell::count(counts.l1_misses),
                Cell::count(counts.walks),
                Cell::ratio(counts.walk_ratio),
                Cell::count(counts.walk_references),
                Cell::number(counts.walk_references as f64 / counts.walks.max(1) as f64),
            ]
        };
        let table = Table::of("", columns, self.machines.iter().map(row));
        let ratio = |machine: &SimMachine| {
            (format!("{} pages", machine.page_bytes), machine.counts.walk_ratio)
        };
        let bars = walk_bars(self.machines.iter().map(ratio));
        let section = Section::new("TLB misses", "All memory is on pages of one size.");
        all.add(section.with(table).with_all((self.machines.len() > 1).then_some(bars)));
        if let Some(smallest) = self.machines.first() {
            all.add(mappings(smallest));
            all.add(candidates(&smallest.candidates));
        }
        all
    }
}

/// Bars of walks per access.
fn walk_bars(ratios: impl Iterator<Item = (String, f64)>) -> Plot {
    let bars = ratios.map(|(name, ratio)| Bar::new(name, Some(ratio)));
    Plot::bars("Walks per access", "walks per access", Unit::Ratio, bars)
}

/// A report that describes the accesses and the CPU, with the warnings about the accesses, and
/// `more` notices.
fn begun(title: &str, input: &SimInput, cpu: Option<&SimCpu>, more: Vec<Notice>) -> Report {
    let mut all = Report::new(title);
    let seconds = input.seconds.max(1e-9);
    all.summary.push(format!(
        "Simulated accesses of {}: {} of {}, {}; {} in {}; {seconds:.1} s, {:.1} million/s.",
        input.sources.join("; "),
        counted(input.accesses, "access", "accesses"),
        counted(input.threads, "thread", "threads"),
        counted(input.stores, "store", "stores"),
        input.footprint_bytes,
        counted(input.regions, "region", "regions"),
        input.accesses as f64 / seconds / 1e6
    ));
    let others = [("omitted", input.omitted), ("folded", input.folded), ("lost", input.lost)];
    let others = others.into_iter().filter(|(_, count)| *count > 0);
    let others: Vec<_> = others.map(|(name, count)| format!("{} {name}", number(count))).collect();
    if !others.is_empty() {
        let one = input.omitted + input.folded + input.lost == 1;
        let accesses = if one { "access" } else { "accesses" };
        all.summary.push(format!("Not simulated: {} {accesses}.", others.join(", ")));
    }
    all.summary.extend(cpu.map(cpu_text));
    let notices = notices::of_input(input).into_iter().chain(more);
    all.add(Section::new("Notices", "").with_all(notices));
    all
}

fn cpu_text(cpu: &SimCpu) -> String {
    let coalescing = if cpu.coalescing { ", coalescing" } else { "" };
    let nested = if cpu.nested { ", virtual machine" } else { "" };
    let assumed = match cpu.assumed.join("; ") {
        assumed if assumed.is_empty() => assumed,
        assumed => format!(" Assumed: {assumed}."),
    };
    format!("TLBs of {} ({}){coalescing}{nested}.{assumed}", cpu.cpu, cpu.preset)
}

/// Name of a mapping, with its process if several run.
fn mapping_name(process: u16, mapping: &str, ordinal: u64) -> Cell {
    let process = if process > 0 { format!("process {}: ", process + 1) } else { String::new() };
    let ordinal = if ordinal > 0 { format!(" #{ordinal}") } else { String::new() };
    format!("{process}{mapping}{ordinal}").into()
}

/// Walks of each mapping.
fn mappings(machine: &SimMachine) -> Section {
    if machine.per_mapping.is_empty() {
        return Section::default();
    }
    let all = machine.counts.walks.max(1) as f64;
    let row = |one: &MappingCounts| {
        [
            mapping_name(one.process, &one.mapping, one.ordinal),
            one.touched_bytes.into(),
            Cell::count(one.counts.accesses),
            Cell::count(one.counts.walks),
            Cell::ratio(one.counts.walk_ratio),
            Cell::ratio(one.counts.walks as f64 / all),
        ]
    };
    let columns = ["mapping", "used", "accesses", "walks", "walk ratio", "of walks"];
    let table = Table::of("", columns, machine.per_mapping.iter().take(SHOWN).map(row));
    let section = Section::new(format!("Mappings, on {} pages", machine.page_bytes), "");
    section.with(table).with_all(more_mappings(machine.per_mapping.len()))
}

fn more_mappings(all: usize) -> Option<Notice> {
    Notice::of_omitted(all, SHOWN, "mapping", "mappings")
}

/// Regions that could still be promoted at the end, and a curve if they are many.
fn candidates(candidates: &[Candidate]) -> Section {
    let walked: Vec<_> = candidates.iter().filter(|one| one.frequency > 0).collect();
    if walked.is_empty() {
        return Section::default();
    }
    let row = |one: &&Candidate| {
        let name = mapping_name(one.process, &one.mapping, one.ordinal);
        [Cell::count(one.frequency), Cell::count(one.index), name]
    };
    let columns = ["frequency", "index", "mapping"];
    let table = Table::of("", columns, walked.iter().take(SHOWN).map(row));
    let points = (1..).zip(&walked).map(|(rank, one)| (f64::from(rank), one.frequency as f64));
    let curve = Curve { name: "frequency".to_owned(), points: points.collect() };
    let [x, y] = ["rank", "frequency"].map(|name| (name, Unit::Count));
    let plot = Plot::curves("Frequency by rank", x, y, vec![curve]);
    let section = Section::new("Candidates", "Regions that could still be promoted at the end.");
    let more = Notice::of_omitted(walked.len(), SHOWN, "candidate", "candidates");
    section.with(table).with_all(more).with_all((walked.len() > SHOWN).then_some(plot))
}

/// Prints the CPUs that can be simulated.
pub fn presets_text(presets: &[PresetFacts], width: Width) -> String {
    let mut rows = vec![["NAME", "CPU", "L1", "L2", "ASSUMED"].map(str::to_owned).to_vec()];
    rows.extend(presets.iter().map(|one| {
        let assumed = if one.assumed == 0 { "-".to_owned() } else { one.assumed.to_string() };
        vec![one.name.clone(), one.cpu.clone(), one.l1.clone(), one.l2.clone(), assumed]
    }));
    table(rows, &[4], width)
}
