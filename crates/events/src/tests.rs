use hugepilot_record::{Cpu, MetricScope};

use super::code::{CACHE, HARDWARE, SOFTWARE};
use super::native::{Native, native};
use super::*;

fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
    Cpu { vendor: vendor.into(), model_name: String::new(), family, model, hypervisor: false }
}

fn cpu_of(design: Design) -> Cpu {
    let (vendor, family, model) = match design {
        Design::IvyBridge => ("GenuineIntel", 6, 62),
        Design::Haswell => ("GenuineIntel", 6, 63),
        Design::Broadwell => ("GenuineIntel", 6, 79),
        Design::Skylake => ("GenuineIntel", 6, 85),
        Design::IceLake => ("GenuineIntel", 6, 106),
        Design::SapphireRapids => ("GenuineIntel", 6, 143),
        Design::GraniteRapids => ("GenuineIntel", 6, 173),
        Design::Zen1 => ("AuthenticAMD", 23, 1),
        Design::Zen2 => ("AuthenticAMD", 23, 0x31),
        Design::Zen3 => ("AuthenticAMD", 25, 1),
        Design::Zen4 => ("AuthenticAMD", 25, 0x11),
        Design::Zen5 => ("AuthenticAMD", 26, 2),
        Design::NeoverseN1 => ("ARM", 8, 0xd0c),
        Design::NeoverseV1 => ("ARM", 8, 0xd40),
        Design::NeoverseN2 => ("ARM", 8, 0xd49),
        Design::NeoverseV2 => ("ARM", 8, 0xd4f),
    };
    cpu(vendor, family, model)
}

fn request(cpu: &Cpu, names: &[&str]) -> Vec<SetOrEvent> {
    names.iter().map(|name| parse(cpu, name).unwrap()).collect()
}

fn config_of(design: Design, metric: &str) -> Option<u64> {
    let cpu = cpu_of(design);
    let resolved = resolve(&cpu, &request(&cpu, &[metric]));
    match &resolved.events.first()?.code {
        EventCode::Fixed { config, .. } => Some(*config),
        EventCode::Devices(_) => None,
    }
}

#[test]
fn every_metric_of_every_design_has_an_event_or_a_cause() {
    for design in Design::ALL {
        assert_eq!(Design::of(&cpu_of(design)), Some(design));
        for metric in METRICS {
            match native(metric.name, Some(design)) {
                Native::Event(_) => {
                    let event = resolve::metric_of(Some(design), metric);
                    let event = event.unwrap_or_else(|missing| panic!("{design:?} {missing:?}"));
                    let is_system = event.metric.scope == MetricScope::System;
                    assert_eq!(event.code.is_system_wide(), is_system, "{design:?} {event:?}");
                }
                Native::Lacks(cause) => assert!(!cause.is_empty()),
            }
        }
    }
}

#[test]
fn lists_are_sorted_without_repetition_and_have_a_source() {
    for design in Design::ALL {
        assert!(design.source().contains("intel/perfmon") || design.source().contains("libpfm4"));
        let names: Vec<&str> = design.events().map(|event| event.name).collect();
        assert!(names.len() > 100, "{design:?}: {}", names.len());
        assert!(names.is_sorted_by(|a, b| a < b), "{design:?}");
        for name in names {
            assert!(design.event(&name.to_lowercase().replace('.', ":")).is_some(), "{name}");
        }
        let names: Vec<&str> = design.memory_events().map(|event| event.name).collect();
        assert_eq!(names.len() > 90, design <= Design::GraniteRapids, "{design:?}");
        assert!(names.is_sorted_by(|a, b| a < b), "{design:?}");
        assert!(names.iter().all(|name| name.starts_with("UNC_M_")), "{design:?}");
    }
}

#[test]
fn clients_have_the_core_events_of_the_server_of_their_design() {
    // Ice Lake, Tiger Lake and Rocket Lake; Comet Lake.
    for model in [125, 126, 140, 141, 167] {
        assert_eq!(Design::of(&cpu("GenuineIntel", 6, model)), Some(Design::IceLake), "{model}");
    }
    for model in [165, 166] {
        assert_eq!(Design::of(&cpu("GenuineIntel", 6, model)), Some(Design::Skylake), "{model}");
    }
    // Alder Lake has cores of two designs.
    assert_eq!(Design::of(&cpu("GenuineIntel", 6, 151)), None);
}

