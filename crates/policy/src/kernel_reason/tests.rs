//! The rules, as Linux 6.18 follows them: each table was compared with the pages and the mark that
//! the kernel gave.

use ThpWord::{
    Advise, Always, Defer, DeferMadvise, Deny, Force, Inherit, Madvise, Never, WithinSize,
};
use hugepilot_record::{KernelCode as Code, Khugepaged, Outlook, Protection, VmFlags};
use hugepilot_units::{AddrRange, Nanos, Region, VirtAddr};

use super::*;

const KHUGEPAGED: Khugepaged = Khugepaged {
    defrag: true,
    pages_to_scan: 4096,
    scan_sleep_ns: Nanos::seconds(10),
    max_ptes_none: 511,
    max_ptes_swap: 64,
    max_ptes_shared: 256,
};

const SMALLER: ThpSize =
    ThpSize { page_bytes: Bytes::kib(64), enabled: Some(Always), shmem_enabled: Some(Always) };

/// The settings of a usual kernel, and those in question. Pages of 64 KiB are enabled, so that the
/// mark of the kernel cannot replace a rule.
fn settings(enabled: ThpWord, shmem: ThpWord, of_size: ThpSize) -> ThpConfig {
    ThpConfig {
        enabled: Some(enabled),
        defrag: Some(Madvise),
        shmem_enabled: Some(shmem),
        sizes: vec![SMALLER, of_size],
        khugepaged: Some(KHUGEPAGED),
    }
}

fn size(enabled: Option<ThpWord>, shmem_enabled: Option<ThpWord>) -> ThpSize {
    ThpSize { page_bytes: Bytes::mib(2), enabled, shmem_enabled }
}

fn usual(enabled: ThpWord) -> ThpConfig {
    let own = size(Some(Inherit), Some(Inherit));
    ThpConfig { sizes: vec![own], ..settings(enabled, Never, own) }
}

fn view(thp: &ThpConfig) -> KernelView<'_> {
    let free_huge = Some(Bytes::gib(1));
    KernelView { sizes: PageSizes::X86_64, thp, thp_disabled: false, free_huge }
}

/// A mapping of 8 MiB at an aligned address, with the mark that the kernel gives.
fn mapping(kind: MappingKind, flags: &str, thp_eligible: bool) -> Mapping {
    let range = AddrRange::at(VirtAddr::new(64 << 20), Bytes::mib(8));
    Mapping {
        kind,
        flags: VmFlags::parse(flags),
        thp_eligible,
        protection: Protection {
            shared: kind == MappingKind::SharedMemory,
            ..Protection::default()
        },
        ..Mapping::anonymous(range)
    }
}

fn heap(flags: &str, thp_eligible: bool) -> Mapping {
    mapping(MappingKind::Anonymous, flags, thp_eligible)
}

fn pages(resident: u64, swapped: u64, shared: u64) -> RegionPages {
    RegionPages { swapped, shared, ..RegionPages::on_base_pages(Region::new(32), resident) }
}

fn code(reason: Option<KernelReason>) -> Option<Code> {
    reason.map(|reason| reason.code())
}

#[test]
fn private_memory_follows_the_setting_of_its_size_and_the_advice() {
    let (never, unasked) = (Some(Code::ThpNever), Some(Code::NotAdvised));
    // Reason without advice, and with it.
    let table = [
        (Always, Some(Inherit), [None, None]),
        (Madvise, Some(Inherit), [unasked, None]),
        (Never, Some(Inherit), [never, never]),
        (Always, None, [None, None]),
        (Madvise, None, [unasked, None]),
        (Never, None, [never, never]),
        (Never, Some(Always), [None, None]),
        (Never, Some(Madvise), [unasked, None]),
        (Always, Some(Madvise), [unasked, None]),
        (Always, Some(Never), [never, never]),
        (Madvise, Some(Never), [never, never]),
    ];
    for (enabled, own, expected) in table {
        let thp = settings(enabled, Never, size(own, None));
        for (flags, expected) in [("rd wr", expected[0]), ("rd wr hg", expected[1])] {
            for kind in [MappingKind::Anonymous, MappingKind::Stack] {
                let mapping = mapping(kind, flags, expected.is_none());
                let reason = view(&thp).mapping_reason(&mapping, None);
                let overrides = own.is_some_and(|own| own != Inherit);
                let setting = if overrides { "hugepages-2048kB/enabled" } else { "enabled" };
                if let Some(
                    KernelReason::ThpNever { setting: found }
                    | KernelReason::NotAdvised { setting: found },
                ) = &reason
                {
                    assert_eq!(found, setting);
                }
                assert_eq!(code(reason), expected, "{enabled} {own:?} {flags}");
            }
        }
    }
}

