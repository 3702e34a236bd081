//! Whether a way to run a program gave it the pages that it is for, and if not, why: the silent failure of other launchers.

use hugepilot_record::run::{Effect, Holder, Mode, Obstacles, Peak, Run};
use hugepilot_units::Bytes;

/// A program with less memory than this has hardly any place for a huge page.
const SMALL: Bytes = Bytes::mib(8);

/// Judges by what was seen in memory, and only then asks what stood in the way.
pub fn effect(mode: Mode, run: &Run, obstacles: &Obstacles) -> Effect {
    let peak = &run.peak;
    if mode == Mode::Base {
        return without_huge_pages(peak);
    }
    let serves = !obstacles.not_preloaded && obstacles.out_of_reach.is_none();
    if mode == Mode::Mimalloc && serves {
        return yes(format!("mimalloc serves it, with {}", seen(peak)));
    }
    if mode == Mode::HugepilotBase && serves {
        let effect = without_huge_pages(peak);
        return Effect { reason: format!("our allocator serves it; {}", effect.reason), ..effect };
    }
    let some = wanted(mode, of_all(peak)) > Bytes::ZERO;
    let whose = others_pages(mode, &obstacles.holders).filter(|_| some);
    if some && whose.is_none() {
        return yes(seen(peak) + &rest(mode, peak));
    }
    let known = why_not(mode, run, obstacles);
    let took_effect = (known.is_some() || whose.is_some() || was_seen(peak)).then_some(false);
    let (why, fix) = known.unwrap_or_else(|| (unsure(mode, run), None));
    let reason = whose.map_or_else(|| why.clone(), |whose| format!("{whose}; {why}"));
    Effect { took_effect, reason, fix }
}

fn yes(reason: String) -> Effect {
    Effect { took_effect: Some(true), reason, fix: None }
}

fn without_huge_pages(peak: &Peak) -> Effect {
    let none = peak.anonymous_thp_peak_bytes == Bytes::ZERO;
    let reason = match (peak.rss_samples, none) {
        (0, _) => "transparent huge pages were off; it ended before its memory could be looked at"
            .to_owned(),
        (_, true) if peak.all_huge() > Bytes::ZERO => {
            format!(
                "transparent huge pages were off, and the program took others by itself: {}",
                seen(peak)
            )
        }
        (_, true) => "no huge pages, as wanted".to_owned(),
        (_, false) => {
            format!("transparent huge pages were off, and were seen all the same: {}", seen(peak))
        }
    };
    Effect { took_effect: Some(none), reason, fix: None }
}

/// Anonymous memory on transparent huge pages, and on pages of 2 MiB and of 1 GiB of pools. Huge pages of files and shared memory
/// come from the kernel and from whoever mounted them: no mode of ours brings them.
type Kinds = [Bytes; 3];

fn of_all(peak: &Peak) -> Kinds {
    [peak.anonymous_thp_peak_bytes, peak.hugetlb_2m_peak_bytes, peak.hugetlb_1g_peak_bytes]
}

const fn of_one(holder: &Holder) -> Kinds {
    [holder.thp, holder.hugetlb_2m, holder.hugetlb_1g]
}

/// Memory on the pages that `mode` is for.
fn wanted(mode: Mode, [thp, small, large]: Kinds) -> Bytes {
    match mode {
        Mode::Base | Mode::HugepilotBase | Mode::Mimalloc => Bytes::ZERO,
        Mode::Thp | Mode::Advised | Mode::GlibcThp => thp,
        Mode::Hugetlb => small,
        Mode::Hugetlb1g | Mode::Mimalloc1g => large,
        Mode::Mimalloc2m | Mode::Hugepilot => thp + small,
    }
}

/// Whose the pages are, where the program that has most memory has none: a script that starts it has some of its own.
fn others_pages(mode: Mode, holders: &[Holder]) -> Option<String> {
    let pages = |holder: &Holder| wanted(mode, of_one(holder));
    let largest = holders.iter().max_by_key(|holder| holder.memory)?;
    let owner = holders
        .iter()
        .filter(|holder| pages(holder) > Bytes::ZERO)
        .max_by_key(|holder| pages(holder))?;
    let has_some =
        holders.iter().any(|holder| holder.name == largest.name && pages(holder) > Bytes::ZERO);
    (!has_some).then(|| {
        format!(
            "{} on such pages are {}'s, and {}, which has most memory ({}), has none",
            pages(owner),
            owner.name,
            largest.name,
            largest.memory
        )
    })
}

/// What most of the memory is on, where that is not what the mode is for: a yes that means little.
fn rest(mode: Mode, peak: &Peak) -> String {
    // Resident memory is without pages of pools.
    let (all, got) = (peak.rss_peak_bytes + peak.hugetlb_peak_bytes, wanted(mode, of_all(peak)));
    if got.times(2) < all { format!(", of {all} of memory in all") } else { String::new() }
}

