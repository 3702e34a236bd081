//! Sentences for the effect of a page mode.

use hugepilot_record::run::{Effect, EffectCause, HugeMemory, Libc, PageOwner, ProgramKind};
use hugepilot_units::Bytes;

use crate::Sentence;

/// `--pages thp` works for any allocator.
const FROM_OUTSIDE: &str =
    "--pages thp: promotes memory from outside, whichever allocator the program uses";

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

impl Sentence for PageOwner {
    fn text(&self) -> String {
        let Self { process, bytes, largest_process, largest_bytes } = self;
        format!(
            "{bytes} on such pages belong to {process}; {largest_process}, which has the most \
             memory ({largest_bytes}), has none"
        )
    }
}

impl Sentence for EffectCause {
    fn text(&self) -> String {
        match self {
            Self::HugePages { .. }
            | Self::AllocatorLoaded { .. }
            | Self::NoHugePages
            | Self::OtherHugePages { .. }
            | Self::UnexpectedThp { .. }
            | Self::ThpOffNotSampled => evidence(self),
            Self::NotSampled { .. }
            | Self::Unreadable
            | Self::LittleMemory { .. }
            | Self::NothingAdvised
            | Self::Unknown
            | Self::NotMeasured => uncertain(self),
            _ => obstacle(self),
        }
    }

    fn help(&self) -> Vec<String> {
        let outside = || vec![FROM_OUTSIDE.to_owned()];
        match self {
            Self::LoaderBypassed { .. }
            | Self::LibcLacksTunable { .. }
            | Self::OwnAllocator { .. }
            | Self::LibcThpBug => outside(),
            Self::EmptyPool { page_bytes } => vec![
                format!("sudo hugepilot pool set --size {page_bytes} --count N"),
                "for this command alone: --pool AMOUNT".to_owned(),
            ],
            Self::ThpNever => {
                vec![
                    "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
                        .to_owned(),
                ]
            }
            Self::Fragmented { .. } => {
                vec!["echo 1 | sudo tee /proc/sys/vm/compact_memory".to_owned()]
            }
            Self::PromotionNotPermitted => vec!["run it as root".to_owned()],
            Self::Unavailable { reason } => reason.help(),
            _ => Vec::new(),
        }
    }
}

fn evidence(cause: &EffectCause) -> String {
    match cause {
        EffectCause::HugePages { pages, mode_bytes, memory_bytes }
            if mode_bytes.times(2) < *memory_bytes =>
        {
            format!("{}, of {memory_bytes} of memory", by_kind(pages))
        }
        EffectCause::HugePages { pages, .. } => by_kind(pages),
        EffectCause::AllocatorLoaded { pages } => {
            format!("the preloaded allocator serves the program, with {}", by_kind(pages))
        }
        EffectCause::OtherHugePages { pages } => {
            format!("THP was off, and the program used other huge pages: {}", by_kind(pages))
        }
        EffectCause::UnexpectedThp { pages } => {
            format!("THP was off, and there were some nevertheless: {}", by_kind(pages))
        }
        EffectCause::ThpOffNotSampled => {
            "THP was off; the program ended before the first memory sample".to_owned()
        }
        _ => "no huge pages, as intended".to_owned(),
    }
}

fn obstacle(cause: &EffectCause) -> String {
    match cause {
        EffectCause::LoaderBypassed { program } => {
            let kind = match program {
                ProgramKind::Static => "it is linked statically",
                ProgramKind::ThirtyTwoBit => "it is a 32-bit program",
                ProgramKind::SetId => "it is set-user-ID or set-group-ID",
            };
            format!("the program ignores preloaded libraries and malloc tunables: {kind}")
        }
        EffectCause::LibcLacksTunable { libc: Libc::Musl } => {
            "the C library is musl, which has no glibc.malloc.hugetlb".to_owned()
        }
        EffectCause::LibcLacksTunable { libc: Libc::OldGlibc } => {
            "the C library has no glibc.malloc.hugetlb, which requires glibc 2.35".to_owned()
        }
        EffectCause::EmptyPool { page_bytes } => {
            format!("the pool has no free page of {page_bytes}")
        }
        EffectCause::OwnAllocator { library } => {
            format!("the program has its own allocator ({library}), which ignores this setting")
        }
        EffectCause::LibraryNotLoaded => {
            "no process mapped the library: the loader of the program did not load it".to_owned()
        }
        EffectCause::ThpNever => "the system's THP setting is never".to_owned(),
        EffectCause::PromotionNotPermitted => {
            "memory could not be promoted from outside: that requires root".to_owned()
        }
        EffectCause::PromotionStopped { stop } => {
            format!("memory was not promoted from outside: {stop}")
        }
        EffectCause::LibcThpBug => {
            "the C library advised nothing in this run: glibc before 2.38 compares the THP setting \
             with uninitialised memory, so it advises in some runs only"
                .to_owned()
        }
        EffectCause::Fragmented { free_bytes } => format!(
            "memory is fragmented or full: at the start, {free_bytes} were free in blocks of \
             huge-page size"
        ),
        EffectCause::Unavailable { reason } => reason.to_string(),
        _ => String::new(),
    }
}

fn uncertain(cause: &EffectCause) -> String {
    match cause {
        EffectCause::NotSampled { wall_seconds } => format!(
            "the program ended after {:.0} ms, before the first memory sample",
            wall_seconds * 1e3
        ),
        EffectCause::Unreadable => {
            "the memory of the program is unreadable: it has other privileges than hugepilot"
                .to_owned()
        }
        EffectCause::LittleMemory { rss_peak_bytes } => {
            format!("the program had {rss_peak_bytes} of memory, too little for huge pages")
        }
        EffectCause::NothingAdvised => "the program advised no memory".to_owned(),
        EffectCause::NotMeasured => "no run was complete".to_owned(),
        _ => "no known cause: the program may allocate blocks smaller than a huge page, or not \
              by the C library"
            .to_owned(),
    }
}

/// Memory on huge pages, by kind; kinds without memory are omitted.
pub(crate) fn by_kind(pages: &HugeMemory) -> String {
    let kinds = [
        (pages.anonymous_thp_bytes, "on transparent huge pages"),
        (pages.shared_thp_bytes, "on those of files and shared memory"),
        (pages.hugetlb_2m_bytes, "on 2MiB hugetlb pages"),
        (pages.hugetlb_1g_bytes, "on 1GiB hugetlb pages"),
    ];
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(bytes, _)| *bytes > Bytes::ZERO)
        .map(|(bytes, kind)| format!("{bytes} {kind}"))
        .collect();
    if parts.is_empty() { "no huge pages".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Stop;

    use super::*;

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
        assert_eq!(by_kind(&mib(1, 2, 3)), all);
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
