mod budgets; // too small for a huge page
mod plots;

use hugepilot_record::trace::TraceWarning;
use hugepilot_render::back_end;
use hugepilot_testkit::assert_golden;
use hugepilot_units::Bytes;

use super::*;
use crate::sim::{
    CostReport, DistanceBucket, KindOfReuse, KindShare, MappingReuse, MissPoint, POLICY_SCHEMA,
    PageCell, PageSizeCounts, PolicyRun, ProcessRun, REUSE_SCHEMA, ReuseBucket, ReuseLevel,
    SimCounts, SimPolicyReport, SimReuseReport, SimUtilityReport, SourceCut, SourceWarning,
    TLB_SCHEMA, UTILITY_SCHEMA, UtilityPoint,
};

/// The text of the command.
fn printed(report: &impl Document) -> String {
    hugepilot_render::command_text(report, Width::UNLIMITED)
}

/// Compares the text of the command with its golden; the document of its JSON is the same.
fn assert_report(golden: &str, report: &impl Document, schema: &str) {
    assert_golden(std::path::Path::new("testdata").join(golden), &printed(report));
    let mut json = serde_json::to_value(report).unwrap();
    json["schema"] = schema.into();
    let shown = crate::result_report(&json.to_string(), "x.json").unwrap();
    assert_eq!(shown.sections, report.document().sections);
    assert!(shown.title.ends_with(": x.json"), "{}", shown.title);
}

fn counts_of(walks: u64) -> SimCounts {
    SimCounts {
        accesses: 1_000_000,
        l1_misses: 2 * walks,
        l2_misses: walks,
        walks,
        walk_ratio: walks as f64 / 1e6,
        walk_references: walks + walks / 4,
    }
}

fn input_of() -> SimInput {
    SimInput {
        sources: vec!["./solve input.txt".to_owned()],
        accesses: 1_000_000,
        stores: 200_000,
        folded: 1234,
        threads: 2,
        visits: 500_000,
        footprint_bytes: Bytes::mib(300),
        regions: 151,
        complete: true,
        seconds: 0.5,
        ..SimInput::default()
    }
}

fn cpu_of() -> SimCpu {
    SimCpu {
        preset: "zen5".to_owned(),
        cpu: "AMD Zen 5".to_owned(),
        source: "CPUID".to_owned(),
        assumed: vec!["walk caches".to_owned()],
        coalescing: true,
        nested: false,
    }
}

fn candidate(index: u64) -> Candidate {
    let mapping = "[heap]".to_owned();
    let mapping_bytes = Bytes::mib(1024);
    let inside_index = Some(index);
    let frequency = 200 - index;
    Candidate { process: 0, mapping, ordinal: 0, index, mapping_bytes, inside_index, frequency }
}

fn mapping(number: u64) -> MappingCounts {
    MappingCounts {
        process: u16::from(number > 8),
        mapping: "[anon]".to_owned(),
        ordinal: number,
        touched_bytes: Bytes::mib(20),
        counts: counts_of(100_000 / (number + 1)),
    }
}

#[test]
fn tlb() {
    let machine = |page_bytes, walks| SimMachine {
        page_bytes,
        counts: counts_of(walks),
        per_page_size: vec![PageSizeCounts { page_bytes, counts: counts_of(walks) }],
        per_mapping: (0..14).map(mapping).collect(),
        candidates: (0..2).map(candidate).collect(),
    };
    let report = SimTlbReport {
        input: input_of(),
        cpu: cpu_of(),
        machines: vec![machine(Bytes::kib(4), 400_000), machine(Bytes::mib(2), 1000)],
        ..SimTlbReport::default()
    };
    assert_report("sim-tlb.txt", &report, TLB_SCHEMA);
}

#[test]
fn one_access_is_singular() {
    let input =
        SimInput { accesses: 1, stores: 1, threads: 1, regions: 1, folded: 1, ..input_of() };
    let text = printed(&SimTlbReport { input, ..SimTlbReport::default() });
    assert!(text.contains(": 1 access of 1 thread, 1 store; 300MiB in 1 region; "), "{text}");
    assert!(text.contains("\nNot simulated: 1 folded access.\n"), "{text}");
}

