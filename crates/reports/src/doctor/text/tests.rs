//! Text and JSON of whole reports.

use std::collections::BTreeMap;

use hugepilot_record::{Cpu, Errno, Unsupported};
use hugepilot_units::Bytes;

use super::*;
use crate::doctor::{Detail, Evidence, SCHEMA, SettingRisk, TlbSizes};

const REFILLS: SettingRisk =
    SettingRisk::FreedMemoryRefills { max_ptes_none: 511, everywhere: false };

fn report() -> DoctorReport {
    let cpu = Cpu {
        vendor: "AuthenticAMD".into(),
        model_name: "AMD EPYC 9B45".into(),
        family: 26,
        model: 2,
        hypervisor: true,
    };
    let tlb = TlbSizes {
        l1d_4k_entries: 96,
        l2_4k_entries: 4096,
        l2_2m_entries: 4096,
        source: "a table".into(),
        assumed: false,
    };
    let denied = |name| {
        let reason = Unsupported::CapabilityMissing {
            call: "process_madvise".into(),
            capability: "cap_sys_nice".into(),
            errno: Errno::EPERM,
            setcap: "sudo setcap it".into(),
        };
        Probe::no(name, reason)
    };
    let absent = |source: &str| Detail::Source {
        source: source.into(),
        reason: Unsupported::NoSuchEvent { errno: Errno::ENOENT },
    };
    let (no_counters, size_bytes) = (Unsupported::NoWorkingSource { reason: None }, Bytes::mib(2));
    DoctorReport {
        schema: SCHEMA.into(),
        kernel_release: "6.12.0".into(),
        cpu: CpuReport { cpu, tlb },
        base_page_bytes: Bytes::kib(4),
        huge_page_bytes: Bytes::mib(2),
        probes: vec![
            denied(Probe::PROMOTE),
            denied(Probe::DEMOTE_FREES_ZERO_PAGES),
            Probe::yes(Probe::SAMPLER_CPU_CLOCK, Evidence::Sampled)
                .with_details([Detail::OtherUsers]),
            Probe::no(Probe::SAMPLER_HARDWARE, no_counters)
                .with_details([absent("PEBS"), absent("IBS")]),
            Probe::no(Probe::HUGETLB_2M, Unsupported::PoolEmpty { size_bytes }),
        ],
        thp: BTreeMap::from([("enabled".into(), "always [madvise] never".into())]),
        thp_sizes: Vec::new(),
        risks: vec![REFILLS],
        cgroup: Some(CgroupReport {
            version: 2,
            path: "/a.slice".into(),
            visible: true,
            limit_bytes: Some(Bytes::gib(2)),
            left_bytes: Some(Bytes::mib(512)),
        }),
        psi: true,
        capabilities: vec!["cap_chown".into(), "cap_perfmon".into()],
        seccomp_mode: 2,
        no_new_privs: false,
        perf_event_paranoid: Some(2),
        yama_ptrace_scope: None,
    }
}

const TEXT: &str = "\
Linux 6.12.0
AMD EPYC 9B45 (AuthenticAMD family 26 model 0x2, virtual machine)
Data TLB: 96 entries, second level 4096 for 4KiB pages, 4096 for 2MiB
          a table

no   promote                  process_madvise requires cap_sys_nice, which hugepilot lacks (EPERM)
no   demote_frees_zero_pages  process_madvise requires cap_sys_nice, which hugepilot lacks (EPERM)
yes  sampler_cpu_clock        samples of a child arrived, with registers
                              other users' processes, too
no   sampler_hardware         no source gave page walks with addresses
                              PEBS: no such event here (ENOENT)
                              IBS: no such event here (ENOENT)
no   hugetlb_2m               the pool of 2MiB pages is empty
                              not needed by tune

What to do
  promote, demote_frees_zero_pages:
    sudo setcap it
  hugetlb_2m:
    sudo hugepilot pool set --size 2MiB --count N

Works without more permissions
  run, compare  programs that you start, without --pool