#[test]
fn codes_are_those_of_the_vendors() {
    // From the vendors' manuals, by hand: not from the lists.
    let table = [
        (Design::IvyBridge, "dtlb_load_walk_starts", 0x8108),
        (Design::IvyBridge, "dtlb_load_walk_duration", 0x8408),
        (Design::IvyBridge, "stalls_mem", 0x0600_06a3),
        (Design::IvyBridge, "stalls_l2", 0x0500_05a3),
        (Design::IvyBridge, "stalls_rs", 0x04a2),
        (Design::IvyBridge, "stalls_rob", 0x10a2),
        (Design::Haswell, "dtlb_load_walks", 0x0e08),
        (Design::Broadwell, "dtlb_store_walk_duration", 0x1049),
        (Design::Skylake, "dtlb_load_walk_active", 0x0100_1008),
        (Design::Skylake, "stalls_mem", 0x1400_14a3),
        (Design::IceLake, "stalls_l3", 0x0600_06a3),
        (Design::SapphireRapids, "dtlb_load_walks", 0x0e12),
        (Design::SapphireRapids, "stalls_mem", 0x0500_21a6),
        (Design::GraniteRapids, "stalls_l3", 0x0900_0947),
        (Design::GraniteRapids, "dtlb_store_walk_active", 0x0100_1013),
        (Design::Zen1, "dtlb_walks", 0xf045),
        (Design::Zen5, "dtlb_misses", 0xff45),
        (Design::Zen4, "dtlb_walks_2m", 0x4045),
        (Design::Zen3, "dram_fills", 0x4844),
        (Design::Zen5, "dram_fills", 0x4844),
        (Design::Zen4, "stalls_mem", 0xa2d6),
        (Design::Zen4, "stalls_retire", 0x02d6),
        (Design::Zen5, "backend_stall_slots", 0x1_0000_1ea0),
        (Design::Zen1, "stalls_rs", 0x3faf),
        (Design::Zen2, "stalls_rs", 0x1faf),
        (Design::Zen2, "stalls_rob", 0x20af),
        (Design::Zen3, "stalls_rs", 0x0faf),
        (Design::Zen4, "stalls_rs", 0x0faf),
        (Design::Zen5, "stalls_rs", 0x03af),
        (Design::Zen1, "stalls_store_buffer", 0x04ae),
        (Design::Zen5, "stalls_store_buffer", 0x04ae),
        (Design::Skylake, "dtlb_load_walk_pending", 0x1008),
        (Design::GraniteRapids, "dtlb_load_walk_pending", 0x1012),
        (Design::NeoverseN1, "l2_load_misses", 0x52),
        (Design::NeoverseV1, "stalls_mem", 0x4005),
        (Design::NeoverseN1, "dtlb_walks", 0x34),
        (Design::NeoverseV2, "dtlb_misses", 0x05),
    ];
    for (design, metric, config) in table {
        assert_eq!(config_of(design, metric), Some(config), "{design:?} {metric}");
    }
}

#[test]
fn walk_durations_and_active_cycles_exclude_each_other() {
    for design in Design::ALL {
        let duration = config_of(design, "dtlb_load_walk_duration");
        let active = config_of(design, "dtlb_load_walk_active");
        let is_intel = design <= Design::GraniteRapids;
        assert_eq!(duration.is_some() != active.is_some(), is_intel, "{design:?}");
    }
}

#[test]
fn absent_walk_metrics_name_the_quantity_and_its_substitute() {
    let cause = |design, metric| match native(metric, Some(design)) {
        Native::Lacks(cause) => cause,
        Native::Event(event) => panic!("{event}"),
    };
    for design in [Design::Zen3, Design::NeoverseV1] {
        let starts = cause(design, "dtlb_load_walk_starts");
        assert!(!starts.contains("cycles") && starts.contains("dtlb_walks"), "{starts}");
        let of_cycles =
            ["dtlb_load_walk_active", "dtlb_store_walk_duration", "dtlb_load_walk_pending"];
        for metric in of_cycles {
            let cycles = cause(design, metric);
            assert!(cycles.contains("no cycles") && cycles.contains("dtlb_walks"), "{cycles}");
        }
    }
}

#[test]
fn stalls_by_cache_level_name_what_amd_and_arm_have_instead() {
    let cause = |design, metric| match native(metric, Some(design)) {
        Native::Lacks(cause) => cause,
        Native::Event(event) => panic!("{event}"),
    };
    for metric in ["stalls_l1d", "stalls_l2", "stalls_l3"] {
        assert!(cause(Design::Zen4, metric).contains("dram_of_demand_fills_ratio"));
        assert!(cause(Design::NeoverseN1, metric).contains("llc_miss_ratio"));
    }
}

