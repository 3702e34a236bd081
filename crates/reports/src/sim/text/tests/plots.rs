use hugepilot_render::back_end;

use super::*;

/// Pages of seven mappings, and pages used once.
#[test]
fn the_scatter_plot_has_a_circle_for_each_cell() {
    let cell = |distance, pages| PageCell { distance, region_distance: Some(2), pages };
    let mapping = |at: u64| MappingReuse {
        process: 0,
        mapping: format!("map-{at}"),
        ordinal: 0,
        kinds: Vec::new(),
        distances: Vec::new(),
        page_cells: vec![cell(Some(1 << (at + 8)), 512 * (at + 1)), cell(None, 9)],
    };
    let report = SimReuseReport {
        input: input_of(),
        per_mapping: (0..7).map(mapping).collect(),
        ..SimReuseReport::default()
    };
    let all = report.document();
    let svg = back_end::svg(&all);
    assert_eq!(svg.matches("<circle").count(), 7, "{svg}");
    // Those of 2^10 are at the border.
    assert_eq!(svg.matches("class=\"mark\" d=\"M").count(), 1, "{svg}");
    for name in ["map-4", "other mappings", ">16,384<"] {
        assert!(svg.contains(name), "{name}: {svg}");
    }
    assert!(!svg.contains("map-5"), "{svg}");
    let html = back_end::html(&all);
    assert!(html.contains("\"type\":\"scatter\"") && html.contains("[8.0,1.0,512]"), "{html}");
    let csv = back_end::csv(&all);
    assert!(csv.contains(",9,map-1 1,1024,count"), "{csv}");
    let text = printed(&report);
    let blanks = " ".repeat(3 * 8);
    assert!(text.contains(&format!("\n   │{blanks}█████████████████████\n1  │\n")), "{text}");
    assert!(text.contains("\n    1           16          256         4,096\n"), "{text}");
}