#[test]
fn shared_memory_follows_its_own_settings() {
    let (never, unasked) = (Some(Code::ShmemNever), Some(Code::ShmemNotAdvised));
    let table = [
        (Always, Inherit, [None, None]),
        (WithinSize, Inherit, [None, None]),
        (Advise, Inherit, [unasked, None]),
        (Never, Inherit, [never, never]),
        (Deny, Inherit, [never, never]),
        (Force, Inherit, [None, None]),
        (Never, Always, [None, None]),
        (Never, WithinSize, [None, None]),
        (Never, Advise, [unasked, None]),
        (Always, Never, [never, never]),
        (Deny, Always, [never, never]),
        (Deny, WithinSize, [never, never]),
        (Force, Always, [never, never]),
    ];
    for enabled in [Always, Never] {
        for (shmem, own, expected) in table {
            let of_size = size(Some(Inherit), Some(own));
            let thp = settings(enabled, shmem, of_size);
            for (flags, expected) in [("rd wr sh", expected[0]), ("rd wr sh hg", expected[1])] {
                let mapping = mapping(MappingKind::SharedMemory, flags, expected.is_none());
                let reason = view(&thp).mapping_reason(&mapping, None);
                assert_eq!(code(reason), expected, "{shmem} {own} {flags}");
            }
        }
    }
}

#[test]
fn a_tmpfs_follows_its_mount_unless_the_setting_denies_or_forces() {
    let mount = || "/dev/shm".to_owned();
    let (never, unasked) = (Some(Code::TmpfsNever), Some(Code::TmpfsNotAdvised));
    let table = [
        (Never, Some(Never), [never, never]),
        (Always, Some(Never), [never, never]),
        (Never, Some(Advise), [unasked, None]),
        (Never, Some(Always), [None, None]),
        (Never, Some(WithinSize), [None, None]),
        (Deny, Some(Always), [Some(Code::ShmemNever); 2]),
        (Force, Some(Never), [None, None]),
    ];
    for (shmem, huge, expected) in table {
        let inherit = size(Some(Inherit), Some(Inherit));
        let thp = settings(Never, shmem, inherit);
        let tmpfs = Tmpfs { mount: mount(), namespace: None, huge };
        for (flags, expected) in [("rd wr sh", expected[0]), ("rd wr sh hg", expected[1])] {
            for kind in [MappingKind::SharedMemory, MappingKind::File] {
                let mapping = mapping(kind, flags, expected.is_none());
                let reason = view(&thp).mapping_reason(&mapping, Some(&tmpfs));
                assert_eq!(code(reason), expected, "{shmem} {huge:?} {flags}");
            }
        }
    }
    let unknown = Tmpfs { mount: mount(), namespace: None, huge: None };
    let thp = usual(Always);
    for (eligible, expected) in [(true, None), (false, Some(Code::NotEligible))] {
        let mapping = mapping(MappingKind::File, "rd", eligible);
        assert_eq!(code(view(&thp).mapping_reason(&mapping, Some(&unknown))), expected);
    }
}

#[test]
fn the_kind_the_place_and_the_program_come_before_settings() {
    let private_zero = Mapping {
        name: "/dev/zero".to_owned(),
        protection: Protection::default(),
        ..mapping(MappingKind::SharedMemory, "rd wr", false)
    };
    let short = Mapping {
        range: AddrRange::at(VirtAddr::new(64 << 20), Bytes::kib(2044)),
        ..heap("rd wr", false)
    };
    let between = Mapping {
        range: AddrRange::at(VirtAddr::new((64 << 20) + 4096), Bytes::mib(3)),
        ..heap("rd wr", false)
    };
    let shifted_file =
        Mapping { offset: Bytes::kib(4), ..mapping(MappingKind::SharedMemory, "rd wr sh", false) };
    // brk and a cut mapping leave offsets in private memory, which do not matter.
    let shifted_heap = Mapping { offset: Bytes::kib(4), ..heap("rd wr", false) };
    let table = [
        (mapping(MappingKind::Special, "io", false), Some(Code::Special)),
        (mapping(MappingKind::Hugetlb, "ht", false), None),
        (mapping(MappingKind::File, "rd ex", false), Some(Code::File)),
        (mapping(MappingKind::File, "rd ex", true), None),
        (private_zero, Some(Code::ThpNever)),
        (short, Some(Code::TooSmall)),
        (between, Some(Code::Unaligned)),
        (shifted_file.clone(), Some(Code::ShmemNever)),
        (shifted_heap, Some(Code::ThpNever)),
        (heap("rd wr nh", false), Some(Code::Nohugepage)),
        (mapping(MappingKind::Stack, "rd wr gd", false), Some(Code::ThpNever)),
        (heap("rd wr lo", false), Some(Code::ThpNever)),
    ];
    let thp = usual(Never);
    for (mapping, expected) in table {
        assert_eq!(code(view(&thp).mapping_reason(&mapping, None)), expected, "{mapping:?}");
    }
    // Where huge pages are allowed, or were when the memory was mapped, its place is the reason.
    for word in [Advise, Always] {
        let thp = settings(Never, word, size(Some(Inherit), Some(Inherit)));
        let reason = code(view(&thp).mapping_reason(&shifted_file, None));
        assert_eq!(reason, Some(Code::Unaligned), "{word:?}");
    }
}

