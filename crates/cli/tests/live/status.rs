//! `status` on a process with known memory: every number against the kernel's files, and no change
//! of the process.

use std::collections::BTreeMap;
use std::process::Command;

use hugepilot_kernel::Target;
use hugepilot_record::SkipReason;
use hugepilot_reports::status::{Sizes, StatusReport, StatusWarning};
use hugepilot_reports::tune::TuneWarning;
use hugepilot_testkit::{Victim, need, requires};
use hugepilot_units::Bytes;

use crate::look::{Area, faults, smaps, total};
use crate::tool::{HUGEPILOT, LIMIT, Running, hugepilot, tune_args};
use crate::workload::{SOON, Workload, open, sizes};

/// The parts that `layout.c` says it has, by name, and where each begins; and the program.
pub(crate) fn layout() -> (Victim, BTreeMap<String, u64>) {
    let victim = Victim::c("layout.c", &[]);
    let mut parts = BTreeMap::new();
    loop {
        let line = victim.line(SOON).expect("it gets ready");
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["part", name, start, _] => {
                let start = u64::from_str_radix(start.trim_start_matches("0x"), 16).unwrap();
                parts.insert(name.to_owned(), start);
            }
            _ => return (victim, parts),
        }
    }
}

fn status(pid: u32, more: &[&str]) -> StatusReport {
    let pid = pid.to_string();
    hugepilot(["status", "-p", &pid, "--json"].iter().chain(more)).exits(0).json()
}

/// Every mapping and the sums are what smaps says.
#[track_caller]
fn agrees(report: &StatusReport, areas: &[Area]) {
    let by_range: BTreeMap<_, _> =
        areas.iter().map(|area| ((area.start, area.end), area)).collect();
    assert_eq!(report.mappings.len(), areas.len());
    for mapping in &report.mappings {
        let area = by_range[&(mapping.range.start.get(), mapping.range.end.get())];
        let said =
            (mapping.sizes.size_bytes, mapping.sizes.resident_bytes, mapping.sizes.huge_bytes);
        assert_eq!(said, (area.get("Size"), area.get("Rss"), area.huge()), "{mapping:?}");
        let explained =
            mapping.sizes.huge_bytes + mapping.sizes.eligible_bytes + not_huge(&mapping.sizes);
        assert!(explained <= mapping.sizes.resident_bytes, "{mapping:?}");
        // Each byte on base pages has a reason of the kernel, and is eligible or skipped.
        let by_kernel: Bytes = mapping.sizes.kernel_reason_bytes.values().copied().sum();
        assert_eq!(by_kernel, mapping.sizes.eligible_bytes + not_huge(&mapping.sizes));
    }
    let sum = |of: fn(&Area) -> Bytes| areas.iter().map(of).sum::<Bytes>();
    assert_eq!(report.totals.resident_bytes, sum(|area| area.get("Rss")));
    assert_eq!(report.totals.huge_bytes, sum(Area::huge));
}

fn not_huge(sizes: &Sizes) -> Bytes {
    sizes.not_huge_bytes.values().copied().sum()
}

