//! A process in a captured `/proc` and `/sys`, whose pagemap cannot be read.

use std::fs;

use hugepilot_kernel::Root;
use hugepilot_record::{KernelCode, Outlook, Pid};
use hugepilot_reports::status::StatusSummary;
use hugepilot_units::VirtAddr;

use super::*;

fn run(start: u64, pages: u64, huge: bool, zero: bool) -> PageRun {
    let sizes = PageSizes::X86_64;
    PageRun {
        range: AddrRange::at(VirtAddr::new(start), sizes.base.times(pages)),
        present: true,
        swapped: false,
        zero,
        huge,
        file: false,
    }
}

#[test]
fn runs_are_cut_at_region_borders() {
    let regions = count_regions(&[run((4 << 20) - 8192, 5, false, false)], PageSizes::X86_64);
    let counts: Vec<_> = regions.values().map(|p| (p.region.get(), p.resident)).collect();
    assert_eq!(counts, [(1, 2), (2, 3)]);
}

#[test]
fn the_zero_page_uses_no_memory() {
    let runs = [run(2 << 20, 512, true, true), run(4 << 20, 512, true, false)];
    let regions = count_regions(&runs, PageSizes::X86_64);
    let counts: Vec<_> = regions.values().map(|p| (p.resident, p.huge)).collect();
    assert_eq!(counts, [(0, false), (512, true)]);
}

/// A mapping of smaps: its address and size in MiB, its resident KiB, its mark, flags and name.
fn area(at: u64, mib: u64, rss: u64, eligible: u8, flags: &str, name: &str) -> String {
    let (start, end) = (at << 20, (at + mib) << 20);
    let shared = if flags.contains("sh") { 's' } else { 'p' };
    let inode = u8::from(name.starts_with('/'));
    format!(
        "{start:x}-{end:x} rw-{shared} 00000000 00:17 {inode} {name}\nSize: {} kB\nRss: {rss} \
         kB\nTHPeligible: {eligible}\nVmFlags: {flags}\n",
        mib << 10
    )
}

/// Captures a process with mappings of every kind.
fn captured(enabled: &str, thp_enabled: u8) -> (tempfile::TempDir, Process) {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let on = u8::from(thp_enabled == 1 && enabled.contains("[always]"));
    let smaps = [
        area(64, 256, 256 << 10, on, "rd wr", "[heap]"),
        area(512, 8, 8192, 0, "rd wr nh", ""),
        area(528, 8, 8192, 0, "rd wr sh", "/memfd:ring (deleted)"),
        area(544, 8, 8192, 0, "rd wr sh", "/dev/shm/pool"),
        area(560, 8, 4096, 0, "rd ex", "/usr/lib/libc.so.6"),
        area(577, 1, 1024, 0, "rd wr", ""),
        area(592, 64, 0, on, "rd wr", ""),
        area(700, 1, 4, 0, "rd ex de", "[vdso]"),
    ];
    write("proc/7/stat", &format!("7 (db) S {}", "1 ".repeat(49)));
    write("proc/7/smaps", &smaps.concat());
    write("proc/7/status", &format!("Name:\tdb\nTHP_enabled:\t{thp_enabled}\n"));
    write("proc/7/mountinfo", "24 1 0:23 / /dev/shm rw - tmpfs tmpfs rw,huge=advise\n");
    write("proc/7/pagemap", "");
    write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
    write("proc/buddyinfo", "Node 0, zone Normal 1 1 1 1 1 1 1 1 1 64 64\n");
    for (name, text) in [
        ("hpage_pmd_size", "2097152"),
        ("enabled", enabled),
        ("defrag", "always defer defer+madvise [madvise] never"),
        ("shmem_enabled", "always within_size advise [never] deny force"),
        ("hugepages-2048kB/enabled", "always [inherit] madvise never"),
        ("hugepages-2048kB/shmem_enabled", "always [inherit] within_size advise never"),
        ("khugepaged/defrag", "1"),
        ("khugepaged/pages_to_scan", "4096"),
        ("khugepaged/scan_sleep_millisecs", "10000"),
        ("khugepaged/max_ptes_none", "511"),
        ("khugepaged/max_ptes_swap", "64"),
        ("khugepaged/max_ptes_shared", "256"),
    ] {
        write(&format!("sys/kernel/mm/transparent_hugepage/{name}"), text);
    }
    let process = Process::open(&Root::at(dir.path()), Pid(7)).unwrap();
    (dir, process)
}

