//! Heat by address and time, in bounded memory, and its map.

use std::collections::{BTreeMap, HashMap};

use hugepilot_render::model::{Area, HeatCell, HeatMap, HeatRow};

use super::areas::NamedRange;
use super::track::Slot;
use crate::{HotRegion, UNKNOWN_MAPPING};

/// Columns of a map at most.
const MAX_COLUMNS: usize = 300;
/// Cells before columns are merged.
const MAX_CELLS: usize = 1 << 20;
/// Rows of a map, about.
const ROWS: usize = 110;
/// Address ranges of a map at most.
const MAX_AREAS: usize = 24;
/// Regions outside all known mappings this near to each other form a range.
const NEAR: u64 = 32;

/// Heat of the regions of a process over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeatTrack {
    /// Begin and end of each column, in seconds.
    columns: Vec<(f64, f64)>,
    /// Slices in each column, except the last.
    merged: usize,
    filled: usize,
    /// Heat and the part of it on huge pages, by column and region.
    cells: HashMap<(u32, u64), (u32, u32)>,
    ignored: u64,
}

impl HeatTrack {
    /// Adds the regions of a slice. Heat is samples less streamed ones.
    pub(crate) fn add(&mut self, slot: Slot, regions: &[HotRegion]) {
        self.merged = self.merged.max(1);
        match self.columns.last_mut() {
            Some(last) if self.filled < self.merged => {
                last.1 = slot.end;
                self.filled += 1;
            }
            _ => {
                self.columns.push((slot.end - slot.length, slot.end));
                self.filled = 1;
            }
        }
        if self.columns.len() > MAX_COLUMNS {
            self.halve();
        }
        for &HotRegion(region, samples, streamed, huge) in regions {
            let heat = samples.saturating_sub(streamed);
            let huge = if huge == Some(true) { heat } else { 0 };
            if heat > 0 {
                self.cell(region.get(), (heat, huge));
            }
        }
    }

    fn cell(&mut self, region: u64, (heat, huge): (u32, u32)) {
        if self.cells.len() >= MAX_CELLS && self.columns.len() > 2 {
            self.halve();
        }
        let column = u32::try_from(self.columns.len() - 1).unwrap_or(u32::MAX);
        if self.cells.len() >= MAX_CELLS && !self.cells.contains_key(&(column, region)) {
            self.ignored += u64::from(heat);
            return;
        }
        add(self.cells.entry((column, region)).or_default(), (heat, huge));
    }

    /// Merges pairs of columns.
    fn halve(&mut self) {
        let is_even = self.columns.len().is_multiple_of(2);
        let pairs = self.columns.chunks(2);
        self.columns = pairs.map(|pair| (pair[0].0, pair[pair.len() - 1].1)).collect();
        self.filled = if is_even { self.merged + self.filled } else { self.filled };
        self.merged *= 2;
        let mut cells = HashMap::new();
        for ((column, region), value) in self.cells.drain() {
            add(cells.entry((column / 2, region)).or_default(), value);
        }
        self.cells = cells;
    }

    /// Heat of all regions.
    pub(crate) fn total(&self) -> u64 {
        self.cells.values().map(|(heat, _)| u64::from(*heat)).sum()
    }

    /// Share of the heat that was on huge pages; `None` without heat.
    pub(crate) fn huge_ratio(&self) -> Option<f64> {
        let huge: u64 = self.cells.values().map(|(_, huge)| u64::from(*huge)).sum();
        let total = self.total();
        (total > 0).then(|| huge as f64 / total as f64)
    }

    /// Heat that did not fit.
    pub(crate) const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Heat of each region.
    fn by_region(&self) -> BTreeMap<u64, u64> {
        let mut regions = BTreeMap::new();
        for ((_, region), (heat, _)) in &self.cells {
            *regions.entry(*region).or_default() += u64::from(*heat);
        }
        regions
    }