/// A trace names its mappings, and anybody may have written it.
#[test]
fn a_mapping_name_controls_no_terminal() {
    let hostile = "a\u{1b}]0;x\u{7}\nb".to_owned();
    let machine = SimMachine {
        page_bytes: Bytes::kib(4),
        counts: counts_of(1000),
        per_page_size: Vec::new(),
        per_mapping: vec![MappingCounts { mapping: hostile.clone(), ..mapping(0) }],
        candidates: vec![Candidate { mapping: hostile.clone(), ..candidate(0) }],
    };
    let report = SimTlbReport { machines: vec![machine], ..SimTlbReport::default() };
    let text = printed(&report);
    let safe = "a\\u{1b}]0;x\\u{7}\\u{a}b";
    assert_eq!(text.matches(safe).count(), 2, "{text:?}");
    let per_mapping = vec![MappingReuse {
        process: 0,
        mapping: hostile,
        ordinal: 0,
        kinds: Vec::new(),
        distances: Vec::new(),
        page_cells: Vec::new(),
    }];
    let report = SimReuseReport { per_mapping, ..SimReuseReport::default() };
    let text = text + &printed(&report);
    assert_eq!(text.matches(safe).count(), 3, "{text:?}");
    assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
}

/// A stored trace that is cut.
#[test]
fn a_cut_trace_is_named_with_its_byte() {
    let cut = vec![SourceCut { source: "solve.trace".to_owned(), byte: 4711 }];
    let input = SimInput { complete: false, cut, ..input_of() };
    let report = SimTlbReport { input, cpu: cpu_of(), ..SimTlbReport::default() };
    let text = printed(&report);
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("warning: ")).collect();
    let expected =
        "warning: solve.trace is cut at byte 4711; only the accesses before it are simulated";
    assert_eq!(warnings, [expected]);
}

/// A simulation states of a program what `trace` states.
#[test]
fn observations_about_a_source_are_warnings() {
    let warning = |warning| SourceWarning { source: "./solve".to_owned(), warning };
    let (accesses, most_bytes) = (1_234_567, Bytes::mib(64));
    let warnings = vec![
        warning(TraceWarning::Forked { children: 1 }),
        warning(TraceWarning::Failed { status: 3 }),
        warning(TraceWarning::TooManyMappings { accesses, most_bytes }),
    ];
    let input = SimInput { warnings, ..input_of() };
    let report = SimTlbReport { input, cpu: cpu_of(), ..SimTlbReport::default() };
    let text = printed(&report);
    let expected = "warning: ./solve: the program forked 1 child, which is not traced\n\
                    help: trace the child itself if it does the work\n\
                    warning: ./solve: the program exited with status 3\n\
                    warning: ./solve: the simulation ends after access 1,234,567: the mappings of \
                    the program and its former ones need more than 64MiB of memory\n";
    assert!(text.contains(expected), "{text}");
    let json: Value = serde_json::from_str(&hugepilot_render::json(&report)).unwrap();
    let second = &json["input"]["warnings"][1];
    let fields = ["source", "code", "status", "text"].map(|field| second[field].to_string());
    let text = "\"./solve: the program exited with status 3\"";
    assert_eq!(fields, ["\"./solve\"", "\"failed\"", "3", text]);
}

fn run(policy: &str, budget: f64, avoided: f64) -> PolicyRun {
    PolicyRun {
        policy: policy.to_owned(),
        budget_ratio: Some(budget),
        counts: counts_of((400_000.0 * (1.0 - avoided)) as u64),
        promotions: 12,
        demotions: 0,
        giant_promotions: 0,
        huge_ratio: budget,
        walks_avoided_ratio: avoided,
        speedup: 1.0 + avoided / 3.0,
        ..PolicyRun::default()
    }
}

#[test]
fn policy() {
    let report = SimPolicyReport {
        budget_of_bytes: Some(Bytes::gib(1)),
        input: SimInput { complete: false, ..input_of() },
        cpu: cpu_of(),
        interval: 2_000_000,
        rounds: 3,
        cost: CostReport { access: 1.0, visit: 20.0, l2: 7.0, reference: 20.0 },
        base: run("never", 0.0, 0.0),
        run: run("pcc", 0.04, 0.7),
        ideal: run("ideal", 1.0, 0.98),
        candidates: vec![candidate(3)],
        ..SimPolicyReport::default()
    };
    assert_report("sim-policy.txt", &report, POLICY_SCHEMA);

    let process = |process: u16| ProcessRun {
        process,
        accesses: 1000,
        base_walks: 100,
        walks: 50,
        ideal_walks: 1,
        regions: 40,
        huge_regions: 2,
    };
    let sources = vec!["pr".to_owned(), "sssp".to_owned()];
    let input = SimInput { sources, ..input_of() };
    let processes = vec![process(0), process(1)];
    let text = printed(&SimPolicyReport { input, processes, ..report });
    let line = text.lines().find(|line| line.starts_with("2  ")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells, ["2", "10.0", "%", "5.0", "%", "0.1", "%", "2", "40", "sssp"]);
}