#[test]
fn a_process_that_disabled_thp_has_that_reason_before_settings() {
    let thp = usual(Never);
    let disabled = KernelView { thp_disabled: true, ..view(&thp) };
    let reason = |mapping: &Mapping| code(disabled.mapping_reason(mapping, None));
    assert_eq!(reason(&heap("rd wr hg", false)), Some(Code::ThpDisabled));
    assert_eq!(reason(&mapping(MappingKind::SharedMemory, "sh", false)), Some(Code::ThpDisabled));
    assert_eq!(reason(&heap("rd wr nh", false)), Some(Code::Nohugepage));
    assert_eq!(reason(&mapping(MappingKind::File, "ex", false)), Some(Code::File));
}

#[test]
fn locked_memory_and_stacks_may_become_huge() {
    let thp = usual(Always);
    for mapping in [heap("rd wr lo", true), mapping(MappingKind::Stack, "rd wr gd", true)] {
        assert_eq!(view(&thp).mapping_reason(&mapping, None), None);
    }
}

#[test]
fn the_mark_of_the_kernel_decides_against_a_rule() {
    let thp = usual(Always);
    // PR_THP_DISABLE_EXCEPT_ADVISED shows only in the mark.
    let reason = view(&thp).mapping_reason(&heap("rd wr", false), None);
    assert_eq!(code(reason), Some(Code::NotEligible));
    let never = usual(Never);
    assert_eq!(view(&never).mapping_reason(&heap("rd wr", true), None), None);
    // A smaller size alone makes a mapping eligible: the mark proves nothing about huge pages.
    let mut smaller = usual(Never);
    smaller.sizes.push(SMALLER);
    let reason = view(&smaller).mapping_reason(&heap("rd wr", true), None);
    assert_eq!(code(reason), Some(Code::ThpNever));
    let inherit = size(Some(Inherit), Some(Inherit));
    let within = settings(Never, WithinSize, inherit);
    let short = mapping(MappingKind::SharedMemory, "rd wr sh", false);
    let reason = view(&within).mapping_reason(&short, None);
    assert_eq!(code(reason), Some(Code::BeyondFileSize));
    let none = ThpConfig::default();
    for (eligible, expected) in [(false, Some(Code::NoThp)), (true, None)] {
        assert_eq!(code(view(&none).mapping_reason(&heap("", eligible), None)), expected);
    }
}

/// Reason of one region of memory that the kernel allows on huge pages.
fn reason_of(khugepaged: Khugepaged, mapping: &Mapping, pages: &RegionPages) -> Code {
    let thp = ThpConfig { khugepaged: Some(khugepaged), ..usual(Always) };
    let view = view(&thp);
    let whole = view.mapping_reason(mapping, None);
    assert_eq!(whole, None);
    view.region_reason(mapping, whole.as_ref(), pages).code()
}

#[test]
fn khugepaged_collapses_regions_within_its_limits() {
    let limits = Khugepaged { max_ptes_none: 64, ..KHUGEPAGED };
    let (plain, watched) = (heap("rd wr", true), heap("rd wr um", true));
    let table = [
        (&plain, pages(512, 0, 0), Code::KhugepagedPending),
        (&plain, pages(448, 0, 0), Code::KhugepagedPending),
        (&plain, pages(447, 0, 0), Code::MaxPtesNone),
        (&plain, pages(400, 48, 0), Code::KhugepagedPending),
        (&plain, pages(400, 64, 0), Code::KhugepagedPending),
        (&plain, pages(400, 65, 0), Code::MaxPtesSwap),
        (&plain, pages(512, 0, 256), Code::KhugepagedPending),
        (&plain, pages(512, 0, 257), Code::MaxPtesShared),
        (&watched, pages(512, 0, 0), Code::KhugepagedPending),
        (&watched, pages(511, 0, 0), Code::Userfaultfd),
    ];
    for (mapping, pages, expected) in table {
        assert_eq!(reason_of(limits, mapping, &pages), expected, "{pages:?}");
    }
    // The default tolerates any region with a resident page.
    assert_eq!(reason_of(KHUGEPAGED, &plain, &pages(1, 0, 0)), Code::KhugepagedPending);
}

#[test]
fn of_files_the_page_cache_counts_which_the_process_maps_in_part() {
    let limits = Khugepaged { max_ptes_none: 0, ..KHUGEPAGED };
    let text = mapping(MappingKind::File, "rd ex", true);
    assert_eq!(reason_of(limits, &text, &pages(1, 0, 512)), Code::KhugepagedPending);
}