    /// Heat by name of the mapping, the hottest first.
    pub(crate) fn by_name(&self, ranges: &[NamedRange], huge: u64) -> Vec<(String, u64)> {
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        for (region, heat) in self.by_region() {
            let name =
                index_of(ranges, region, huge).map_or(UNKNOWN_MAPPING, |at| &ranges[at].name);
            *names.entry(name.to_owned()).or_default() += heat;
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        names
    }

    /// Last time with samples.
    pub(crate) fn end(&self) -> Option<f64> {
        self.columns.last().map(|column| column.1)
    }

    /// The map up to `end`, and heat outside of it; `None` without heat. `huge` is the size of a
    /// region.
    pub(crate) fn map(&self, ranges: &[NamedRange], huge: u64, end: f64) -> Option<(HeatMap, u64)> {
        let spans = spans(&self.by_region(), ranges, huge);
        let (areas, rows) = rows(&spans, huge);
        let mut cells: BTreeMap<(u32, u32), (u32, u32)> = BTreeMap::new();
        let mut outside = 0;
        for ((column, region), value) in &self.cells {
            let address = region.saturating_mul(huge);
            let at = rows.partition_point(|row| row.start <= address).checked_sub(1);
            match at.filter(|&at| address < rows[at].end).and_then(|at| u32::try_from(at).ok()) {
                Some(row) => add(cells.entry((*column, row)).or_default(), *value),
                None => outside += u64::from(value.0),
            }
        }
        if cells.is_empty() {
            return None;
        }
        let cells = cells.into_iter();
        let cells =
            cells.map(|((column, row), (heat, huge))| HeatCell(column, row, heat, huge)).collect();
        let first = self.columns.first().map(|column| column.0);
        let ends = self.columns.iter().map(|column| column.1);
        // A column without samples up to the end, so that all plots show the same time.
        let rest = self.end().filter(|last| *last < end).map(|_| end);
        let edges_seconds = first.into_iter().chain(ends).chain(rest).collect();
        let marks = Vec::new();
        Some((HeatMap { edges_seconds, areas, rows, cells, marks }, outside))
    }
}

fn add(to: &mut (u32, u32), value: (u32, u32)) {
    to.0 = to.0.saturating_add(value.0);
    to.1 = to.1.saturating_add(value.1);
}

/// Index of the range that holds the middle of a region, or else part of it.
pub(super) fn index_of(ranges: &[NamedRange], region: u64, huge: u64) -> Option<usize> {
    let start = region.saturating_mul(huge);
    let holds = |address: u64| {
        let at = ranges.partition_point(|range| range.start <= address).checked_sub(1)?;
        (address < ranges[at].end).then_some(at)
    };
    let first_inside = || {
        let at = ranges.partition_point(|range| range.end <= start);
        ranges.get(at).filter(|range| range.start < start.saturating_add(huge)).map(|_| at)
    };
    holds(start.saturating_add(huge / 2)).or_else(first_inside)
}

/// Regions with heat in a range, from the first to the last.
#[derive(Debug)]
struct Span {
    name: String,
    first: u64,
    last: u64,
    heat: u64,
}

/// The hottest spans, in order of address.
fn spans(regions: &BTreeMap<u64, u64>, ranges: &[NamedRange], huge: u64) -> Vec<Span> {
    let mut spans: Vec<(Option<usize>, Span)> = Vec::new();
    for (&region, &heat) in regions {
        let area = index_of(ranges, region, huge);
        match spans.last_mut() {
            Some((last, span))
                if *last == area && (area.is_some() || region - span.last <= NEAR) =>
            {
                span.last = region;
                span.heat += heat;
            }
            _ => {
                let name = area.map_or(UNKNOWN_MAPPING, |at| &ranges[at].name).to_owned();
                spans.push((area, Span { name, first: region, last: region, heat }));
            }
        }
    }
    let mut spans: Vec<Span> = spans.into_iter().map(|(_, span)| span).collect();
    spans.sort_by_key(|span| std::cmp::Reverse(span.heat));
    spans.truncate(MAX_AREAS);
    spans.sort_by_key(|span| span.first);
    spans
}

/// Address ranges and rows of the spans. Larger spans have more rows, but not in proportion, so
/// that small hot ones remain visible.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn rows(spans: &[Span], huge: u64) -> (Vec<Area>, Vec<HeatRow>) {
    let weight = |span: &Span| ((span.last - span.first + 1) as f64).sqrt();
    let all: f64 = spans.iter().map(weight).sum();
    let (mut areas, mut rows) = (Vec::new(), Vec::new());
    for span in spans {
        let count = span.last - span.first + 1;
        let share = (ROWS as f64 * weight(span) / all).ceil() as u64;
        let per_row = count.div_ceil(share.clamp(1, count));
        let end = span.last.saturating_add(1).saturating_mul(huge);
        let area = areas.len();
        areas.push(Area { name: span.name.clone(), start: span.first.saturating_mul(huge), end });
        let mut region = span.first;
        while region <= span.last {
            let next = region.saturating_add(per_row);
            let start = region.saturating_mul(huge);
            rows.push(HeatRow { area, start, end: next.saturating_mul(huge).min(end) });
            if next == region {
                break;
            }
            region = next;
        }
    }
    (areas, rows)
}

