//! Facts that all reports of simulations have.

use hugepilot_record::trace::TraceWarning;
use hugepilot_reports::sim::{
    Candidate, MappingCounts, PageSizeCounts, SimCounts, SimCpu, SimInput, SourceCut, SourceWarning,
};
use hugepilot_sim::{
    BASE_SHIFT, Coalescing, Counts, Footprint, MAX_LAYOUT, Machine, MachineConfig, PageClass,
    Place, Places, Preset, Ranked, count,
};
use hugepilot_units::{Bytes, Nanos};

use super::Simulated;
use super::tlb::page_bytes;
use crate::source::TraceStop;

/// CPU to simulate.
#[derive(Clone, Debug)]
pub struct CpuSetup {
    /// TLBs.
    pub preset: Preset,
    /// Name or path of the preset, as the user gave it.
    pub name: String,
    /// Whether TLBs coalesce four base pages.
    pub coalescing: bool,
    /// Whether walks are those of a virtual machine.
    pub nested: bool,
}

impl CpuSetup {
    /// Returns a machine of base pages.
    pub(super) fn machine(&self) -> MachineConfig {
        let coalescing = if self.coalescing { Coalescing::All } else { Coalescing::None };
        let nested_levels = if self.nested { self.preset.levels } else { 0 };
        MachineConfig { coalescing, nested_levels, ..MachineConfig::new(self.preset.clone()) }
    }

    pub(super) fn report(&self) -> SimCpu {
        SimCpu {
            preset: self.name.clone(),
            cpu: self.preset.cpu.clone(),
            source: self.preset.source.clone(),
            assumed: self.preset.assumed.clone(),
            coalescing: self.coalescing,
            nested: self.nested,
        }
    }
}

/// Describes what was executed.
pub(super) fn input(simulated: &Simulated, sources: Vec<String>, took: Nanos) -> SimInput {
    let Simulated { footprint, ends, .. } = simulated;
    let sum = |field: fn(&crate::source::TraceEnd) -> u64| ends.iter().map(field).sum();
    let cut = |(source, end): (&String, &crate::source::TraceEnd)| {
        end.cut.map(|byte| SourceCut { source: source.clone(), byte })
    };
    let full = simulated.full.map(|full| SourceWarning {
        source: sources[usize::from(full.process)].clone(),
        warning: TraceWarning::TooManyMappings { accesses: full.accesses, most_bytes: MAX_LAYOUT },
    });
    // A cut is stated with its byte.
    let warnings = |(source, end): (&String, &crate::source::TraceEnd)| -> Vec<SourceWarning> {
        let is_other = |warning: &TraceWarning| end.cut.is_none() || *warning != TraceWarning::Cut;
        let all = end.warnings().into_iter().filter(is_other);
        all.map(|warning| SourceWarning { source: source.clone(), warning }).collect()
    };
    SimInput {
        warnings: sources.iter().zip(ends).flat_map(warnings).chain(full).collect(),
        cut: sources.iter().zip(ends).filter_map(cut).collect(),
        sources,
        accesses: simulated.accesses,
        stores: simulated.stores,
        omitted: sum(|end| end.omitted),
        folded: sum(|end| end.folded),
        lost: sum(|end| end.lost),
        threads: simulated.threads,
        visits: footprint.visits(),
        footprint_bytes: Bytes::new(footprint.pages() << BASE_SHIFT),
        regions: footprint.regions().len() as u64,
        complete: simulated.full.is_none()
            && ends.iter().all(|end| {
                let is_whole = |stop| !matches!(stop, TraceStop::Sink | TraceStop::Interrupted);
                end.is_complete && is_whole(end.stop)
            }),
        seconds: took.as_seconds(),
    }
}

/// Returns counts as reports have them.
pub(super) fn counts(counts: Counts) -> SimCounts {
    SimCounts {
        accesses: counts.accesses,
        l1_misses: counts.l1_misses,
        l2_misses: counts.walks,
        walks: counts.walks,
        walk_ratio: counts.walk_ratio(),
        walk_references: counts.walk_references,
    }
}

