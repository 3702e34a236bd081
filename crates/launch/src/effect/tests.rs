use hugepilot_record::{Ending, Stop};
use hugepilot_reports::run::{Libc, ProgramKind};
use proptest::prelude::*;

use super::*;

fn run(peak: Peak) -> Run {
    let peak = Peak { rss_samples: 5, rss_peak_bytes: Bytes::mib(100), ..peak };
    Run {
        ending: Ending::Exited(0),
        wall_seconds: 0.25,
        stopped: false,
        user_seconds: 0.2,
        system_seconds: 0.0,
        processor_wait_seconds: None,
        page_faults: 9,
        peak,
    }
}

fn thp() -> Peak {
    Peak {
        thp_peak_bytes: Bytes::mib(64),
        anonymous_thp_peak_bytes: Bytes::mib(64),
        ..Peak::default()
    }
}

fn of_pool(small: Bytes, large: Bytes) -> Peak {
    Peak {
        hugetlb_peak_bytes: small + large,
        hugetlb_2m_peak_bytes: small,
        hugetlb_1g_peak_bytes: large,
        ..Peak::default()
    }
}

#[test]
fn sampled_memory_decides() {
    let nothing = Peak::default();
    let (small, large) = (of_pool(Bytes::mib(4), Bytes::ZERO), of_pool(Bytes::ZERO, Bytes::gib(1)));
    // Mode; its effect with nothing, THP, 2 MiB and 1 GiB hugetlb pages.
    let table = [
        (Mode::Base, [true, false, true, true]),
        (Mode::Thp, [false, true, false, false]),
        (Mode::Advised, [false, true, false, false]),
        (Mode::GlibcThp, [false, true, false, false]),
        (Mode::Hugetlb, [false, false, true, false]),
        (Mode::Hugetlb1g, [false, false, false, true]),
        (Mode::Mimalloc, [true, true, true, true]),
        (Mode::Mimalloc2m, [false, true, true, false]),
        (Mode::Mimalloc1g, [false, false, false, true]),
        (Mode::Hugepilot, [false, true, true, false]),
        (Mode::HugepilotBase, [true, false, true, true]),
    ];
    for (mode, wanted) in table {
        let took = [&nothing, &thp(), &small, &large]
            .map(|peak| effect(mode, &run(peak.clone()), &Obstacles::default()).took_effect);
        assert_eq!(took, wanted.map(Some), "{mode}");
    }
}

#[test]
fn evidence_has_the_pages_of_the_mode_and_all_memory() {
    let peak = of_pool(Bytes::mib(6), Bytes::ZERO);
    let found = effect(Mode::Hugetlb, &run(peak.clone()), &Obstacles::default());
    let cause = EffectCause::HugePages {
        pages: peak.huge_memory(),
        mode_bytes: Bytes::mib(6),
        memory_bytes: Bytes::mib(106),
    };
    assert_eq!(found, Effect::new(Some(true), cause));
}

fn because(mode: Mode, obstacles: &Obstacles) -> EffectCause {
    let effect = effect(mode, &run(Peak::default()), obstacles);
    assert_eq!(effect.took_effect, Some(false), "{mode}: {effect:?}");
    effect.cause
}