#[test]
fn without_a_free_block_the_kernel_may_still_promote() {
    let thp = usual(Always);
    let block = PageSizes::X86_64.huge;
    for (free_huge, expected) in [
        (Some(Bytes::ZERO), Code::NoFreeBlock),
        (Some(block), Code::KhugepagedPending),
        (None, Code::KhugepagedPending),
    ] {
        let view = KernelView { free_huge, ..view(&thp) };
        let reason = view.region_reason(&heap("rd wr", true), None, &pages(512, 0, 0));
        assert_eq!((reason.code(), reason.outlook()), (expected, Outlook::MayPromote));
    }
    let view = KernelView { free_huge: Some(Bytes::ZERO), ..view(&thp) };
    assert_eq!(
        view.pending(&heap("rd wr", true), None),
        KernelReason::NoFreeBlock { khugepaged_defrag: true, defrag: Some(Madvise) }
    );
}

/// `defrag` in the reason of memory that the kernel allows on huge pages.
fn defrag_of(view: &KernelView<'_>, mapping: &Mapping) -> Option<ThpWord> {
    match view.pending(mapping, None) {
        KernelReason::KhugepagedPending { defrag, .. }
        | KernelReason::NoFreeBlock { defrag, .. } => defrag,
        other => panic!("{other:?}"),
    }
}

#[test]
fn defrag_is_a_reason_where_page_faults_compact_no_memory() {
    // `defrag` in the reason without advice, and with it.
    let table = [
        (Some(Always), [None, None]),
        (Some(Defer), [Some(Defer), Some(Defer)]),
        (Some(DeferMadvise), [Some(DeferMadvise), None]),
        (Some(Madvise), [Some(Madvise), None]),
        (Some(Never), [Some(Never), Some(Never)]),
        (None, [None, None]),
    ];
    let kinds = [MappingKind::Anonymous, MappingKind::Stack, MappingKind::SharedMemory];
    for (defrag, expected) in table {
        let thp = ThpConfig { defrag, ..usual(Always) };
        for free in [Bytes::ZERO, Bytes::gib(1)] {
            let view = KernelView { free_huge: Some(free), ..view(&thp) };
            for (flags, expected) in ["rd wr", "rd wr hg"].into_iter().zip(expected) {
                for kind in kinds {
                    let found = defrag_of(&view, &mapping(kind, flags, true));
                    assert_eq!(found, expected, "{defrag:?} {flags} {kind:?} {free}");
                }
            }
        }
    }
}

#[test]
fn defrag_is_no_reason_for_files() {
    let thp = ThpConfig { defrag: Some(Never), ..usual(Always) };
    let text = mapping(MappingKind::File, "rd ex", true);
    assert_eq!(defrag_of(&view(&thp), &text), None);
}

#[test]
fn edges_are_unaligned_whatever_the_settings() {
    let part = Mapping {
        range: AddrRange::at(VirtAddr::new((64 << 20) + 4096), Bytes::mib(8)),
        ..heap("rd wr", false)
    };
    let inner = RegionPages { region: Region::new(33), ..pages(512, 0, 0) };
    for (thp, expected) in [
        (usual(Never), Code::ThpNever),
        (usual(Madvise), Code::NotAdvised),
        (usual(Always), Code::NotEligible),
    ] {
        let view = view(&thp);
        let whole = view.mapping_reason(&part, None);
        let reason = |pages| view.region_reason(&part, whole.as_ref(), &pages).code();
        assert_eq!(reason(pages(511, 0, 0)), Code::Unaligned);
        assert_eq!(reason(inner), expected);
    }
    let file = mapping(MappingKind::File, "rd ex", false);
    let thp = usual(Never);
    let whole = view(&thp).mapping_reason(&file, None);
    let edge = RegionPages { region: Region::new(31), ..pages(9, 0, 0) };
    assert_eq!(view(&thp).region_reason(&file, whole.as_ref(), &edge), KernelReason::File);
}

#[test]
fn only_pending_memory_may_still_become_huge() {
    let setting = || "enabled".to_owned();
    for reason in [
        KernelReason::ThpNever { setting: setting() },
        KernelReason::NotAdvised { setting: setting() },
        KernelReason::ThpDisabled,
        KernelReason::MaxPtesNone { max_ptes_none: 0 },
        KernelReason::File,
    ] {
        assert_eq!(reason.outlook(), Outlook::WillNot, "{reason:?}");
    }
    let khugepaged = Some(KHUGEPAGED);
    let pending = KernelReason::KhugepagedPending { khugepaged, defrag: Some(Never) };
    assert_eq!(pending.outlook(), Outlook::MayPromote);
}