#[test]
fn a_budget_of_a_program_is_a_share_of_the_memory_so_far() {
    let of = |budget_ratio, budget_of_bytes| {
        let run = PolicyRun { budget_ratio, ..PolicyRun::default() };
        let report = SimPolicyReport { rounds: 9, run, budget_of_bytes, ..Default::default() };
        printed(&report).contains("note: a budget is a share")
    };
    let all = Some(Bytes::gib(1));
    assert_eq!([of(Some(0.1), None), of(Some(0.1), all), of(None, None)], [true, false, false]);
}

#[test]
fn few_decisions_have_a_warning() {
    let warned = |policy: &str, rounds, interval| {
        let run = run(policy, 0.04, 0.7);
        let input = input_of();
        let budget_of_bytes = Some(Bytes::gib(1));
        let report = SimPolicyReport {
            input,
            interval,
            rounds,
            budget_of_bytes,
            run,
            ..SimPolicyReport::default()
        };
        let text = printed(&report);
        let lines =
            text.lines().filter(|line| ["warn", "help"].contains(&&line[..line.len().min(4)]));
        lines.collect::<Vec<_>>().join("; ")
    };
    let help = "--interval; help: decide more often: --interval 100000";
    assert_eq!(
        warned("pcc", 0, 2_000_000),
        format!("warning: no decision: the accesses are fewer than {help}")
    );
    assert_eq!(
        warned("pcc", 1, 1_000_000),
        format!("warning: only 1 decision: the accesses are fewer than twice {help}")
    );
    assert_eq!(
        warned("hawkeye", 2, 400_000),
        format!("warning: only 2 decisions: the accesses are fewer than three times {help}")
    );
    assert_eq!(warned("pcc", 3, 333_333), "");
    let longer = "--interval; help: simulate a larger input, which makes 6000000 accesses or more";
    let (most, short) = (SimInput { accesses: 120, ..input_of() }, SimPolicyReport::default());
    let report = SimPolicyReport { input: most, interval: 2_000_000, ..short };
    let text = printed(&report);
    assert!(text.contains(&longer.replace("; ", "\n")), "{text}");
    assert_eq!(warned("heat", 2, 1000), "", "it ended for another reason");
}

/// A preset may be a file of another user.
#[test]
fn a_preset_controls_no_terminal() {
    let hostile = "a\u{1b}[2J\nb".to_owned();
    let assumed = vec![hostile.clone()];
    let cpu = SimCpu { preset: hostile.clone(), cpu: hostile, assumed, ..SimCpu::default() };
    let text = printed(&SimTlbReport { cpu, ..SimTlbReport::default() });
    let safe = "a\\u{1b}[2J\\u{a}b";
    assert!(text.contains(&format!("\nTLBs of {safe} ({safe}). Assumed: {safe}.\n")), "{text}");
}

#[test]
fn utility() {
    let point = |budget: f64| UtilityPoint {
        budget_ratio: budget,
        runs: vec![run("pcc", budget, budget.sqrt()), run("linux", budget, budget * 0.98)],
    };
    let report = SimUtilityReport {
        budget_of_bytes: Some(Bytes::gib(1)),
        input: input_of(),
        cpu: cpu_of(),
        cost: CostReport { access: 1.0, visit: 20.0, l2: 7.0, reference: 20.0 },
        base: run("never", 0.0, 0.0),
        ideal: run("ideal", 1.0, 0.98),
        interval: 300_000,
        points: vec![point(0.0), point(0.04), point(0.64)],
        ..SimUtilityReport::default()
    };
    assert_report("sim-utility.txt", &report, UTILITY_SCHEMA);
    let warned = |interval| {
        let report = SimUtilityReport { interval, ..report.clone() };
        let text = printed(&report);
        text.lines().find_map(|line| line.strip_prefix("warning: ")).map(str::to_owned)
    };
    let policies = "decisions of policies that decide once in --interval: the accesses are fewer \
                    than";
    assert_eq!(warned(333_333), None);
    assert_eq!(warned(333_334), Some(format!("few {policies} three times --interval")));
    assert_eq!(warned(1_000_001), Some(format!("no {policies} --interval")));
    let names = vec!["nosuch".to_owned()];
    let report = SimUtilityReport { prefix_not_found: names, ..report };
    let text = printed(&report);
    let warning = "warning: no mapping has the name nosuch; policy prefix promotes nothing there\n\
                   help: list the mappings: hugepilot sim tlb --json\n";
    assert!(text.contains(warning), "{text}");
}

