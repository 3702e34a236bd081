//! The sentences, and what they suggest to change.

use hugepilot_units::Nanos;

use hugepilot_record::{Khugepaged, SkipReason, ThpWord};

use super::*;

fn main_reason(reason: KernelReason, eligible: u64, skip: Option<SkipReason>) -> MainReason {
    let eligible_bytes = Some(Bytes::mib(eligible));
    MainReason { reason, bytes: Bytes::mib(256), eligible_bytes, skip }
}

fn sentence(huge: u64, main: MainReason) -> String {
    let (huge_bytes, resident_bytes) = (Bytes::mib(huge), Bytes::mib(257));
    let summary = StatusSummary::KernelWillNotPromote { huge_bytes, resident_bytes, main };
    of(&summary, None).text()
}

fn of(summary: &StatusSummary, zero_filled: Option<Bytes>) -> Summary<'_> {
    Summary { pid: Pid(7), summary, zero_filled }
}

fn never() -> KernelReason {
    KernelReason::ThpNever { setting: "enabled".to_owned() }
}

#[test]
fn the_summary_says_what_tune_can_promote() {
    let none = main_reason(never(), 0, None);
    let unknown = MainReason { eligible_bytes: None, ..none.clone() };
    let locked = main_reason(never(), 0, Some(SkipReason::Mlocked));
    let disabled = main_reason(KernelReason::ThpDisabled, 0, Some(SkipReason::ThpDisabled));
    let full = main_reason(never(), 0, Some(SkipReason::CgroupHeadroom));
    for (main, expected) in [
        (
            main_reason(never(), 255, None),
            "THP is never; tune may promote 255MiB of it, and selects what pays",
        ),
        (
            main_reason(never(), 2, None),
            "THP is never; tune may promote 2MiB of it, and selects what pays",
        ),
        (none, "THP is never"),
        (unknown, "THP is never"),
        (locked, "THP is never; tune cannot promote it: the memory is locked"),
        (
            full,
            "THP is never; tune cannot promote it: the cgroup of the process has too little \
             headroom for a safe promotion",
        ),
        (
            disabled,
            "huge pages are disabled for the process (PR_SET_THP_DISABLE); tune cannot \
             promote it either",
        ),
    ] {
        assert_eq!(sentence(0, main), format!("0B of 257MiB huge: {expected}"));
    }
    let part = MainReason { bytes: Bytes::mib(100), ..main_reason(never(), 0, None) };
    assert_eq!(sentence(57, part), "57MiB of 257MiB huge: for 100MiB, THP is never");
}

#[test]
fn memory_that_the_kernel_may_still_promote_says_so() {
    let khugepaged = Khugepaged {
        defrag: true,
        pages_to_scan: 4096,
        scan_sleep_ns: Nanos::seconds(10),
        max_ptes_none: 511,
        max_ptes_swap: 64,
        max_ptes_shared: 256,
    };
    let reason = KernelReason::KhugepagedPending { khugepaged: Some(khugepaged), defrag: None };
    let (huge_bytes, resident_bytes) = (Bytes::ZERO, Bytes::mib(256));
    let main = main_reason(reason, 256, None);
    let summary = StatusSummary::KernelMayPromote { huge_bytes, resident_bytes, main };
    let summary = of(&summary, None);
    assert_eq!(
        summary.text(),
        "0B of 256MiB huge: khugepaged has not collapsed the memory yet; it scans 4096 pages \
         every 10s, and collapses regions in use with at most 511 pages not resident \
         (max_ptes_none); khugepaged needs 3 min or more for it; tune may promote 256MiB of it \
         now, and selects what pays"
    );
    assert_eq!(summary.help(), ["promote the hottest regions: hugepilot tune -p 7"]);
    let reason = KernelReason::NotAdvised { setting: "enabled".into() };
    let (huge_bytes, main) = (Bytes::mib(40), main_reason(reason, 216, None));
    let tuned = StatusSummary::KernelWillNotPromote { huge_bytes, resident_bytes, main };
    let help = of(&tuned, None).help();
    assert_eq!(help, ["see whether more would pay: hugepilot tune --dry-run -p 7"]);
}

#[test]
fn the_summary_names_bloat_and_its_remedy() {
    let (huge_bytes, resident_bytes) = (Bytes::mib(600), Bytes::mib(608));
    let all = StatusSummary::AllHuge { huge_bytes, resident_bytes };
    let bloated = of(&all, Some(Bytes::mib(300)));
    assert_eq!(
        bloated.text(),
        "600MiB of 608MiB huge, 300MiB of it zero-filled; the rest is in files, or too small for a \
         huge page"
    );
    let debloat = "see what can be freed: sudo hugepilot debloat -p 7 --dry-run";
    assert_eq!(bloated.help(), [debloat]);
    let main = main_reason(never(), 8, None);
    let part = StatusSummary::KernelWillNotPromote { huge_bytes, resident_bytes, main };
    let part = of(&part, Some(Bytes::mib(300)));
    assert!(part.text().starts_with("600MiB of 608MiB huge, 300MiB of it zero-filled: "));
    assert_eq!(part.help(), [debloat, "see whether more would pay: hugepilot tune --dry-run -p 7"]);
    for little in [None, Some(Bytes::ZERO), Some(Bytes::mib(59))] {
        let little = of(&all, little);
        assert!(!little.text().contains("zero-filled") && little.help().is_empty());
    }
}

