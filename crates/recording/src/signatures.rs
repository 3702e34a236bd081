//! Signatures of several recordings side by side.

use hugepilot_render::model::{Cell, Curve, Plot, Section, Table, Unit};
use hugepilot_stats::Distribution;

use super::measures::stall_measures;
use super::memory::Memory;
use super::sections::{COARSE, main_process};
use super::timeline::{ProcessTrack, Timeline};
use super::track::Track;

/// Curves of a plot at most.
const MAX_CURVES: usize = 14;
/// Points of a distribution.
const CDF_POINTS: usize = 100;

/// The stall share of the process with the most stall samples of each recording; empty for fewer
/// than two. `recordings` have the names of their files.
pub fn signatures_section(recordings: &[(&str, &Timeline)]) -> Section {
    let rows: Vec<(&str, &Timeline, &ProcessTrack)> = recordings
        .iter()
        .filter_map(|(name, timeline)| Some((*name, *timeline, main_process(timeline)?)))
        .filter(|(_, timeline, _)| !timeline.is_simulated())
        .collect();
    if rows.len() < 2 {
        return Section::default();
    }
    let columns = [
        "file",
        "process",
        "recorded",
        "p5",
        "p25",
        "median",
        "p75",
        "p95",
        "peak / mean",
        "peak memory",
        "most on huge pages",
    ];
    let mut table = Table::new("Stall share over slices, and memory", columns);
    let mut curves = Vec::new();
    for (name, timeline, process) in rows {
        let shares = shares(&process.stalls);
        table.row(row(name, timeline, process, shares.as_ref()));
        let curve = shares.filter(|_| curves.len() < MAX_CURVES).map(|shares| curve(name, &shares));
        curves.extend(curve);
    }
    let text = "The stall share is the share of the samples that wait for scattered memory \
                accesses in a slice. Slices are merged to 100 ms, since shorter ones have few \
                samples; at a low rate of samples, part of the spread is that of sampling. Memory \
                is the peak, and so are the bytes on huge pages.";
    let plot = (!curves.is_empty()).then(|| {
        let text = "A curve further to the right waits more; a steep one waits evenly.".to_owned();
        let (x, y) =
            (("stall share of a slice", Unit::Ratio), "share of the slices at or below it");
        Plot { text, ..Plot::distributions("Stall share of each file", x, y, curves) }
    });
    Section::new("Signatures side by side", text).with(table).with_all(plot)
}

/// Stall shares of slices of at least [`COARSE`].
fn shares(stalls: &Track) -> Option<Distribution> {
    let measures = stall_measures(&stalls.resliced(COARSE), None);
    let measure = measures.into_iter().find(|measure| measure.name == "stall_ratio")?;
    Distribution::of(measure.values)
}

fn row(
    name: &str,
    timeline: &Timeline,
    process: &ProcessTrack,
    shares: Option<&Distribution>,
) -> Vec<Cell> {
    let no_samples = timeline.head.sampler_missing.as_deref().unwrap_or("no samples");
    let from = timeline.window.from.unwrap_or(0.0);
    let to = timeline.window.to.unwrap_or(timeline.duration).min(timeline.duration);
    let mut row: Vec<Cell> = vec![name.into(), process.title().into()];
    row.push(Cell::seconds(to - from));
    row.extend([0.05, 0.25, 0.5, 0.75, 0.95].map(|share| {
        Cell::of(shares.map(|shares| shares.quantile(share)), Unit::Ratio, no_samples)
    }));
    let burst = shares.and_then(|shares| shares.burstiness().peak_over_mean);
    row.push(Cell::of(burst, Unit::Number, no_samples));
    row.extend(Memory::of(timeline, process).peaks());
    row
}

fn curve(name: &str, shares: &Distribution) -> Curve {
    let mut points = shares.cdf(CDF_POINTS);
    points.insert(0, (0.0, 0.0));
    Curve { name: name.to_owned(), points }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::MetricKind;

    use super::super::track::Slot;
    use super::*;

    #[test]
    fn short_slices_count_together() {
        let mut stalls = Track::new(vec![MetricKind::Counter; 3]);
        for at in 0..100 {
            let slot = Slot { end: f64::from(at + 1) / 100.0, length: 0.01 };
            let scattered = f64::from(u8::from(at % 2 == 0));
            stalls.push(slot, &[Some(1.0), Some(1.0), Some(scattered)]);
        }
        let shares = shares(&stalls).unwrap();
        assert_eq!([0.0, 0.5, 1.0].map(|share| shares.quantile(share)), [0.5; 3]);
    }
}