#[test]
fn stalls_of_designs_that_count_retirement_say_so() {
    let description = |design: Design, name: &str| {
        let cpu = cpu_of(design);
        resolve(&cpu, &request(&cpu, &[name])).events[0].metric.description.clone()
    };
    let amd = description(Design::Zen5, "stalls_mem");
    assert_eq!(amd, "Cycles without retirement because a load was outstanding.");
    assert!(description(Design::Skylake, "stalls_mem").contains("without execution"));
    let arm = description(Design::NeoverseV2, "stalls_mem");
    assert!(arm.contains("missed the caches of the core"), "{arm}");
    let listed = list(&cpu_of(Design::Zen4), |_| None);
    let stalls = listed.metrics.iter().find(|metric| metric.name == "stalls_mem").unwrap();
    assert_eq!(stalls.description, amd);
}

#[test]
fn the_paper_has_twenty_events_and_ivy_bridge_has_them_all() {
    let of_paper: Vec<_> = METRICS.iter().filter(|metric| !metric.paper.is_empty()).collect();
    assert_eq!(of_paper.len(), 20);
    let set = MetricSet::named("paper").unwrap();
    let cpu = cpu_of(Design::IvyBridge);
    let resolved = resolve(&cpu, &request(&cpu, &["paper"]));
    for metric in of_paper {
        assert!(set.metrics.contains(&metric.name), "{}", metric.name);
        let is_there = resolved.events.iter().any(|event| event.metric.name == metric.name);
        assert!(is_there, "{}", metric.name);
    }
    for set in SETS {
        for name in set.metrics {
            assert!(MetricDefinition::named(name).is_some(), "{}: {name}", set.name);
        }
    }
}

#[test]
fn names_of_perf_perfmon_and_raw_codes_are_understood() {
    let here = cpu_of(Design::Skylake);
    let fixed = |kind, config| EventCode::Fixed { kind, config, config1: 0 };
    let unit = |unit: &str, terms: &str| DeviceEvent { unit: unit.into(), terms: terms.into() };
    let table = [
        ("cycles", fixed(HARDWARE, 0)),
        ("cpu-cycles", fixed(HARDWARE, 0)),
        ("page-faults", fixed(SOFTWARE, 2)),
        ("dTLB-load-misses", fixed(CACHE, 0x1_0003)),
        ("dtlb_loads", EventCode::raw(0x81d0)),
        ("L1-dcache-loads", fixed(CACHE, 0)),
        ("L1-dcache-prefetch-misses", fixed(CACHE, 0x1_0200)),
        ("LLC-store-misses", fixed(CACHE, 0x1_0102)),
        ("DTLB_LOAD_MISSES.WALK_ACTIVE", EventCode::raw(0x100_1008)),
        ("dtlb_load_misses:walk_active", EventCode::raw(0x100_1008)),
        ("dtlb-load-misses-walk_active", EventCode::raw(0x100_1008)),
        ("r1008", EventCode::raw(0x1008)),
        ("r0C0FFEE", EventCode::raw(0xc0_ffee)),
        (
            "cpu/event=0x08,umask=0x10,cmask=1/",
            EventCode::Devices(vec![unit("cpu", "event=0x08,umask=0x10,cmask=1")]),
        ),
        (
            "unc_m_cas_count.all",
            EventCode::Devices(vec![unit("uncore_imc", "event=0x4,umask=0xf")]),
        ),
        ("a_1/edge/+b/x=2/", EventCode::Devices(vec![unit("a_1", "edge"), unit("b", "x=2")])),
    ];
    for (name, code) in table {
        let resolved = resolve(&here, &request(&here, &[name]));
        let [event] = &resolved.events[..] else { panic!("{name}: {resolved:?}") };
        assert_eq!(event.code, code, "{name}");
        assert!(
            event
                .metric
                .name
                .bytes()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
        );
    }
}

