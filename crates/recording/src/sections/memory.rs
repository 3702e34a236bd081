//! Memory of a process by page kind.

use hugepilot_render::model::{Cell, Plot, Section, Table, Unit};
use hugepilot_render::table::counted;
use hugepilot_units::{Bytes, Nanos};

use super::process::{MAX_POINTS, time_plot};
use crate::MappingPages;
use crate::memory::Memory;
use crate::timeline::{ProcessTrack, Timeline};

/// Plot of the page kinds over time, and the mappings at the end.
pub(super) fn section(timeline: &Timeline, process: &ProcessTrack, title: String) -> Section {
    let names = ["base pages", "THP", "hugetlb"];
    let memory = Memory::of(timeline, process);
    let track = memory.drawn(MAX_POINTS);
    if track.slots().is_empty() {
        return Section::default();
    }
    let columns = [0, 1, 2].map(|at| track.column(at));
    let lines: Vec<(&str, &[f64])> = names.into_iter().zip(columns).collect();
    let chart = time_plot(&track, &lines, Unit::Bytes, true, timeline);
    let text = format!(
        "Resident memory on pages of each kind, on top of each other.{}{}",
        reads(&memory, timeline.values(process, "thp").map(|(end, _)| end).collect()),
        stranded(timeline, process)
    );
    let section =
        Section::new(title, "").with(Plot { title: "Resident memory".to_owned(), text, chart });
    let columns = ["mapping", "address", "resident", "THP", "hugetlb", "on huge pages"];
    let mut table = Table::new("Mappings at the end, the largest first", columns);
    let mut mappings =
        process.last_pages.as_ref().map_or(&[][..], |pages| &pages.mappings).to_vec();
    mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.resident_bytes));
    // A huge page would not help a smaller one.
    let is_small = |mapping: &&MappingPages| mapping.resident_bytes < Bytes::mib(1).get();
    for mapping in mappings.iter().take(30).filter(|mapping| !is_small(mapping)) {
        let bytes = |value: u64| Cell::of(Some(value as f64), Unit::Bytes, "");
        let huge = mapping.thp_bytes.saturating_add(mapping.hugetlb_bytes) as f64;
        let share = huge / mapping.resident_bytes as f64;
        table.row(vec![
            mapping.name.clone().into(),
            format!("{:#x}", mapping.range.start.get()).into(),
            bytes(mapping.resident_bytes),
            bytes(mapping.thp_bytes),
            bytes(mapping.hugetlb_bytes),
            Cell::of(Some(share), Unit::Ratio, "nothing is resident"),
        ]);
    }
    let rest = mappings.len() - table.rows.len();
    if rest > 0 {
        let resident =
            mappings[table.rows.len()..].iter().map(|one| one.resident_bytes).sum::<u64>();
        let name = counted(rest as u64, "smaller mapping", "smaller mappings");
        let resident = Cell::of(Some(resident as f64), Unit::Bytes, "");
        let mut row: Vec<Cell> = vec![name.into(), "".into(), resident];
        row.resize_with(table.columns.len(), || "".into());
        table.row(row);
    }
    if table.rows.is_empty() { section } else { section.with(table) }
}

/// Least memory that large pages hold without a use of which the report speaks.
const MUCH_STRANDED: f64 = (4 << 20) as f64;

/// States how much memory large pages held that the process did not map, at the end.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn stranded(timeline: &Timeline, process: &ProcessTrack) -> String {
    let end = timeline.values(process, "stranded").last().map(|(_, bytes)| bytes);
    let Some(bytes) = end.filter(|bytes| *bytes >= MUCH_STRANDED) else { return String::new() };
    format!(
        " At the end, large pages held {} more that the process did not map; hugepilot debloat -p \
         {} frees such memory at no cost to the program.",
        Bytes::new(bytes as u64),
        process.pid
    )
}

/// States how often the kinds of pages were read, by the seconds of the reads.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn reads(memory: &Memory, at: Vec<f64>) -> String {
    let [first, .., last] = at[..] else { return String::new() };
    let tenths = 10.0 * (last - first) / (at.len() - 1) as f64;
    let each = Nanos::millis(tenths.max(0.0).round() as u64 * 100);
    if each == Nanos::ZERO {
        return String::new();
    }
    let of = if memory.is_continuous() {
        "The total was read at each slice, the part on huge pages"
    } else {
        "The kinds were read"
    };
    format!(
        " {of} {} times, every {each} on average. Between two reads, the plot has the earlier \
         value.",
        at.len()
    )
}