#[test]
fn every_number_is_what_the_kernel_says_and_looking_changes_none() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    let (mut victim, parts) = layout();
    let pid = victim.pid();
    let (huge, base) = (sizes().huge, sizes().base);
    // 16 of its pages were written: the huge page brings 496 that hold only zeros.
    let sparse = sizes().region_of(hugepilot_units::VirtAddr::new(parts["sparse"]));
    requires!(
        open(pid).collapse(sparse).map_err(|errno| format!("no huge page to be had: {errno}"))
    );

    let before = (smaps(pid), faults(pid), total(pid, "Rss"));
    let report = status(pid, &[]);
    agrees(&report, &before.0);
    for more in [&["--no-contents"][..], &[]] {
        status(pid, more);
    }
    assert_eq!((faults(pid), total(pid, "Rss")), (before.1, before.2), "looking changed it");

    let part = |name: &str| {
        let start = parts[name];
        report
            .mappings
            .iter()
            .find(|mapping| mapping.range.start.get() == start)
            .unwrap()
            .sizes
            .clone()
    };
    let expected = |resident: Bytes,
                    huge: Bytes,
                    zero: Bytes,
                    eligible: Bytes,
                    why: &[(SkipReason, Bytes)]| Sizes {
        size_bytes: Bytes::ZERO,
        resident_bytes: resident,
        huge_bytes: huge,
        eligible_bytes: eligible,
        zero_filled_bytes: Some(zero),
        not_huge_bytes: why.iter().copied().collect(),
        kernel_reason_bytes: BTreeMap::new(),
    };
    let none = Bytes::ZERO;
    let half = Bytes::new(huge.get() / 2);
    let zeros = base.times(sizes().base_per_huge() - 16);
    for (name, expected) in [
        ("filled", expected(huge.times(4), none, none, huge.times(4), &[])),
        ("sparse", expected(huge, huge, zeros, none, &[])),
        ("nohugepage", expected(huge, none, none, none, &[(SkipReason::Nohugepage, huge)])),
        ("small", expected(half, none, none, none, &[(SkipReason::Unaligned, half)])),
        ("untouched", expected(none, none, none, none, &[])),
    ] {
        let kernel_reason_bytes = BTreeMap::new(); // depends on the settings: see `reasons`
        let said = Sizes { size_bytes: Bytes::ZERO, kernel_reason_bytes, ..part(name) };
        assert_eq!(said, expected, "{name}");
    }
    assert_eq!(report.totals.zero_filled_bytes, Some(zeros));
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    assert!(victim.finish(SOON).success());
}

#[test]
fn a_split_gives_the_zero_pages_back_and_status_sees_it() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    let (mut victim, parts) = layout();
    let process = open(victim.pid());
    let start = hugepilot_units::VirtAddr::new(parts["sparse"]);
    let sparse = sizes().region_of(start);
    requires!(process.collapse(sparse).map_err(|errno| format!("no huge page to be had: {errno}")));
    let before = total(victim.pid(), "Rss");
    process.split(start.plus(sizes().base)).unwrap();
    let pages = process.region_pages(sparse).unwrap();
    assert!(!pages.huge);
    requires!(if pages.resident < 512 {
        Ok(())
    } else {
        Err("splits free no zero pages before Linux 6.12")
    });
    assert_eq!(pages.resident, 16);
    let zeros = sizes().base.times(sizes().base_per_huge() - 16);
    assert_eq!(before - total(victim.pid(), "Rss"), zeros);
    assert_eq!(status(victim.pid(), &[]).totals.zero_filled_bytes, Some(Bytes::ZERO));
    assert!(victim.finish(SOON).success());
}

#[test]
fn a_large_busy_program_is_measured_too() {
    requires!(need::live());
    let workload = Workload::start("hot-set --footprint 512MiB --hot 128MiB --pages huge");
    let report = status(workload.pid(), &[]);
    assert_eq!(report.totals.huge_bytes, total(workload.pid(), "AnonHugePages"));
    assert!(report.totals.resident_bytes >= Bytes::mib(512));
    assert!(
        hugepilot(["status", "-p", &workload.pid().to_string()]).exits(0).out().contains("total")
    );
}

#[test]
fn a_memory_limit_that_cannot_be_seen_is_warned_of() {
    requires!(need::live());
    requires!(need::root());
    requires!(need::program("unshare"));
    let workload = Workload::start("gups --footprint 32MiB");
    let hidden = |words: Vec<String>| {
        let script = "umount /sys/fs/cgroup/memory || umount -l /sys/fs/cgroup; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", HUGEPILOT]).args(words);
        Running::start(command).wait(LIMIT)
    };
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let pid = workload.pid();
    let warned = |report: &StatusReport| {
        let is_hidden = |w: &StatusWarning| matches!(w, StatusWarning::HiddenMemoryLimit { .. });
        report.warnings.iter().any(is_hidden)
    };
    assert!(!warned(&status(pid, &[])));
    let report: StatusReport = hidden(words(format!("status -p {pid} --json"))).exits(0).json();
    assert!(warned(&report), "{:?}", report.warnings);
    let report = hidden(tune_args(pid, "")).sane().report();
    let is_hidden = |w: &TuneWarning| matches!(w, TuneWarning::HiddenMemoryLimit { .. });
    assert!(report.warnings.iter().any(is_hidden), "{:?}", report.warnings);
    let report: serde_json::Value = hidden(words("doctor --json".to_owned())).sane().json();
    assert_eq!(report["cgroup"]["visible"], false, "{report}");
}