#[test]
fn policies_without_promotions_have_a_sentence_and_no_plot() {
    let idle = |policy: &str| PolicyRun { promotions: 0, ..run(policy, 0.04, 0.0) };
    let report = |runs| SimUtilityReport {
        input: input_of(),
        cpu: cpu_of(),
        points: vec![UtilityPoint { budget_ratio: 0.04, runs }],
        ..SimUtilityReport::default()
    };
    let some = printed(&report(vec![idle("pcc"), run("linux", 0.04, 0.5)]));
    assert!(some.contains("\nnote: no region is promoted by pcc\n"), "{some}");
    assert_eq!(some.matches("\nWalks avoided\nlinux  ").count(), 1, "{some}");
    let none = report(vec![idle("pcc"), idle("linux")]);
    let all = none.document();
    let sentence = "no region is promoted by pcc, linux";
    let texts = [printed(&none), back_end::html(&all), back_end::markdown(&all)];
    for text in texts {
        assert_eq!(text.matches(sentence).count(), 1, "{text}");
        assert!(!text.contains("<figure") && !text.contains("Walks avoided"), "{text}");
    }
}

#[test]
fn reuse() {
    let level = |page_bytes, distance| ReuseLevel {
        page_bytes,
        first_uses: 1000.0,
        histogram: vec![
            ReuseBucket { distance: 0, accesses: 600_000.0 },
            ReuseBucket { distance, accesses: 399_000.0 },
        ],
        curve: (0..14)
            .map(|log| (1 << log, if 1 << log <= distance { 0.4 } else { 0.001 }))
            .map(|(entries, miss_ratio)| MissPoint { entries, miss_ratio })
            .collect(),
    };
    let kind = |kind, pages| KindShare { kind, pages, accesses: pages * 10 };
    let bucket = |distance, pages| DistanceBucket {
        distance,
        pages,
        accesses: pages * 10,
        pages_by_region: pages,
        pages_by_giant: pages,
    };
    let cell = |distance, region_distance, pages| PageCell { distance, region_distance, pages };
    let report = SimReuseReport {
        input: input_of(),
        sampled_ratio: 0.01,
        levels: vec![level(Bytes::kib(4), 5000), level(Bytes::mib(2), 20)],
        kinds: vec![kind(KindOfReuse::TlbFriendly, 300), kind(KindOfReuse::Hub, 100)],
        per_mapping: vec![MappingReuse {
            process: 0,
            mapping: "[heap]".to_owned(),
            ordinal: 0,
            kinds: vec![kind(KindOfReuse::Hub, 100), kind(KindOfReuse::LowReuse, 7)],
            distances: vec![bucket(Some(1024), 100), bucket(None, 7)],
            page_cells: vec![cell(Some(1024), Some(64), 100), cell(None, Some(64), 7)],
        }],
        distances: vec![
            bucket(Some(1), 290),
            bucket(Some(512), 10),
            bucket(Some(1024), 90),
            bucket(Some(8_388_608), 3),
            bucket(None, 7),
        ],
        page_cells: vec![
            cell(Some(1), Some(1), 290),
            cell(Some(512), Some(64), 10),
            cell(Some(1024), Some(64), 90),
            cell(Some(8_388_608), Some(4096), 3),
            cell(None, Some(64), 7),
        ],
        ..SimReuseReport::default()
    };
    assert_report("sim-reuse.txt", &report, REUSE_SCHEMA);
}

#[test]
fn presets() {
    let row = |name: &str, assumed| PresetFacts {
        name: name.to_owned(),
        cpu: "Intel Haswell-EP".to_owned(),
        l1: "64 4k, 32 2m, 4 1g".to_owned(),
        l2: "1024 4k+2m".to_owned(),
        assumed,
    };
    assert_golden(
        "testdata/sim-presets.txt",
        &presets_text(&[row("haswell", 0), row("zen5", 3)], Width::UNLIMITED),
    );
}
