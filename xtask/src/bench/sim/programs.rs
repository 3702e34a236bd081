//! Stand-ins for the programs of section 5.4 and Figure 5 beyond graphs.

use anyhow::Result;
use hugepilot_reports::sim::SimUtilityReport;
use serde::{Deserialize, Serialize};

use super::record::Row;
use super::runner::{Bench, words};
use super::table::{acts, percent, walk_percent};
use super::utility::{Point, curves};

pub(super) const METHOD: &str = "\
Programs that behave as those of PARSEC and SPEC in the paper, under QEMU (`haswell`): share of the
page walks avoided with huge pages for 4 % of the footprint, with the promotions and demotions, and
with huge pages only.

- canneal: random swaps of elements of a netlist; here random updates of a table (`gups`).
- dedup: chunks looked up by a hash of their content; here zstd's search for long matches in a file
  with repeated chunks.
- mcf: network simplex; here its pricing loop, a scan over arcs that reads the potentials of their
  nodes.
- omnetpp: discrete events; here a priority queue of message objects in Python.
- xalancbmk: XSLT on a document tree; here a tree of Python's ElementTree, walked and sorted.";

const POLICIES: &str = "pcc,hawkeye,heat,linux";
const PYTHON: &str = "/usr/bin/python3";
const ZSTD: &str = "/usr/bin/zstd";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Program of the paper.
    pub(super) program: String,
    /// Program that was simulated.
    pub(super) stand_in: String,
    pub(super) footprint_bytes: u64,
    /// Walks per access on base pages.
    pub(super) base_ratio: f64,
    /// Policies, and the run of each.
    pub(super) avoided: Vec<(String, Point)>,
    /// Share of the walks that huge pages only avoid.
    pub(super) ideal_ratio: f64,
}

impl Line {
    pub(super) fn head(&self) -> Vec<String> {
        let first = ["program", "stand-in", "MiB", "walks, base"].map(str::to_owned);
        let policies = self.avoided.iter().map(|(policy, _)| format!("{policy}, 4 %"));
        first.into_iter().chain(policies).chain(["ideal".to_owned()]).collect()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.program.clone(), self.stand_in.clone()];
        cells.push((self.footprint_bytes >> 20).to_string());
        cells.push(walk_percent(self.base_ratio));
        let run = |(_, point): &(String, Point)| {
            format!("{} {}", percent(point.avoided), acts([point.acts]))
        };
        cells.extend(self.avoided.iter().map(run));
        cells.push(percent(self.ideal_ratio));
        cells
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    for (name, stand_in, command) in programs(bench)? {
        if !std::path::Path::new(&command[0]).exists() {
            eprintln!("skipped {name}: {} is missing", command[0]);
            continue;
        }
        let most = bench.options.accesses * 2;
        let flags = format!(
            "utility --preset haswell --policies {POLICIES} --budgets 4% {} --max-accesses {most}",
            bench.interval()
        );
        let ran = bench.sim::<SimUtilityReport>(&flags, &command)?;
        let last = |(policy, points): (String, Vec<Point>)| Some((policy, points.last()?.clone()));
        let line = Line {
            program: name.to_owned(),
            stand_in: stand_in.to_owned(),
            footprint_bytes: ran.report.input.footprint_bytes.get(),
            base_ratio: ran.report.base.counts.walk_ratio,
            avoided: curves(&ran.report).into_iter().filter_map(last).collect(),
            ideal_ratio: ran.report.ideal.walks_avoided_ratio,
        };
        bench.add(&ran.command, Row::Programs(line))?;
    }
    Ok(())
}

/// Name in the paper, stand-in, and its command.
type Program = (&'static str, &'static str, Vec<String>);

fn programs(bench: &Bench<'_>) -> Result<Vec<Program>> {
    let dom = bench.file("dom.py", include_str!("programs/dom.py"))?;
    let events = bench.file("events.py", include_str!("programs/events.py"))?;
    let chunks = bench.file("chunks", &repeated_chunks())?;
    let arcs = bench.compiled("arcs", include_str!("programs/arcs.c"))?;
    // Enough of each for 200 million accesses.
    let gups = format!("{} lab workload gups --size 128MiB --ops 20000000", bench.own());
    let zstd =
        format!("{ZSTD} -q --single-thread --long=27 -3 -f {} -o /dev/null", chunks.display());
    Ok(vec![
        ("canneal", "gups", words(&gups)),
        ("dedup", "zstd --long", words(&zstd)),
        ("mcf", "arcs.c", words(&format!("{arcs} 2000000 1000000 20"))),
        (
            "omnetpp",
            "events.py",
            words(&format!("{PYTHON} {} 50000 300000 1000000", events.display())),
        ),
        ("xalancbmk", "dom.py", words(&format!("{PYTHON} {} 100000 20", dom.display()))),
    ])
}

/// 64 MiB of text of which each chunk of 4 KiB comes several times, in no order.
fn repeated_chunks() -> String {
    const CHUNKS: usize = 4096;
    const DRAWN: usize = 16384;
    let mut random = crate::random::Random::new(1, 0);
    let letters: Vec<char> = ('a'..='z').chain('0'..='9').collect();
    let mut chunk = || (0..4096).map(|_| random.pick(&letters)).collect::<String>();
    let chunks: Vec<String> = (0..CHUNKS).map(|_| chunk()).collect();
    (0..DRAWN).map(|_| chunks[random.below(CHUNKS as u64) as usize].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn chunks_repeat() {
        let text = repeated_chunks();
        assert_eq!(text.len(), 64 << 20);
        let chunks = text.as_bytes().chunks(4096);
        let distinct: BTreeSet<&[u8]> = chunks.collect();
        assert!((2048..=4096).contains(&distinct.len()), "{}", distinct.len());
    }
}