#[test]
fn the_setting_that_keeps_page_faults_from_compacting_memory_is_named() {
    let table = [
        (ThpWord::Never, "defrag is never"),
        (ThpWord::Defer, "defrag is defer"),
        (ThpWord::Madvise, "defrag is madvise and the program did not ask"),
        (ThpWord::DeferMadvise, "defrag is defer+madvise and the program did not ask"),
    ];
    for (word, expected) in table {
        let defrag = Some(word);
        let end = format!("; page faults use only free blocks, because {expected}");
        for reason in [
            KernelReason::KhugepagedPending { khugepaged: None, defrag },
            KernelReason::NoFreeBlock { khugepaged_defrag: true, defrag },
        ] {
            assert!(reason.text().ends_with(&end), "{}", reason.text());
        }
    }
    for (reason, help) in [
        (KernelReason::KhugepagedPending { khugepaged: None, defrag: None }, 0),
        (KernelReason::NoFreeBlock { khugepaged_defrag: true, defrag: None }, 1),
    ] {
        assert!(!reason.text().contains("page faults"), "{}", reason.text());
        assert_eq!(reason.help().len(), help, "{:?}", reason.help());
    }
}

#[test]
fn what_to_change_without_a_free_block_follows_the_settings() {
    let help = |khugepaged_defrag, defrag| {
        KernelReason::NoFreeBlock { khugepaged_defrag, defrag: Some(defrag) }.help()
    };
    let tee = |setting: &str| format!("sudo tee /sys/kernel/mm/transparent_hugepage/{setting}");
    let compact = "compact free memory: echo 1 | sudo tee /proc/sys/vm/compact_memory";
    let never = format!(
        "let later page faults compact memory, which can delay them: echo always | {}",
        tee("defrag")
    );
    assert_eq!(help(true, ThpWord::Never), [compact.to_owned(), never.clone()]);
    let khugepaged =
        format!("let khugepaged compact memory: echo 1 | {}", tee("khugepaged/defrag"));
    let off = [compact.to_owned(), khugepaged, never];
    assert_eq!(help(false, ThpWord::Defer), off);
    let advice = help(true, ThpWord::Madvise);
    assert_eq!(
        advice[..2],
        [compact, "huge pages from the start: sudo hugepilot run --pages thp -- CMD"]
    );
    assert!(advice[2].starts_with("or let all later page faults"), "{advice:?}");
    let pending =
        KernelReason::KhugepagedPending { khugepaged: None, defrag: Some(ThpWord::DeferMadvise) };
    assert_eq!(pending.help(), advice[1..]);
}

#[test]
fn every_skip_reason_of_status_has_words_and_what_to_change() {
    for (reason, changeable) in [
        (SkipReason::AlreadyHuge, false),
        (SkipReason::Stack, false),
        (SkipReason::Special, false),
        (SkipReason::Nohugepage, true),
        (SkipReason::ThpDisabled, true),
        (SkipReason::Mlocked, true),
        (SkipReason::SharedAfterFork, true),
        (SkipReason::Merged, true),
        (SkipReason::GuardPages, true),
        (SkipReason::File, false),
        (SkipReason::SharedMemory, true),
        (SkipReason::Userfaultfd, true),
        (SkipReason::MostlySwapped, true),
        (SkipReason::TooFewResident, true),
        (SkipReason::Unaligned, true),
        (SkipReason::CgroupHeadroom, true),
        (SkipReason::SystemHeadroom, true),
    ] {
        assert!(reason.text().contains(' '), "{reason}");
        assert_eq!(!reason.help().is_empty(), changeable, "{reason}");
        let ends = ["nothing can be changed", "nothing needs to change", "no setting changes that"];
        let says_so = ends.iter().any(|end| reason.text().ends_with(end));
        assert_eq!(says_so, !changeable, "{reason}");
    }
}

#[test]
fn a_setting_of_one_size_is_named_and_set() {
    let setting = || "hugepages-2048kB/enabled".to_owned();
    let reason = KernelReason::NotAdvised { setting: setting() };
    assert_eq!(
        reason.text(),
        "THP (hugepages-2048kB/enabled) is madvise and the program did not ask"
    );
    let set = "echo always | sudo tee \
               /sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";
    assert!(reason.help()[1].ends_with(set), "{:?}", reason.help());
    let shared = |value| KernelReason::ShmemNever { setting: setting(), value }.text();
    assert!(shared(ThpWord::Deny).ends_with("hugepages-2048kB/enabled is deny"));
    assert!(shared(ThpWord::Always).contains("shmem_enabled is force"));
}