Settings that can hurt programs
warning: khugepaged/max_ptes_none is 511: khugepaged makes regions of advised \
memory huge of which most base pages are unused; memory that a program or debloat freed comes back
help: echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none

Settings
  pages                       4KiB and 2MiB
  thp/enabled                 always [madvise] never
  cgroup                      v2 /a.slice, limit 2GiB, 512MiB left
  psi                         yes
  capabilities                cap_perfmon, 1 more
  seccomp                     a filter of system calls
  no_new_privs                no
  kernel.perf_event_paranoid  2
  kernel.yama.ptrace_scope    not there

Live processes cannot be tuned here: that takes promote and one sampler.
";

#[test]
fn the_text_has_each_fact() {
    assert_eq!(doctor_text(&report()), TEXT);
}

#[test]
fn json_has_a_code_a_text_and_help_for_each_probe() {
    let json: Value = serde_json::from_str(&hugepilot_render::json(&report())).unwrap();
    let promote = serde_json::json!({
        "name": "promote",
        "supported": false,
        "code": "capability_missing",
        "call": "process_madvise",
        "capability": "cap_sys_nice",
        "errno": 1,
        "setcap": "sudo setcap it",
        "details": [],
        "text": "process_madvise requires cap_sys_nice, which hugepilot lacks (EPERM)",
        "help": ["sudo setcap it"],
    });
    assert_eq!(json["probes"][0], promote);
    let users = serde_json::json!({ "code": "other_users", "text": "other users' processes, too" });
    assert_eq!(json["probes"][2]["details"][0], users);
    assert_eq!(serde_json::from_value::<DoctorReport>(json).unwrap(), report());
}

#[test]
fn tuning_needs_promotion_and_one_sampler() {
    let yes = |name| Probe::yes(name, Evidence::Sampled);
    let can = |probes| DoctorReport { probes, ..report() }.can_tune();
    let clock = yes(Probe::SAMPLER_CPU_CLOCK);
    assert!(can(vec![yes(Probe::PROMOTE), clock.clone()]));
    assert!(can(vec![yes(Probe::PROMOTE), yes(Probe::SAMPLER_HARDWARE)]));
    assert!(!can(vec![yes(Probe::PROMOTE)]));
    assert!(!can(vec![Probe::no(Probe::PROMOTE, Unsupported::NotPromoted), clock]));
}

#[test]
fn a_user_without_capabilities_reads_what_works() {
    let mut report = report();
    let evidence = Evidence::PagemapRead { pages: 512 };
    report.probes.push(Probe::yes(Probe::PAGEMAP_SCAN, evidence));
    let text = doctor_text(&report);
    assert!(text.contains("  status          your own processes\n"), "{text}");
    assert!(text.contains("  tune --dry-run  your own processes: plan"), "{text}");
    assert!(!text.contains("THP is set"), "{text}");
}

#[test]
fn thp_set_to_never_is_explained() {
    let mut report = report();
    report.thp.insert("enabled".into(), "always madvise [never]".into());
    let text = doctor_text(&report);
    for words in ["works   MADV_COLLAPSE", "khugepaged", "echo madvise | sudo tee"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_machine_where_all_works_needs_no_help() {
    let mut report = report();
    for probe in &mut report.probes {
        *probe = Probe::yes(&probe.name, Evidence::MemoryRead);
    }
    report.thp.clear();
    let unseen = report.cgroup.as_ref().map(|cgroup| CgroupReport {
        visible: false,
        limit_bytes: None,
        left_bytes: None,
        ..cgroup.clone()
    });
    assert!(cgroup_line(&unseen.unwrap()).contains("are not visible here"));
    report.cgroup = None;
    report.cpu.tlb.assumed = true;
    let text = doctor_text(&report);
    assert!(!text.contains("What to do") && text.ends_with("can be tuned here.\n"));
    assert!(text.contains("2MiB (assumed)") && text.contains("not in this kernel"));
    assert!(text.contains("none accounts memory"));
}
