//! Golden of the conditions for experiments.

use hugepilot_testkit::assert_golden;
use hugepilot_units::{Bytes, Share};

use super::*;
use crate::lab::weather::{
    BusyProcess, FRAGMENT_SCHEMA, FragmentKind, Obtainable, PAGE_CACHE_SCHEMA, PRESSURE_SCHEMA,
    QUIET_SCHEMA, QuietLimits, WARM_SCHEMA, WeatherWarning,
};

fn pressure(kind: PressureKind) -> PressureReport {
    PressureReport {
        schema: PRESSURE_SCHEMA.to_owned(),
        kind,
        requested_bytes: Bytes::gib(3),
        left_bytes: Bytes::mib(3100),
        held_bytes: Bytes::gib(10),
        footprint_bytes: None,
        node: None,
        step_bytes: Bytes::mib(64),
        seconds: 12.34,
        shortfall: None,
        warnings: Vec::new(),
    }
}

fn fragment() -> FragmentReport {
    FragmentReport {
        schema: FRAGMENT_SCHEMA.to_owned(),
        kind: FragmentKind::Unmovable,
        of: FragmentBase::Machine,
        requested_ratio: Share::percent(90.0),
        reached_ratio: 0.8512,
        fragmented_blocks: 10_258,
        kept_pages: 10_260,
        base_blocks: 12_052,
        block_bytes: Bytes::mib(2),
        free_huge_pages_before: 9000,
        free_huge_pages: 3,
        free_blocks_by_order: vec![9, 8, 7],
        obtainable: Some(Obtainable { huge_pages: 17, refused: true }),
        compactions: 2,
        seconds: 47.0,
        shortfall: Some(Shortfall::NoFreeBlocks),
    }
}

fn quiet() -> QuietReport {
    let activity = Activity {
        steal_ratio: Some(0.002),
        load_per_processor: Some(1.5),
        other_busy_processors: Some(0.75),
        khugepaged_collapses: Some(0),
        khugepaged_scans: Some(0),
        damon_contexts: 1,
        governor: Some("powersave".to_owned()),
        ..Activity::default()
    };
    QuietReport {
        schema: QUIET_SCHEMA.to_owned(),
        seconds: 2.0,
        processors: 2,
        quiet: false,
        activity,
        limits: QuietLimits::DEFAULT,
        busiest: vec![BusyProcess { pid: 4711, name: "cc1".to_owned(), busy_processors: 0.74 }],
        reasons: vec![
            Noise::Load,
            Noise::OtherWork,
            Noise::Damon,
            Noise::Governor { governor: "powersave".to_owned() },
        ],
    }
}

#[test]
fn texts_of_all_conditions() {
    let short = PressureReport {
        node: Some(1),
        shortfall: Some(Shortfall::Unsteady),
        warnings: vec![WeatherWarning::Swap],
        ..pressure(PressureKind::Mlock)
    };
    let free = FragmentReport {
        of: FragmentBase::Free,
        shortfall: None,
        obtainable: Some(Obtainable { huge_pages: 17, refused: false }),
        ..fragment()
    };
    let cached = PageCacheReport {
        schema: PAGE_CACHE_SCHEMA.to_owned(),
        file: None,
        dropped: false,
        requested_bytes: Bytes::gib(4),
        cached_before_bytes: Bytes::ZERO,
        cached_bytes: Bytes::gib(4),
        dirty_bytes: Bytes::ZERO,
        seconds: 1.5,
    };
    let file = Some("input.sg".to_owned());
    let dropped = PageCacheReport { file, dropped: true, ..cached.clone() };
    let warm = WarmReport {
        schema: WARM_SCHEMA.to_owned(),
        requested_bytes: Bytes::gib(8),
        touched_bytes: Bytes::gib(8),
        first_touch_seconds: 9.0,
        second_touch_seconds: 2.0,
        first_over_second_ratio: 4.5,
    };
    let texts = [
        pressure_text(&pressure(PressureKind::Mlock)),
        pressure_text(&pressure(PressureKind::Cgroup)),
        pressure_text(&pressure(PressureKind::PageCache)),
        pressure_text(&short),
        fragment_text(&fragment()),
        fragment_text(&free),
        page_cache_text(&cached),
        page_cache_text(&dropped),
        warm_text(&warm),
        quiet_text(&quiet(), Width::UNLIMITED),
    ];
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/lab-weather.txt");
    assert_golden(golden, &texts.join("\n"));
    let line = short.line().unwrap();
    assert!(line.contains("\"text\":\"swap is on") && line.contains("\"help\":[\"a larger"));
}
