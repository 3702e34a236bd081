//! Censuses of huge pages in recordings.

use std::collections::BTreeMap;

use hugepilot_policy::debloat::round::{SeenProcess, SplitOutcomes, SplitRound, SplitRow};
use hugepilot_policy::round::{Goal, Header};
use hugepilot_policy::{DebloatPolicy, Order, Priority};
use hugepilot_record::{
    BloatedPage, Census, Pid, ProcessId, Skips, SplitAct, SplitOutcome, SplitPlan,
};
use hugepilot_recording::{Line, MappingPages, PageSlice, Timeline, Window, recording_report};
use hugepilot_render::model::{Block, Chart};
use hugepilot_render::{Width, back_end};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};

use crate::example;

const SIZES: PageSizes = PageSizes::X86_64;

/// A round of a process with 400, 100 and 300 zero-filled base pages in regions 10, 11 and 20.
fn round(dry_run: bool) -> SplitRound {
    let page = |(region, zeros): (u64, u32)| BloatedPage {
        region: Region::new(region),
        zero_pages: zeros,
        first_zero_page: 0,
        table_lines: 64,
    };
    let census = Census {
        process: ProcessId { pid: Pid(7), start_ticks: 1, command: "solve".to_owned() },
        sizes: SIZES,
        bloated: [(10, 400), (11, 100), (20, 300)].map(page).to_vec(),
        huge_pages: 8,
        read_pages: 4,
        unread_pages: 0,
        stranded: None,
        skipped: Skips::default(),
        took: Nanos::ZERO,
    };
    let act =
        |region, outcome| SplitAct { region: Region::new(region), took: Nanos::ZERO, outcome };
    let acts =
        vec![act(10, SplitOutcome::Freed(Bytes::kib(1600))), act(20, SplitOutcome::StillHuge)];
    let outcome = SplitOutcomes { acts, ended: None };
    SplitRound {
        time: Nanos::seconds(101),
        rows: vec![SplitRow {
            seen: SeenProcess {
                census,
                stalls: None,
                priority: Priority::Normal,
                weight: 1.0,
                past: BTreeMap::new(),
            },
            outcome: if dry_run { SplitOutcomes::default() } else { outcome },
        }],
        wanted: Bytes::mib(1),
        plan: SplitPlan::default(),
        dry_run,
        stopped: None,
    }
}

/// Names and values of the bars, points of the curve, and the text of the report.
type Shown = (Vec<(String, f64)>, Vec<(f64, f64)>, String);

fn shown(dry_run: bool) -> Shown {
    let mapping = |first: u64, name: &str| MappingPages {
        range: AddrRange::at(VirtAddr::new(first << 21), Bytes::mib(8)),
        name: name.to_owned(),
        resident_bytes: 8 << 20,
        thp_bytes: 8 << 20,
        hugetlb_bytes: 0,
    };
    let mappings = vec![mapping(9, "[heap]"), mapping(19, "[anon]")];
    let header = Header::of(Goal::Debloat(DebloatPolicy::new(Order::Exact)));
    let mut timeline = Timeline::new(example::head(), Window::default());
    timeline.add(Line::Pages(PageSlice { time: Nanos::seconds(100), pid: Pid(7), mappings }));
    timeline.add(Line::Journal(serde_json::to_value(header).unwrap()));
    timeline.add(Line::Journal(serde_json::to_value(round(dry_run)).unwrap()));
    let report = recording_report(&timeline, "x.rec");
    let section = report.sections.iter().find(|one| one.title == "Census of huge pages").unwrap();
    let charts = section.blocks.iter().filter_map(|block| match block {
        Block::Plot(plot) => Some(&plot.chart),
        _ => None,
    });
    let charts: Vec<&Chart> = charts.collect();
    let [Chart::Bars(bars), Chart::Curves(curves)] = charts[..] else { panic!("{charts:?}") };
    let bars = bars.bars.iter().map(|bar| (bar.name.clone(), bar.value.unwrap()));
    let text = back_end::text(&report, Width::UNLIMITED);
    (bars.collect(), curves.curves[0].points.clone(), text)
}

#[test]
fn bloat_is_shown_by_mapping_before_and_after_the_splits() {
    let (bars, _, text) = shown(false);
    let wanted = [
        ("[heap] at 0x1200000, before", 500.0),
        ("[heap] at 0x1200000, after", 100.0),
        ("[anon] at 0x2600000, before", 300.0),
        ("[anon] at 0x2600000, after", 300.0),
    ];
    assert_eq!(bars, wanted.map(|(name, pages)| (name.to_owned(), pages * 4096.0)));
    assert!(text.contains("Mappings, the most bloat first"), "{text}");
    let (bars, ..) = shown(true);
    let names: Vec<&str> = bars.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["[heap] at 0x1200000", "[anon] at 0x2600000"]);
}

#[test]
fn the_density_is_that_of_the_huge_pages_that_were_read() {
    let (_, points, _) = shown(true);
    let wanted = [(0.0, 0.25), (100.0, 0.5), (300.0, 0.75), (400.0, 1.0)];
    let mut wanted = wanted.map(|(zeros, share)| (zeros / 512.0, share)).to_vec();
    wanted.push((1.0, 1.0));
    let is_near = |(a, b): (&(f64, f64), &(f64, f64))| (a.0 - b.0).abs() < 1e-4 && a.1 == b.1;
    assert!(points.len() == 5 && points.iter().zip(&wanted).all(is_near), "{points:?}");
}
