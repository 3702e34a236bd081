//! Probes of kernel features, each tried on a child process and verified afterwards.
//!
//! No probe infers a feature from a version, or success from a return value. Each ends its child
//! and frees its memory before the next one starts.

mod hugetlb;
mod pages;
mod samplers;

use hugepilot_reports::doctor::{CgroupReport, CpuReport, Detail, DoctorReport, Probe, SCHEMA};
use hugepilot_units::Bytes;

use crate::cgroup::{MemoryCgroup, Version};
use crate::rights::{Capability, Rights};
use crate::thp::{self, ThpSettings};
use crate::{Result, Root, cpu, memory};

/// Runs all probes on the running system and reads its settings, in about a tenth of a second.
///
/// ```
/// let report = hugepilot_kernel::probe::examine()?;
/// for probe in report.probes.iter().filter(|probe| !probe.supported) {
///     if let Some(reason) = probe.reason() {
///         println!("{}: {reason}; help: {}", probe.name, reason.help().join(", "));
///     }
/// }
/// # Ok::<(), hugepilot_kernel::KernelError>(())
/// ```
///
/// # Errors
/// If `/proc` does not show the page size or the processor.
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
        thp_sizes: thp::config(root, sizes).sizes,
        risks: Vec::new(),
        cgroup: cgroup(root),
        psi: memory::pressure(root, "proc/pressure/memory").is_some(),
        capabilities: rights.permitted.names(),
        seccomp_mode: rights.seccomp_mode,
        no_new_privs: rights.no_new_privs,
        perf_event_paranoid: rights.perf_event_paranoid,
        yama_ptrace_scope: rights.yama_ptrace_scope,
    })
}

/// Probes whether splitting a huge page frees its zero-filled pages, in a few milliseconds.
///
/// # Errors
/// If `/proc` does not show the page size.
pub fn demote_frees_zero_pages() -> Result<Probe> {
    let root = &Root::live();
    Ok(pages::demote_frees_zero_pages(root, memory::page_sizes(root)?, &Rights::read(root)))
}

/// Returns the users on whose processes a feature works that worked on a child. Processes of other
/// users require one capability of each group.
fn users(groups: &[&[Capability]], rights: &Rights) -> Detail {
    let held = |group: &[Capability]| group.iter().any(|&capability| rights.has(capability));
    match groups.iter().find(|group| !held(group)) {
        Some(group) => Detail::OwnUser { missing: group[0].name().to_owned() },
        None if rights.initial_user_namespace => Detail::OtherUsers,
        None => Detail::OtherUsersOfNamespace,
    }
}

/// Returns the cgroup of this process and its headroom.
fn cgroup(root: &Root) -> Option<CgroupReport> {
    let group = MemoryCgroup::find(root, &root.read_text("proc/self/cgroup").ok()?)?;
    let headroom = group.headroom(root);
    let limited = |bytes: Bytes| (headroom.limit != Bytes::MAX).then_some(bytes);
    Some(CgroupReport {
        version: match group.version() {
            Version::V1 => 1,
            Version::V2 => 2,
        },
        path: group.path(),
        visible: group.is_visible(root),
        limit_bytes: limited(headroom.limit),
        left_bytes: limited(headroom.left),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_runs_and_every_failure_has_a_reason() {
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
        assert!(report.probes.iter().all(|probe| probe.supported == probe.reason().is_none()));
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
        let all = users(&groups, &rights(&[DacReadSearch, SysPtrace], true));
        assert_eq!(all, Detail::OtherUsers);
        let lacking = users(&groups, &rights(&[Perfmon], true));
        assert_eq!(lacking, Detail::OwnUser { missing: "cap_dac_read_search".into() });
        let rootless = users(&groups, &rights(&[DacReadSearch, Perfmon], false));
        assert_eq!(rootless, Detail::OtherUsersOfNamespace);
    }

    #[test]
    fn without_cap_sys_nice_promotion_has_help() {
        if Rights::read(&Root::live()).has(Capability::SysNice) {
            eprintln!("skipped: this process has cap_sys_nice");
            return;
        }
        let report = examine().unwrap();
        let promote = report.probe(Probe::PROMOTE).unwrap();
        assert!(!promote.supported && !report.can_tune());
        assert!(!promote.reason().unwrap().help().is_empty());
    }
}
