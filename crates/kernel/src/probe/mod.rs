//! What this machine lets us do, found out by doing it: to a child of ours, and looking afterwards.
//!
//! Nothing is concluded from a version, and nothing from a return value. Every probe ends its child and gives back what
//! it took before the next one starts.

mod hugetlb;
mod pages;
mod samplers;

pub use pages::NO_HUGE_PAGE;

use hugepilot_record::doctor::{CgroupReport, CpuReport, DoctorReport, Probe, SCHEMA};
use hugepilot_units::Bytes;

use crate::cgroup::{MemoryCgroup, Version};
use crate::rights::{Capability, Rights};
use crate::thp::ThpSettings;
use crate::{Result, Root, cpu, memory};

/// Runs all probes on the running system and reads its settings. Takes well under a second where nothing is broken.
///
/// # Errors
/// When `/proc` does not even tell the page size or the processor.
pub fn examine() -> Result<DoctorReport> {
    let root = &Root::live();
    let (cpu, sizes, rights) = (cpu::read(root)?, memory::page_sizes(root)?, Rights::read(root));
    let mut probes = pages::probes(root, sizes, &rights);
    probes.push(samplers::cpu_clock(root, &rights));
    probes.push(samplers::hardware(root, &cpu, &rights));
    probes.extend(hugetlb::probes(root));
    Ok(DoctorReport {
        schema: SCHEMA.to_owned(),
        kernel_release: root.read_text("proc/sys/kernel/osrelease").unwrap_or_default(),
        cpu: CpuReport { tlb: cpu::tlb(&cpu), cpu },
        base_page_bytes: sizes.base,
        huge_page_bytes: sizes.huge,
        probes,
        thp: ThpSettings::read(root).0,
        cgroup: cgroup(root),
        psi: memory::pressure(root, "proc/pressure/memory").is_some(),
        capabilities: rights.permitted.names(),
        seccomp_mode: rights.seccomp_mode,
        no_new_privs: rights.no_new_privs,
        perf_event_paranoid: rights.perf_event_paranoid,
        yama_ptrace_scope: rights.yama_ptrace_scope,
    })
}

/// Whether splitting a huge page gives its zero-filled pages back here: tried on a child of ours, in a few milliseconds.
///
/// # Errors
/// When `/proc` does not even tell the page size.
pub fn demote_frees_zero_pages() -> Result<Probe> {
    let root = &Root::live();
    Ok(pages::demote_frees_zero_pages(root, memory::page_sizes(root)?, &Rights::read(root)))
}

/// On whose processes a thing that worked on our child would work, too, by the capabilities that other users' take: one of
/// each group.
fn whose(groups: &[&[Capability]], rights: &Rights) -> String {
    let held = |group: &[Capability]| group.iter().any(|&capability| rights.has(capability));
    match groups.iter().find(|group| !held(group)) {
        Some(lacking) => format!("our own user's processes only: {} is missing", lacking[0].name()),
        None if rights.initial_user_namespace => "other users' processes, too".to_owned(),
        None => "other users' processes, too, but only of this user namespace".to_owned(),
    }
}

/// Our own cgroup and the room in it.
fn cgroup(root: &Root) -> Option<CgroupReport> {
    let group = MemoryCgroup::find(root, &root.read_text("proc/self/cgroup").ok()?)?;
    let room = group.headroom(root);
    let limited = |bytes: Bytes| (room.limit != Bytes::MAX).then_some(bytes);
    Some(CgroupReport {
        version: match group.version() {
            Version::V1 => 1,
            Version::V2 => 2,
        },
        path: group.path(),
        visible: group.is_visible(root),
        limit_bytes: limited(room.limit),
        left_bytes: limited(room.left),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_answers_and_every_no_has_a_reason() {
        let report = examine().unwrap();
        let names: Vec<&str> = report.probes.iter().map(|probe| probe.name.as_str()).collect();
        let wanted = [
            Probe::PROMOTE,
            Probe::DEMOTE_FREES_ZERO_PAGES,
            Probe::PAGEMAP_SCAN,
            Probe::READ_TARGET_MEMORY,
            Probe::SAMPLER_CPU_CLOCK,
            Probe::SAMPLER_HARDWARE,
            Probe::HUGETLB_2M,
            Probe::HUGETLB_1G,
        ];
        assert_eq!(names, wanted);
        assert!(report.probes.iter().all(|probe| !probe.why.is_empty()));
    }

    #[test]
    fn one_capability_of_each_group_is_enough() {
        use crate::rights::Capabilities;
        let rights = |bits: &[Capability], initial_user_namespace| Rights {
            permitted: Capabilities(bits.iter().map(|&bit| 1 << bit as u32).sum()),
            initial_user_namespace,
            ..Rights::default()
        };
        use Capability::{DacReadSearch, Perfmon, SysPtrace};
        let groups: [&[Capability]; 2] = [&[DacReadSearch], &[Perfmon, SysPtrace]];
        assert_eq!(
            whose(&groups, &rights(&[DacReadSearch, SysPtrace], true)),
            "other users' processes, too"
        );
        let lacking = whose(&groups, &rights(&[Perfmon], true));
        assert!(lacking.ends_with("cap_dac_read_search is missing"), "{lacking}");
        let rootless = whose(&groups, &rights(&[DacReadSearch, Perfmon], false));
        assert!(rootless.ends_with("of this user namespace"), "{rootless}");
    }

    #[test]
    fn without_cap_sys_nice_the_fix_is_named() {
        if Rights::read(&Root::live()).has(Capability::SysNice) {
            eprintln!("skipped: we have cap_sys_nice");
            return;
        }
        let report = examine().unwrap();
        let promote = report.probe(Probe::PROMOTE).unwrap();
        assert!(!promote.supported && !report.can_tune());
        assert!(
            promote.why.contains("cap_sys_nice") || promote.why.contains("seccomp"),
            "{}",
            promote.why
        );
        assert!(promote.fix.is_some());
    }
}
