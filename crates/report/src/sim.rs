//! Text and JSON of `hugepilot sim`.

pub(crate) mod notices;
mod plot;
mod policy;
mod reuse;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use hugepilot_record::sentence::number;
use hugepilot_record::sim::{
    Candidate, MappingCounts, PresetFacts, SimCounts, SimCpu, SimInput, SimMachine, SimTlbReport,
};
use serde_json::Value;

pub use notices::{more_decisions, smallest_budget};
pub(crate) use policy::{has_promotions, walks_text};
pub use policy::{sim_policy_text, sim_utility_text};
pub use reuse::sim_reuse_text;
pub(crate) use reuse::{by_power, powers_of};

use crate::back_end::printable;
use crate::json::JsonReport;
use crate::sentence::explain_all;
use crate::table::{Width, counted, percent, table};

/// Rows of a table that may be long.
const SHOWN: usize = 12;

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

/// Prints the counts by page size and by mapping, and plots of the walks and of the candidates.
pub fn sim_tlb_text(report: &SimTlbReport, width: Width) -> String {
    let mut text = input(&report.input) + &cpu(&report.cpu);
    let header = ["PAGES", "L1_MISSES", "WALKS", "WALK_%", "REFERENCES", "PER_WALK"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(report.machines.iter().map(|machine| {
        let mut row = vec![machine.page_bytes.to_string()];
        row.extend(counts(&machine.counts));
        row
    }));
    let _ = write!(text, "\n{}", table(rows, &[1, 2, 3, 4, 5], width));
    let walks =
        |machine: &SimMachine| walk_bar(&machine.page_bytes.to_string(), machine.counts.walk_ratio);
    if report.machines.len() > 1 {
        let all: Vec<_> = report.machines.iter().map(walks).collect();
        text.push_str(&plot::bars("walks per access", &all));
    }
    if let Some(smallest) = report.machines.first() {
        text.push_str(&mappings(smallest, width));
        text.push_str(&candidates(&smallest.candidates, width));
    }
    text
}

/// Cells of counts: L1 misses, walks, walks per access, references, references of a walk.
fn counts(counts: &SimCounts) -> [String; 5] {
    let per_walk = counts.walk_references as f64 / counts.walks.max(1) as f64;
    [
        number(counts.l1_misses),
        number(counts.walks),
        walk_percent(counts.walk_ratio),
        number(counts.walk_references),
        format!("{per_walk:.2}"),
    ]
}

fn walk_percent(ratio: f64) -> String {
    format!("{:.3}", ratio * 100.0)
}

/// Name, value and text of a bar of walks per access.
fn walk_bar(name: &str, ratio: f64) -> (String, f64, String) {
    (name.to_owned(), ratio, format!("{} %", walk_percent(ratio)))
}

/// Describes the accesses, in sentences.
fn input(input: &SimInput) -> String {
    let mut text = format!("{}\n", input.sources.join("; "));
    let seconds = input.seconds.max(1e-9);
    let _ = writeln!(
        text,
        "{} of {}, {}; {} in {}; {:.1} s, {:.1} million/s",
        counted(input.accesses, "access", "accesses"),
        counted(input.threads, "thread", "threads"),
        counted(input.stores, "store", "stores"),
        input.footprint_bytes,
        counted(input.regions, "region", "regions"),
        seconds,
        input.accesses as f64 / seconds / 1e6
    );
    let others = [("omitted", input.omitted), ("folded", input.folded), ("lost", input.lost)];
    let others: Vec<String> = others
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{} {name}", number(count)))
        .collect();
    if !others.is_empty() {
        let all = input.omitted + input.folded + input.lost;
        let accesses = if all == 1 { "access" } else { "accesses" };
        let _ = writeln!(text, "not simulated: {} {accesses}", others.join(", "));
    }
    text.push_str(&notices::lines(&notices::of_input(input)));
    text
}

/// Describes the CPU.
fn cpu(cpu: &SimCpu) -> String {
    // A preset may be a file of another user.
    let mut text = format!("TLBs of {} ({})", printable(&cpu.cpu), printable(&cpu.preset));
    for (is_set, name) in [(cpu.coalescing, "coalescing"), (cpu.nested, "virtual machine")] {
        if is_set {
            let _ = write!(text, ", {name}");
        }
    }
    text.push('\n');
    if !cpu.assumed.is_empty() {
        let _ = writeln!(text, "assumed: {}", printable(&cpu.assumed.join("; ")));
    }
    text
}

/// Name of a mapping, with its process if several run.
pub(crate) fn mapping_name(process: u16, mapping: &str, ordinal: u64) -> String {
    let process = if process > 0 { format!("process {}: ", process + 1) } else { String::new() };
    let ordinal = if ordinal > 0 { format!(" #{ordinal}") } else { String::new() };
    format!("{process}{}{ordinal}", printable(mapping))
}

fn mappings(machine: &SimMachine, width: Width) -> String {
    if machine.per_mapping.is_empty() {
        return String::new();
    }
    let header = ["MAPPING", "USED", "ACCESSES", "WALKS", "WALK_%", "OF_WALKS"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let all = machine.counts.walks.max(1) as f64;
    let row = |one: &MappingCounts| {
        vec![
            mapping_name(one.process, &one.mapping, one.ordinal),
            one.touched_bytes.to_string(),
            number(one.counts.accesses),
            number(one.counts.walks),
            walk_percent(one.counts.walk_ratio),
            percent(one.counts.walks as f64 / all),
        ]
    };
    rows.extend(machine.per_mapping.iter().take(SHOWN).map(row));
    let table = table(rows, &[1, 2, 3, 4, 5], width);
    let more = more(machine.per_mapping.len());
    format!("\nmappings, on {} pages:\n{table}{more}", machine.page_bytes)
}

/// Line about rows that the text leaves out.
fn more(all: usize) -> String {
    match all.saturating_sub(SHOWN) {
        0 => String::new(),
        left => format!("and {left} more: --json\n"),
    }
}

fn candidates(candidates: &[Candidate], width: Width) -> String {
    let walked: Vec<&Candidate> = candidates.iter().filter(|one| one.frequency > 0).collect();
    if walked.is_empty() {
        return String::new();
    }
    let mut rows = vec![["FREQUENCY", "INDEX", "MAPPING"].map(str::to_owned).to_vec()];
    rows.extend(walked.iter().take(SHOWN).map(|one| {
        let name = mapping_name(one.process, &one.mapping, one.ordinal);
        vec![one.frequency.to_string(), one.index.to_string(), name]
    }));
    let table = table(rows, &[0, 1], width);
    let mut text = format!("\ncandidates at the end:\n{table}{}", more(walked.len()));
    if walked.len() > SHOWN {
        let frequencies: Vec<f64> = walked.iter().map(|one| one.frequency as f64).collect();
        let _ = writeln!(text, "frequency, highest first: {}", plot::sketch(&frequencies));
    }
    text
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
