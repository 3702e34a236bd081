//! Sentences for the effect of a page mode.

use hugepilot_render::Sentence;

use crate::run::{Effect, EffectCause};

/// The effect in one sentence: the owner of the pages, the allocator, and the cause.
pub(crate) fn effect_text(effect: &Effect) -> String {
    let allocator = match (&effect.cause, effect.allocator_serves) {
        (
            EffectCause::NoHugePages
            | EffectCause::OtherHugePages { .. }
            | EffectCause::UnexpectedThp { .. }
            | EffectCause::ThpOffNotSampled,
            Some(true),
        ) => Some("the preloaded allocator serves the program".to_owned()),
        _ => None,
    };
    let owner = effect.owner.as_ref().map(Sentence::text);
    let parts: Vec<_> =
        [owner, allocator, Some(effect.cause.text())].into_iter().flatten().collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Stop;
    use hugepilot_units::Bytes;

    use super::*;
    use crate::run::{HugeMemory, Libc, PageOwner, ProgramKind};

    fn mib(anonymous: u64, shared: u64, hugetlb: u64) -> HugeMemory {
        HugeMemory {
            anonymous_thp_bytes: Bytes::mib(anonymous),
            shared_thp_bytes: Bytes::mib(shared),
            hugetlb_2m_bytes: Bytes::mib(hugetlb),
            hugetlb_1g_bytes: Bytes::ZERO,
        }
    }

    #[test]
    fn pages_of_less_than_half_of_memory_come_with_all_memory() {
        let text = |memory_bytes| {
            let (pages, mode_bytes) = (mib(0, 0, 6), Bytes::mib(6));
            EffectCause::HugePages { pages, mode_bytes, memory_bytes }.text()
        };
        assert_eq!(text(Bytes::mib(106)), "6MiB on 2MiB hugetlb pages, of 106MiB of memory");
        assert_eq!(text(Bytes::mib(8)), "6MiB on 2MiB hugetlb pages");
        let all = "1MiB on transparent huge pages, 2MiB on those of files and shared memory, \
                   3MiB on 2MiB hugetlb pages";
        assert_eq!(mib(1, 2, 3).to_string(), all);
    }

    #[test]
    fn every_cause_has_a_sentence_and_obstacles_have_help() {
        let pages = mib(4, 0, 0);
        let with_help = [
            EffectCause::LoaderBypassed { program: ProgramKind::Static },
            EffectCause::LibcLacksTunable { libc: Libc::Musl },
            EffectCause::EmptyPool { page_bytes: Bytes::mib(2) },
            EffectCause::OwnAllocator { library: "libjemalloc.so.2".to_owned() },
            EffectCause::ThpNever,
            EffectCause::PromotionNotPermitted,
            EffectCause::LibcThpBug,
            EffectCause::Fragmented { free_bytes: Bytes::mib(6) },
        ];
        for cause in &with_help {
            assert!(!cause.text().is_empty() && !cause.help().is_empty(), "{cause:?}");
        }
        let without_help = [
            EffectCause::AllocatorLoaded { pages },
            EffectCause::NoHugePages,
            EffectCause::OtherHugePages { pages },
            EffectCause::UnexpectedThp { pages },
            EffectCause::ThpOffNotSampled,
            EffectCause::LibraryNotLoaded,
            EffectCause::PromotionStopped { stop: Stop::NoHugePages },
            EffectCause::NotSampled { wall_seconds: 0.25 },
            EffectCause::Unreadable,
            EffectCause::LittleMemory { rss_peak_bytes: Bytes::mib(3) },
            EffectCause::NothingAdvised,
            EffectCause::Unknown,
            EffectCause::NotMeasured,
        ];
        for cause in &without_help {
            assert!(!cause.text().is_empty() && cause.help().is_empty(), "{cause:?}");
        }
    }

    #[test]
    fn the_owner_of_the_pages_precedes_the_cause() {
        let owner = PageOwner {
            process: "sh".to_owned(),
            bytes: Bytes::mib(4),
            largest_process: "redis-server".to_owned(),
            largest_bytes: Bytes::mib(300),
        };
        let effect =
            Effect { owner: Some(owner), ..Effect::new(Some(false), EffectCause::NothingAdvised) };
        let text = "4MiB on such pages belong to sh; redis-server, which has the most memory \
                    (300MiB), has none; the program advised no memory";
        assert_eq!(effect_text(&effect), text);
        let served = Effect {
            allocator_serves: Some(true),
            ..Effect::new(Some(true), EffectCause::NoHugePages)
        };
        let text = "the preloaded allocator serves the program; no huge pages, as intended";
        assert_eq!(effect_text(&served), text);
    }
}