#[test]
fn the_cause_is_one_that_matters_for_the_mode() {
    let page_bytes = Bytes::mib(2);
    let fragmented = EffectCause::Fragmented { free_bytes: Bytes::mib(6) };
    let own = EffectCause::OwnAllocator { library: "jemalloc".to_owned() };
    let mut obstacles = Obstacles {
        loader_bypassed: Some(ProgramKind::Static),
        libc_lacks_tunable: Some(Libc::OldGlibc),
        own_allocator: Some("jemalloc".to_owned()),
        empty_pool: Some(page_bytes),
        thp_never: true,
        fragmented: Some(Bytes::mib(6)),
        not_preloaded: true,
        not_promoted: Some(PromotionObstacle::Stopped(Stop::NoHugePages)),
        ..Obstacles::default()
    };
    let by_allocator = [
        Mode::Hugetlb,
        Mode::GlibcThp,
        Mode::Mimalloc2m,
        Mode::Mimalloc,
        Mode::Hugepilot,
        Mode::HugepilotBase,
    ];
    for mode in by_allocator {
        let bypassed = EffectCause::LoaderBypassed { program: ProgramKind::Static };
        assert_eq!(because(mode, &obstacles), bypassed, "{mode}");
    }
    let stopped = EffectCause::PromotionStopped { stop: Stop::NoHugePages };
    assert_eq!(because(Mode::Thp, &obstacles), stopped);
    assert_eq!(because(Mode::Advised, &obstacles), EffectCause::ThpNever);
    obstacles.loader_bypassed = None;
    let old = EffectCause::LibcLacksTunable { libc: Libc::OldGlibc };
    assert_eq!(because(Mode::Hugetlb, &obstacles), old);
    obstacles.libc_lacks_tunable = None;
    for mode in [Mode::Hugetlb, Mode::Mimalloc1g] {
        assert_eq!(because(mode, &obstacles), EffectCause::EmptyPool { page_bytes }, "{mode}");
    }
    assert_eq!(because(Mode::GlibcThp, &obstacles), own);
    obstacles.own_allocator = None;
    assert_eq!(because(Mode::GlibcThp, &obstacles), EffectCause::ThpNever);
    assert_eq!(because(Mode::Mimalloc2m, &obstacles), EffectCause::LibraryNotLoaded);
    obstacles.thp_never = false;
    assert_eq!(because(Mode::GlibcThp, &obstacles), fragmented);
    assert_eq!(because(Mode::Advised, &obstacles), EffectCause::NothingAdvised);
    obstacles.libc_thp_bug = true;
    assert_eq!(because(Mode::GlibcThp, &obstacles), EffectCause::LibcThpBug);
    obstacles.not_preloaded = false;
    assert_eq!(because(Mode::Mimalloc2m, &obstacles), fragmented);
}

#[test]
fn short_runs_and_small_programs_are_causes() {
    let mut short = run(Peak::default());
    short.peak.rss_samples = 0;
    let cause = |run: &Run, mode| effect(mode, run, &Obstacles::default()).cause;
    let not_sampled = EffectCause::NotSampled { wall_seconds: 0.25 };
    assert_eq!(cause(&short, Mode::GlibcThp), not_sampled);
    let mut small = run(Peak::default());
    small.peak.rss_peak_bytes = Bytes::mib(3);
    let little = EffectCause::LittleMemory { rss_peak_bytes: Bytes::mib(3) };
    assert_eq!(cause(&small, Mode::GlibcThp), little);
    assert_eq!(cause(&run(Peak::default()), Mode::GlibcThp), EffectCause::Unknown);
}

#[test]
fn without_samples_the_effect_is_unknown_unless_an_obstacle_is_certain() {
    let mut short = run(Peak::default());
    short.peak.rss_samples = 0;
    let mut hidden = run(Peak { rss_samples_denied: 5, ..Peak::default() });
    hidden.peak.rss_samples = 5;
    let not_preloaded = Obstacles { not_preloaded: true, ..Obstacles::default() };
    let modes = [
        Mode::Thp,
        Mode::GlibcThp,
        Mode::Hugetlb,
        Mode::Mimalloc,
        Mode::Hugepilot,
        Mode::HugepilotBase,
    ];
    for run in [&short, &hidden] {
        for mode in modes {
            let effect = effect(mode, run, &not_preloaded);
            assert_eq!((effect.took_effect, effect.allocator_serves), (None, None), "{mode}");
            assert_ne!(effect.cause, EffectCause::LibraryNotLoaded, "{mode}");
        }
        let base = effect(Mode::Base, run, &not_preloaded);
        assert_eq!(base.took_effect, Some(true), "it is set");
        let empty = Obstacles { empty_pool: Some(Bytes::mib(2)), ..not_preloaded.clone() };
        assert_eq!(effect(Mode::Hugetlb, run, &empty).took_effect, Some(false));
    }
}