/// Returns the counts of each page size that was used, smallest first.
pub(super) fn per_page_size(machine: &Machine) -> Vec<PageSizeCounts> {
    let sizes = PageClass::ALL.map(|class| (class, machine.counts_of_class(class)));
    let used = sizes.into_iter().filter(|(_, counts)| *counts != Counts::default());
    used.map(|(class, of_class)| PageSizeCounts {
        page_bytes: page_bytes(class),
        counts: counts(of_class),
    })
    .collect()
}

/// Returns the counts of each mapping that was used, most walks first.
pub(super) fn per_mapping(
    machine: &Machine,
    footprint: &Footprint,
    places: &Places,
) -> Vec<MappingCounts> {
    let none = (Counts::default(), 0);
    let mut sums = vec![none; places.mappings().len()];
    let regions = (0..).zip(footprint.regions()).zip(machine.counts_of_regions());
    for ((number, region), of_region) in regions {
        let (sum, pages) = &mut sums[places.shown(number).mapping];
        *sum = sum.and(of_region);
        *pages += u64::from(count(&region.touched()));
    }
    let mut all: Vec<MappingCounts> = places
        .mappings()
        .iter()
        .zip(sums)
        .filter(|(_, (sum, _))| sum.accesses > 0)
        .map(|(named, (sum, pages))| MappingCounts {
            process: named.process,
            mapping: named.mapping.name.clone(),
            ordinal: named.number,
            touched_bytes: Bytes::new(pages << BASE_SHIFT),
            counts: counts(sum),
        })
        .collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.counts.walks, one.counts.accesses)));
    all
}

/// Returns candidates by mapping and index.
pub(super) fn candidates(ranked: &[Ranked], places: &Places) -> Vec<Candidate> {
    let candidate = |one: &Ranked| {
        let Place { mapping, index, inside } = places.shown(one.region);
        let named = &places.mappings()[mapping];
        Candidate {
            process: named.process,
            mapping: named.mapping.name.clone(),
            ordinal: named.number,
            index,
            mapping_bytes: named.mapping.range.len(),
            inside_index: inside,
            frequency: u64::from(one.frequency),
        }
    };
    ranked.iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Ending;
    use hugepilot_sim::Layout;

    use super::*;
    use crate::simulate::FullLayout;
    use crate::source::TraceEnd;

    #[test]
    fn the_end_of_each_source_gives_its_warnings() {
        let end = TraceEnd::new(TraceStop::End, 1, 0);
        let end = TraceEnd { ending: Some(Ending::Exited(0)), ..end };
        let cut = TraceEnd { ending: None, is_complete: false, cut: Some(9), ..end.clone() };
        let failed = TraceEnd { ending: Some(Ending::Exited(3)), forks: 2, ..end.clone() };
        let imported = TraceEnd { stored: vec![TraceWarning::Cut], ..end.clone() };
        let (footprint, layout) = (Footprint::new(), Layout::default());
        let ends = vec![end, cut, failed, imported];
        let (accesses, stores, threads, full) = (3, 0, 1, None);
        let simulated = Simulated { footprint, layout, accesses, stores, threads, ends, full };
        let sources = || ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let input = |simulated: &Simulated| input(simulated, sources(), Nanos::ZERO);
        let whole = input(&simulated);
        let warning = |source: &str, warning| SourceWarning { source: source.to_owned(), warning };
        let expected = [
            warning("c", TraceWarning::Forked { children: 2 }),
            warning("c", TraceWarning::Failed { status: 3 }),
            warning("d", TraceWarning::Cut),
        ];
        assert_eq!(whole.warnings, expected);
        assert_eq!((whole.cut.len(), whole.complete), (1, false));

        // All of it was received, and the simulation did not take all.
        let ends = vec![simulated.ends[0].clone()];
        assert!(input(&Simulated { ends: ends.clone(), ..simulated.clone() }).complete);
        let full = Some(FullLayout { process: 1, accesses: 2 });
        let part = input(&Simulated { ends, full, ..simulated });
        let cause = TraceWarning::TooManyMappings { accesses: 2, most_bytes: MAX_LAYOUT };
        assert_eq!((part.warnings, part.complete), (vec![warning("b", cause)], false));
    }
}