#[test]
fn a_captured_process_has_the_reasons_of_its_settings() {
    use KernelCode as Code;
    let always = "[always] madvise never";
    for (enabled, thp_enabled, heap, outlook) in [
        (always, 1, Code::KhugepagedPending, Outlook::MayPromote),
        ("always [madvise] never", 1, Code::NotAdvised, Outlook::WillNot),
        ("always madvise [never]", 1, Code::ThpNever, Outlook::WillNot),
        (always, 0, Code::ThpDisabled, Outlook::WillNot),
    ] {
        let (_dir, process) = captured(enabled, thp_enabled);
        let report = status(&process, true).unwrap();
        let bytes: Vec<Vec<(Code, Bytes)>> = report
            .mappings
            .iter()
            .map(|m| m.sizes.kernel_reason_bytes.iter().map(|(&c, &b)| (c, b)).collect())
            .collect();
        let is_disabled = thp_enabled == 0;
        let of = |code| if is_disabled { Code::ThpDisabled } else { code };
        let expected = [
            vec![(heap, Bytes::mib(256))],
            vec![(Code::Nohugepage, Bytes::mib(8))],
            vec![(of(Code::ShmemNever), Bytes::mib(8))],
            vec![(of(Code::TmpfsNotAdvised), Bytes::mib(8))],
            vec![(Code::File, Bytes::mib(4))],
            vec![(Code::TooSmall, Bytes::mib(1))],
            vec![],
            vec![(Code::Special, Bytes::kib(4))],
        ];
        assert_eq!(bytes, expected, "{enabled}");
        let first = &report.kernel_reasons[0];
        assert_eq!((first.reason.code(), first.outlook), (heap, outlook));
        let main = match report.summary {
            StatusSummary::KernelMayPromote { main, .. } if outlook == Outlook::MayPromote => main,
            StatusSummary::KernelWillNotPromote { main, .. } => main,
            other => panic!("{other:?}"),
        };
        assert_eq!((main.reason.code(), main.eligible_bytes), (heap, None));
        let unread = |w: &StatusWarning| matches!(w, StatusWarning::PagemapUnreadable { .. });
        assert!(report.warnings.iter().any(unread), "{:?}", report.warnings);
    }
}

/// Sizes of a mapping of four regions with `pages` resident base pages each, under `headroom`.
fn sizes_under(headroom: Headroom, pages: u64) -> Sizes {
    let (_dir, process) = captured("[always] madvise never", 1);
    let sizes = PageSizes::X86_64;
    let thp = thp::config(process.root(), sizes);
    let free_huge = Some(Bytes::gib(1));
    let mut reader = Reader {
        process: &process,
        sizes,
        read_contents: false,
        kernel: KernelView { sizes, thp: &thp, thp_disabled: false, free_huge },
        allowance: Allowance::new(headroom),
        mounts: None,
        reasons: BTreeMap::new(),
        warnings: Vec::new(),
    };
    let range = AddrRange::at(VirtAddr::new(64 << 20), Bytes::mib(8));
    let runs = [64_u64, 66, 68, 70].map(|mib| run(mib << 20, pages, false, false));
    let mut found = Sizes::default();
    reader.regions(&Mapping::anonymous(range), None, &runs, &mut found);
    found
}

fn system(system: Bytes) -> Headroom {
    Headroom { system, system_total: Bytes::mib(100), ..Headroom::UNLIMITED }
}

#[test]
fn memory_that_the_headroom_does_not_allow_is_not_eligible() {
    let cgroup = |cgroup| Headroom { cgroup, cgroup_limit: Bytes::mib(64), ..system(Bytes::MAX) };
    // The reserve is 8 MiB in the cgroup, and 4 MiB on the system; a whole region needs 2 MiB.
    for (headroom, reason) in [
        (cgroup(Bytes::mib(11)), None),
        (cgroup(Bytes::mib(9)), Some(SkipReason::CgroupHeadroom)),
        (system(Bytes::mib(7)), None),
        (system(Bytes::mib(5)), Some(SkipReason::SystemHeadroom)),
        (Headroom::UNLIMITED, None),
    ] {
        let found = sizes_under(headroom, 512);
        let skipped: BTreeMap<_, _> =
            reason.map(|reason| (reason, Bytes::mib(8))).into_iter().collect();
        let eligible = if reason.is_none() { Bytes::mib(8) } else { Bytes::ZERO };
        assert_eq!(found.eligible_bytes, eligible, "{headroom:?}");
        assert_eq!(found.not_huge_bytes, skipped, "{headroom:?}");
    }
}

#[test]
fn the_headroom_is_for_all_eligible_regions_together() {
    // A huge page adds 1 MiB to a half-resident region, and 4 MiB are reserved. Two fit.
    let found = sizes_under(system(Bytes::kib(8704)), 256);
    assert_eq!(found.eligible_bytes, Bytes::mib(2));
    assert_eq!(found.not_huge_bytes, BTreeMap::from([(SkipReason::SystemHeadroom, Bytes::mib(2))]));
}

#[test]
fn an_unreadable_headroom_is_a_warning() {
    let (dir, process) = captured("[always] madvise never", 1);
    let is_warned = || {
        let unreadable = |w: &StatusWarning| matches!(w, StatusWarning::HeadroomUnreadable { .. });
        status(&process, false).unwrap().warnings.iter().any(unreadable)
    };
    assert!(!is_warned());
    fs::remove_file(dir.path().join("proc/meminfo")).unwrap();
    assert!(is_warned());
}