#[test]
fn modes_that_preload_say_whether_the_library_was_mapped() {
    let run = run(thp());
    let serves = |mode, obstacles: &Obstacles| effect(mode, &run, obstacles).allocator_serves;
    assert_eq!(serves(Mode::Thp, &Obstacles::default()), None);
    assert_eq!(serves(Mode::Hugepilot, &Obstacles::default()), Some(true));
    let not_mapped = Obstacles { not_preloaded: true, ..Obstacles::default() };
    assert_eq!(serves(Mode::Hugepilot, &not_mapped), Some(false));
}

#[test]
fn no_mode_causes_huge_pages_of_files() {
    let files = run(Peak { thp_peak_bytes: Bytes::mib(64), ..Peak::default() });
    for mode in [Mode::Thp, Mode::Advised, Mode::GlibcThp, Mode::Mimalloc2m, Mode::Hugepilot] {
        let effect = effect(mode, &files, &Obstacles::default());
        assert_eq!(effect.took_effect, Some(false), "{mode}");
    }
    let pages = files.peak.huge_memory();
    assert_eq!(pages.shared_thp_bytes, Bytes::mib(64));
    let base = effect(Mode::Base, &files, &Obstacles::default());
    assert_eq!(base, Effect::new(Some(true), EffectCause::OtherHugePages { pages }));
}

#[test]
fn pages_of_a_script_that_starts_the_program_do_not_count() {
    let holder = |name: &str, memory, hugetlb_2m| Holder {
        name: name.to_owned(),
        memory,
        hugetlb_2m,
        ..Holder::default()
    };
    let four = Bytes::mib(4);
    let run = run(of_pool(four, Bytes::ZERO));
    let of = |holders: &[Holder]| {
        let obstacles = Obstacles {
            holders: holders.to_vec(),
            own_allocator: Some("jemalloc".to_owned()),
            ..Obstacles::default()
        };
        effect(Mode::Hugetlb, &run, &obstacles)
    };
    let (script, server) =
        (holder("sh", Bytes::mib(6), four), holder("redis-server", Bytes::mib(300), Bytes::ZERO));
    let found = of(&[script.clone(), server.clone()]);
    let owner = PageOwner {
        process: "sh".to_owned(),
        bytes: four,
        largest_process: "redis-server".to_owned(),
        largest_bytes: Bytes::mib(300),
    };
    assert_eq!((found.took_effect, found.owner), (Some(false), Some(owner)));
    assert_eq!(found.cause, EffectCause::OwnAllocator { library: "jemalloc".to_owned() });
    let worker = holder("redis-server", Bytes::mib(90), four);
    let with_effect =
        [vec![], vec![script.clone()], vec![script.clone(), worker.clone()], vec![server, worker]];
    for holders in with_effect {
        assert_eq!(of(&holders).took_effect, Some(true), "{holders:?}");
    }
}

proptest! {
    #[test]
    fn evidence_outranks_every_obstacle(
        mode in prop::sample::select(
            vec![Mode::Thp, Mode::Advised, Mode::GlibcThp, Mode::Mimalloc2m, Mode::Hugepilot]
        ),
        bits in any::<u8>(),
    ) {
        let bit = |bit: u8| bits >> bit & 1 == 1;
        let obstacles = Obstacles {
            loader_bypassed: bit(0).then_some(ProgramKind::Static),
            libc_lacks_tunable: bit(1).then_some(Libc::Musl),
            libc_thp_bug: bit(2),
            own_allocator: bit(2).then(|| "jemalloc".to_owned()),
            empty_pool: bit(3).then_some(Bytes::mib(2)),
            thp_never: bit(4),
            fragmented: bit(5).then_some(Bytes::ZERO),
            not_preloaded: bit(6),
            not_promoted: bit(7).then_some(PromotionObstacle::NotPermitted),
            ..Obstacles::default()
        };
        let run = run(Peak { rss_samples: 1, ..thp() });
        prop_assert_eq!(effect(mode, &run, &obstacles).took_effect, Some(true));
    }
}