/// Peak memory on huge pages by kind.
fn seen(peak: &Peak) -> String {
    let kinds = [
        (peak.anonymous_thp_peak_bytes, "on transparent huge pages"),
        (
            peak.thp_peak_bytes - peak.anonymous_thp_peak_bytes,
            "on those of files and shared memory",
        ),
        (peak.hugetlb_2m_peak_bytes, "on 2MiB pages of the pool"),
        (peak.hugetlb_1g_peak_bytes, "on 1GiB pages of the pool"),
    ];
    let there: Vec<String> = kinds
        .iter()
        .filter(|(bytes, _)| *bytes > Bytes::ZERO)
        .map(|(bytes, kind)| format!("{bytes} {kind}"))
        .collect();
    if there.is_empty() { "no huge pages".to_owned() } else { there.join(", ") }
}

/// The likeliest of the known reasons, surest first, and what to do about it.
fn why_not(mode: Mode, run: &Run, obstacles: &Obstacles) -> Option<(String, Option<String>)> {
    const FROM_OUTSIDE: &str =
        "--pages thp puts memory on huge pages from outside, whatever allocates it";
    let some = |fix: &str| Some(fix.to_owned());
    let by_libc = mode.preloads() || mode.tunes_glibc();
    if let Some(what) = obstacles.out_of_reach.as_ref().filter(|_| by_libc) {
        let why = format!("no allocator can be put in front of it or told what to do: {what}");
        return Some((why, some(FROM_OUTSIDE)));
    }
    if let Some(why) = obstacles.libc_lacks_tunable.as_ref().filter(|_| mode.tunes_glibc()) {
        return Some((why.clone(), some(FROM_OUTSIDE)));
    }
    if let Some(why) = obstacles.empty_pool.as_ref().filter(|_| mode.needs_pool().is_some()) {
        return Some((why.clone(), obstacles.pool_fix.clone()));
    }
    if let Some(own) = obstacles.own_allocator.as_ref().filter(|_| by_libc) {
        let why = format!("it brings its own allocator ({own}), which does not heed this");
        return Some((why, some(FROM_OUTSIDE)));
    }
    if mode.preloads() && obstacles.not_preloaded && was_seen(&run.peak) {
        let why = "the library was seen in no process: the program's loader did not take it";
        return Some((why.to_owned(), None));
    }
    if let Some(why) =
        obstacles.thp.as_ref().filter(|_| matches!(mode, Mode::GlibcThp | Mode::Advised))
    {
        return Some((
            why.clone(),
            some("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        ));
    }
    if let Some(why) = obstacles.not_promoted.as_ref().filter(|_| mode == Mode::Thp) {
        return Some((why.clone(), None));
    }
    let enough = enough_to_see(&run.peak);
    if let Some(why) = obstacles.libc_thp_bug.as_ref().filter(|_| mode == Mode::GlibcThp && enough)
    {
        return Some((why.clone(), some(FROM_OUTSIDE)));
    }
    let transparent = !matches!(mode, Mode::Hugetlb | Mode::Hugetlb1g | Mode::Mimalloc1g);
    let fragmented =
        obstacles.fragmented.as_ref().filter(|_| transparent && enough && mode != Mode::Advised);
    fragmented.map(|why| (why.clone(), some("echo 1 | sudo tee /proc/sys/vm/compact_memory")))
}

/// Whether its memory was looked at.
const fn was_seen(peak: &Peak) -> bool {
    peak.rss_samples > peak.rss_samples_denied
}

/// Whether huge pages would have been seen, had there been any.
fn enough_to_see(peak: &Peak) -> bool {
    was_seen(peak) && peak.rss_peak_bytes >= SMALL
}

fn unsure(mode: Mode, run: &Run) -> String {
    let peak = &run.peak;
    if peak.rss_samples == 0 {
        return format!(
            "it ended after {:.0} ms, before its memory could be looked at",
            run.wall_seconds * 1e3
        );
    }
    if peak.rss_samples_denied == peak.rss_samples {
        return "its memory may not be looked at: it runs with other rights than ours".to_owned();
    }
    if peak.rss_peak_bytes < SMALL {
        return format!(
            "it had at most {} of memory, too little to fill huge pages",
            peak.rss_peak_bytes
        );
    }
    match mode {
        Mode::Advised => "the program advised no memory for huge pages".to_owned(),
        _ => "nothing was seen that explains it: it may ask for memory in pieces smaller than a huge page, or not from the C \
              library"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::run::Ending;
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

    #[test]
    fn what_was_seen_decides() {
        let pool = |small: Bytes, large: Bytes| Peak {
            hugetlb_peak_bytes: small + large,
            hugetlb_2m_peak_bytes: small,
            hugetlb_1g_peak_bytes: large,
            ..Peak::default()
        };
        let (nothing, small, large) =
            (Peak::default(), pool(Bytes::mib(4), Bytes::ZERO), pool(Bytes::ZERO, Bytes::gib(1)));
        // Mode; its effect with nothing, THP, 2 MiB and 1 GiB of pools.
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

    fn because(mode: Mode, obstacles: &Obstacles) -> Effect {
        let effect = effect(mode, &run(Peak::default()), obstacles);
        assert_eq!(effect.took_effect, Some(false), "{mode}: {effect:?}");
        effect
    }

    #[test]
    fn a_yes_for_little_says_of_how_much() {
        let few = Peak {
            rss_peak_bytes: Bytes::gib(2),
            hugetlb_peak_bytes: Bytes::mib(6),
            hugetlb_2m_peak_bytes: Bytes::mib(6),
            ..Peak::default()
        };
        let most = Peak {
            hugetlb_peak_bytes: Bytes::gib(3),
            hugetlb_2m_peak_bytes: Bytes::gib(3),
            ..few.clone()
        };
        let told = |peak: &Peak| effect(Mode::Hugetlb, &run(peak.clone()), &Obstacles::default());
        assert_eq!(told(&few).reason, "6MiB on 2MiB pages of the pool, of 106MiB of memory in all");
        assert_eq!(told(&most).reason, "3GiB on 2MiB pages of the pool");
        assert_eq!((told(&few).took_effect, told(&most).took_effect), (Some(true), Some(true)));
    }

    #[test]
    fn the_reason_is_one_that_matters_for_the_mode() {
        let text = |text: &str| Some(text.to_owned());
        let all = Obstacles {
            out_of_reach: text("it is static"),
            libc_lacks_tunable: text("old glibc"),
            libc_thp_bug: None,
            own_allocator: text("jemalloc"),
            empty_pool: text("empty pool"),
            pool_fix: text("hugepilot pool set"),
            thp: text("THP is never"),
            fragmented: text("no free blocks"),
            not_preloaded: true,
            not_promoted: text("no right"),
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
            let effect = because(mode, &all);
            assert!(
                effect.reason.contains("it is static") && effect.fix.is_some(),
                "{mode}: {effect:?}"
            );
        }
        assert_eq!(because(Mode::Thp, &all).reason, "no right");
        assert_eq!(because(Mode::Advised, &all).reason, "THP is never");
        let dynamic = Obstacles { out_of_reach: None, ..all };
        assert_eq!(because(Mode::Hugetlb, &dynamic).reason, "old glibc");
        let new = Obstacles { libc_lacks_tunable: None, ..dynamic };
        assert_eq!(because(Mode::Hugetlb, &new).fix.unwrap(), "hugepilot pool set");
        assert_eq!(because(Mode::Mimalloc1g, &new).reason, "empty pool");
        assert!(because(Mode::GlibcThp, &new).reason.contains("jemalloc"));
        let plain = Obstacles { own_allocator: None, ..new };
        assert_eq!(because(Mode::GlibcThp, &plain).reason, "THP is never");
        assert!(because(Mode::Mimalloc2m, &plain).reason.contains("seen in no process"));
        let willing = Obstacles { thp: None, ..plain };
        assert_eq!(because(Mode::GlibcThp, &willing).reason, "no free blocks");
        let fickle = Obstacles { libc_thp_bug: text("luck"), ..willing.clone() };
        assert_eq!(because(Mode::GlibcThp, &fickle).reason, "luck");
        assert_eq!(
            because(Mode::Mimalloc2m, &Obstacles { not_preloaded: false, ..fickle }).reason,
            "no free blocks"
        );
        assert!(because(Mode::Advised, &willing).reason.contains("advised no memory"));
    }

    #[test]
    fn short_and_small_programs_are_told_so() {
        let mut short = run(Peak::default());
        short.peak.rss_samples = 0;
        let effect_of = |run: &Run, mode| effect(mode, run, &Obstacles::default()).reason;
        assert!(
            effect_of(&short, Mode::GlibcThp).contains("250 ms"),
            "{}",
            effect_of(&short, Mode::GlibcThp)
        );
        let mut small = run(Peak::default());
        small.peak.rss_peak_bytes = Bytes::mib(3);
        assert!(effect_of(&small, Mode::GlibcThp).contains("3MiB"));
        assert!(effect_of(&run(Peak::default()), Mode::Advised).contains("advised no memory"));
    }

    #[test]
    fn what_was_not_looked_at_is_not_known_but_what_cannot_be_is_no() {
        let mut short = run(Peak::default());
        short.peak.rss_samples = 0;
        let mut hidden = run(Peak { rss_samples_denied: 5, ..Peak::default() });
        hidden.peak.rss_samples = 5;
        let not_preloaded = Obstacles { not_preloaded: true, ..Obstacles::default() };
        for run in [&short, &hidden] {
            for mode in [
                Mode::Thp,
                Mode::GlibcThp,
                Mode::Hugetlb,
                Mode::Mimalloc,
                Mode::Hugepilot,
                Mode::HugepilotBase,
            ] {
                let effect = effect(mode, run, &not_preloaded);
                assert!(
                    effect.took_effect.is_none() && !effect.reason.contains("loader"),
                    "{mode}: {effect:?}"
                );
            }
            assert_eq!(
                effect(Mode::Base, run, &not_preloaded).took_effect,
                Some(true),
                "it is set"
            );
            let empty = Obstacles { empty_pool: Some("empty".to_owned()), ..not_preloaded.clone() };
            assert_eq!(effect(Mode::Hugetlb, run, &empty).took_effect, Some(false));
        }
    }

    #[test]
    fn huge_pages_of_files_are_not_the_modes_doing() {
        let files = run(Peak { thp_peak_bytes: Bytes::mib(64), ..Peak::default() });
        for mode in [Mode::Thp, Mode::Advised, Mode::GlibcThp, Mode::Mimalloc2m, Mode::Hugepilot] {
            assert_eq!(
                effect(mode, &files, &Obstacles::default()).took_effect,
                Some(false),
                "{mode}"
            );
        }
        let base = effect(Mode::Base, &files, &Obstacles::default());
        assert!(
            base.took_effect == Some(true) && base.reason.contains("64MiB on those of files"),
            "{base:?}"
        );
    }

    #[test]
    fn pages_of_a_script_that_starts_the_program_are_not_the_programs() {
        let holder = |name: &str, memory, hugetlb_2m| Holder {
            name: name.to_owned(),
            memory,
            hugetlb_2m,
            ..Holder::default()
        };
        let four = Bytes::mib(4);
        let run =
            run(Peak { hugetlb_2m_peak_bytes: four, hugetlb_peak_bytes: four, ..Peak::default() });
        let of = |holders: &[Holder]| {
            let obstacles = Obstacles {
                holders: holders.to_vec(),
                own_allocator: Some("jemalloc".to_owned()),
                ..Obstacles::default()
            };
            effect(Mode::Hugetlb, &run, &obstacles)
        };
        let (script, server) = (
            holder("sh", Bytes::mib(6), four),
            holder("redis-server", Bytes::mib(300), Bytes::ZERO),
        );
        let found = of(&[script.clone(), server.clone()]);
        assert_eq!(found.took_effect, Some(false));
        assert!(
            found.reason.contains(
                "4MiB on such pages are sh's, and redis-server, which has most memory (300MiB), has none"
            ),
            "{found:?}"
        );
        assert!(found.reason.contains("jemalloc") && found.fix.is_some(), "{found:?}");
        let worker = holder("redis-server", Bytes::mib(90), four);
        for holders in [
            vec![],
            vec![script.clone()],
            vec![script.clone(), worker.clone()],
            vec![server, worker],
        ] {
            assert_eq!(of(&holders).took_effect, Some(true), "{holders:?}");
        }
    }

    proptest! {
        #[test]
        fn every_no_has_a_reason(mode in prop::sample::select(&Mode::ALL[..]), bits in any::<u8>(), looks in 0_u32..3, mib in 0_u64..40) {
            let text = |bit: u8| (bits >> bit & 1 == 1).then(|| "why".to_owned());
            let obstacles = Obstacles {
                out_of_reach: text(0), libc_lacks_tunable: text(1), libc_thp_bug: text(2), own_allocator: text(2), empty_pool: text(3), pool_fix: text(4),
                thp: text(5), fragmented: text(3), not_preloaded: text(6).is_some(), not_promoted: text(7), ..Obstacles::default()
            };
            let mut run = run(Peak::default());
            (run.peak.rss_samples, run.peak.rss_peak_bytes) = (looks, Bytes::mib(mib));
            prop_assert!(!effect(mode, &run, &obstacles).reason.is_empty());
            // Seen is seen, whatever is said to stand in the way.
            run.peak = Peak { rss_samples: 1, ..thp() };
            if matches!(mode, Mode::Thp | Mode::Advised | Mode::GlibcThp | Mode::Mimalloc2m | Mode::Hugepilot) {
                prop_assert_eq!(effect(mode, &run, &obstacles).took_effect, Some(true));
            }
        }
    }
}