#[test]
fn what_is_not_an_event_has_a_cause_and_similar_names() {
    let here = cpu_of(Design::Skylake);
    let error = |name: &str| parse(&here, name).unwrap_err().to_string();
    assert_eq!(
        error("DTLB_LOAD_MISSES.WALK_ACTIV"),
        "unknown event \"DTLB_LOAD_MISSES.WALK_ACTIV\"; similar: DTLB_LOAD_MISSES.WALK_ACTIVE, \
         DTLB_STORE_MISSES.WALK_ACTIVE, DTLB_LOAD_MISSES.WALK_PENDING"
    );
    assert!(error("dtlb_load_misses.walk_duration").starts_with(
        "DTLB_LOAD_MISSES.WALK_DURATION is an event of Broadwell; Skylake lacks it; similar: "
    ));
    assert!(
        error("UNC_M_CAS_COUNT_SCH0.RD")
            .starts_with("UNC_M_CAS_COUNT_SCH0.RD is an event of Granite Rapids; Skylake lacks it")
    );
    assert_eq!(error("cycels"), "unknown event \"cycels\"; similar: cycles");
    assert!(!error("\u{1b}[31m").contains('\u{1b}'), "escaped");
    assert!(error(&"x".repeat(1000)).len() < 200, "cut");
    for bad in ["/", "//", "cpu/", "cpu/event=/", "../x/event=1/", "cpu/a b/", "cpu/x/+", "r", ""] {
        assert!(parse(&here, bad).is_err(), "{bad}");
    }
}

#[test]
fn groups_fit_the_counters() {
    for design in Design::ALL {
        let cpu = cpu_of(design);
        let names = ["ipc", "paper", "tlb", "cache", "stalls", "bandwidth", "software"];
        let resolved = resolve(&cpu, &request(&cpu, &names));
        let mut general = std::collections::BTreeMap::<u32, usize>::new();
        for event in &resolved.events {
            let Some(group) = event.metric.group else {
                assert!(event.code.is_software(), "{event:?}");
                continue;
            };
            let is_fixed = matches!(event.code, EventCode::Fixed { kind: HARDWARE, .. })
                && (design <= Design::GraniteRapids || event.metric.name == "cycles")
                && !(Design::Zen1..=Design::Zen5).contains(&design);
            *general.entry(group).or_default() += usize::from(!is_fixed);
        }
        let limit = design.group_counters();
        assert!(general.values().all(|&used| used <= limit), "{design:?} {general:?}");
        let groups: Vec<u32> = general.keys().copied().collect();
        let last = u32::try_from(groups.len()).unwrap();
        assert_eq!(groups, (0..last).collect::<Vec<_>>(), "{design:?}: no group is missing");
        let mut names: Vec<_> = resolved.metrics().map(|metric| &metric.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "each metric once");
    }
}

#[test]
fn the_four_events_of_a_ratio_of_zen_count_at_the_same_time() {
    for design in [Design::Zen4, Design::Zen5] {
        let cpu = cpu_of(design);
        let events = resolve(&cpu, &request(&cpu, &["stalls"])).events;
        let group = |name: &str| {
            events.iter().find(|event| event.metric.name == name).unwrap().metric.group
        };
        let names = ["cycles", "stalls_mem", "stalls_retire", "backend_stall_slots"];
        assert!(names.iter().all(|name| group(name) == Some(0)), "{events:?}");
    }
}

#[test]
fn processors_without_a_list_use_generic_events() {
    let here = cpu("GenuineIntel", 6, 151);
    let resolved = resolve(&here, &request(&here, &["tlb", "software"]));
    let names: Vec<_> = resolved.events.iter().map(|event| event.metric.name.as_str()).collect();
    assert_eq!(names[..3], ["cycles", "dtlb_load_walks", "dtlb_store_walks"]);
    let missing = resolved.missing.iter().find(|m| m.name == "dtlb_load_walk_active").unwrap();
    assert_eq!(
        missing.missing.as_deref(),
        Some("processor not in hugepilot's tables: hugepilot has no list of this processor")
    );
}

#[test]
fn the_list_shows_what_can_be_opened() {
    let here = cpu_of(Design::Zen4);
    let list = list(&here, |event| event.code.is_system_wide().then(|| "denied".to_owned()));
    let metric = |name: &str| list.metrics.iter().find(|metric| metric.name == name).unwrap();
    assert_eq!(metric("dram_reads").unavailable.as_deref(), Some("denied"));
    assert_eq!(metric("dtlb_walks").unavailable, None);
    assert!(metric("dtlb_load_walk_active").event.is_none());
    let set = list.sets.iter().find(|set| set.name == "bandwidth").unwrap();
    assert_eq!((set.available, set.metrics.len()), (0, 3));
}