#[cfg(test)]
mod tests {
    use hugepilot_units::Region;

    use super::*;

    const HUGE: u64 = 2 << 20;

    fn range(first: u64, last: u64, name: &str) -> NamedRange {
        NamedRange { start: first * HUGE, end: (last + 1) * HUGE, name: name.to_owned() }
    }

    fn slot(at: usize) -> Slot {
        Slot { end: at as f64 + 1.0, length: 1.0 }
    }

    #[test]
    fn all_heat_is_in_the_map_or_counted_outside() {
        let mut track = HeatTrack::default();
        let ranges = [range(10, 1000, "a"), range(1001, 1002, "b")];
        let mut sum = 0;
        for at in 0..1000_usize {
            let region =
                |number: u64, samples, huge| HotRegion(Region::new(number), samples, 1, Some(huge));
            let moving = 10 + at as u64 / 2;
            track.add(slot(at), &[region(moving, 5, false), region(1002, 3, true)]);
            sum += 4 + 2;
        }
        assert_eq!(track.total(), sum);
        let (map, outside) = track.map(&ranges, HUGE, 0.0).unwrap();
        let heat: u64 = map.cells.iter().map(|cell| u64::from(cell.2)).sum();
        let huge: u64 = map.cells.iter().map(|cell| u64::from(cell.3)).sum();
        assert_eq!((heat + outside, huge), (sum, 2000));
        assert!(map.edges_seconds.len() <= MAX_COLUMNS + 1 && map.rows.len() <= ROWS + MAX_AREAS);
        assert_eq!((map.edges_seconds[0], *map.edges_seconds.last().unwrap()), (0.0, 1000.0));
        assert!(map.edges_seconds.is_sorted());
        let names: Vec<&str> = map.areas.iter().map(|area| &*area.name).collect();
        assert_eq!(names, ["a", "b"]);
        // Heat of the first second is in the row of the region that had it.
        let first = map.cells.iter().find(|cell| cell.0 == 0).unwrap();
        let row = map.rows[first.1 as usize];
        assert!(row.start <= 10 * HUGE && 10 * HUGE < row.end);
        assert_eq!(track.by_name(&ranges, HUGE), [("a".to_owned(), 4000), ("b".to_owned(), 2000)]);
    }

    #[test]
    fn heat_outside_known_mappings_is_shown() {
        let mut track = HeatTrack::default();
        track.add(slot(0), &[HotRegion(Region::new(77), 9, 0, None)]);
        let (map, outside) = track.map(&[], HUGE, 3.0).unwrap();
        assert_eq!((map.areas[0].name.as_str(), outside), (UNKNOWN_MAPPING, 0));
        assert_eq!(map.cells, [HeatCell(0, 0, 9, 0)]);
        assert_eq!(map.edges_seconds, [0.0, 1.0, 3.0], "later there were no samples");
        assert_eq!(HeatTrack::default().map(&[], HUGE, 3.0), None);
    }

    #[test]
    fn the_extreme_address_space_is_no_obstacle() {
        let mut track = HeatTrack::default();
        for number in [0, u64::MAX / HUGE, u64::MAX] {
            track.add(slot(0), &[HotRegion(Region::new(number), 1, 0, None)]);
        }
        let (map, outside) = track.map(&[range(0, 5, "x")], HUGE, 0.0).unwrap();
        let heat: u64 = map.cells.iter().map(|cell| u64::from(cell.2)).sum();
        assert_eq!(heat + outside, 3);
    }
}
