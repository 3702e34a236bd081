//! What a machine lets us do, and why not the rest: the report of `hugepilot doctor`.

use std::collections::BTreeMap;

use hugepilot_units::Bytes;
use serde::{Deserialize, Serialize};

/// The value of [`DoctorReport::schema`]. A new one when a field changes its meaning or goes.
pub const SCHEMA: &str = "hugepilot.doctor/1";

/// Everything `doctor` found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// As `uname -r` says it.
    pub kernel_release: String,
    /// The processor and what it can hold in its TLBs.
    pub cpu: CpuReport,
    /// The smallest page.
    pub base_page_bytes: Bytes,
    /// The page that THP makes.
    pub huge_page_bytes: Bytes,
    /// What was tried, in a fixed order.
    pub probes: Vec<Probe>,
    /// Files of `/sys/kernel/mm/transparent_hugepage`, as they are; empty on a kernel without THP.
    pub thp: BTreeMap<String, String>,
    /// The cgroup that accounts our memory; none when nothing does.
    pub cgroup: Option<CgroupReport>,
    /// Whether the kernel tells how much tasks wait for memory.
    pub psi: bool,
    /// Our effective capabilities, such as `cap_sys_nice`.
    pub capabilities: Vec<String>,
    /// 0 none, 1 strict, 2 a filter of system calls.
    pub seccomp_mode: u32,
    /// Whether starting a program can no longer give rights, file capabilities among them.
    pub no_new_privs: bool,
    /// `kernel.perf_event_paranoid`; null on a kernel without perf events.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.yama.ptrace_scope`; null on a kernel without Yama.
    pub yama_ptrace_scope: Option<i32>,
}

impl DoctorReport {
    /// The probe of that name.
    pub fn probe(&self, name: &str) -> Option<&Probe> {
        self.probes.iter().find(|probe| probe.name == name)
    }
    /// Whether the probe of that name found support.
    pub fn supports(&self, name: &str) -> bool {
        self.probe(name).is_some_and(|probe| probe.supported)
    }
    /// Whether a live process can be tuned here: promotion, and some way to see where it waits.
    pub fn can_tune(&self) -> bool {
        self.supports(Probe::PROMOTE)
            && (self.supports(Probe::SAMPLER_CPU_CLOCK) || self.supports(Probe::SAMPLER_HARDWARE))
    }
}

/// One thing that was tried, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// One of the names below.
    pub name: String,
    /// Whether a look afterwards showed that it worked.
    pub supported: bool,
    /// What was seen, or what stood in the way.
    pub why: String,
    /// What to change, as a command where there is one; null when nothing need or can be done.
    pub fix: Option<String>,
    /// More for those who want to know.
    pub detail: Option<String>,
}

impl Probe {
    /// `MADV_COLLAPSE` on another process.
    pub const PROMOTE: &str = "promote";
    /// `MADV_COLD` on one page of another process's huge page frees its zero pages.
    pub const DEMOTE_FREES_ZERO_PAGES: &str = "demote_frees_zero_pages";
    /// The `PAGEMAP_SCAN` ioctl on another process.
    pub const PAGEMAP_SCAN: &str = "pagemap_scan";
    /// `process_vm_readv` on another process.
    pub const READ_TARGET_MEMORY: &str = "read_target_memory";
    /// Samples with registers from the CPU clock.
    pub const SAMPLER_CPU_CLOCK: &str = "sampler_cpu_clock";
    /// Samples with data addresses from the processor.
    pub const SAMPLER_HARDWARE: &str = "sampler_hardware";
    /// A free hugetlb page of 2 MiB.
    pub const HUGETLB_2M: &str = "hugetlb_2m";
    /// A free hugetlb page of 1 GiB.
    pub const HUGETLB_1G: &str = "hugetlb_1g";

    /// A probe that worked.
    pub fn yes(name: &str, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), supported: true, why: why.into(), fix: None, detail: None }
    }
    /// A probe that did not.
    pub fn no(name: &str, why: impl Into<String>, fix: Option<String>) -> Self {
        Self { name: name.to_owned(), supported: false, why: why.into(), fix, detail: None }
    }
    /// Whether every verb does without it: hugetlb pools are looked at for those who use them.
    pub fn is_optional(&self) -> bool {
        self.name == Self::HUGETLB_2M || self.name == Self::HUGETLB_1G
    }
    /// The same with more to tell.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// Which processor it is, as `/proc/cpuinfo` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// `GenuineIntel`, `AuthenticAMD`; for ARM's own designs `ARM`, for other ARM makers their code.
    pub vendor: String,
    /// The name it was sold under; empty where the kernel has none.
    pub model_name: String,
    /// The family; for ARM the architecture version.
    pub family: u32,
    /// The model; for ARM the part number.
    pub model: u32,
    /// Whether it is a virtual machine's.
    pub hypervisor: bool,
}

/// A processor with its TLBs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuReport {
    /// Which one.
    #[serde(flatten)]
    pub cpu: Cpu,
    /// What its TLBs hold.
    pub tlb: TlbSizes,
}

/// How many translations of data a core can hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbSizes {
    /// First level, base pages.
    pub l1d_4k_entries: u32,
    /// Second level, base pages.
    pub l2_4k_entries: u32,
    /// Second level, 2 MiB pages; 0 where only base pages have one.
    pub l2_2m_entries: u32,
    /// Where these numbers come from.
    pub source: String,
    /// Whether some of them are a guess.
    pub assumed: bool,
}

/// The cgroup that accounts our memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupReport {
    /// 1 or 2.
    pub version: u8,
    /// Its path in the hierarchy, from `/`.
    pub path: String,
    /// Whether its limits can be seen from here; not where a container is shown another part of the hierarchy.
    pub visible: bool,
    /// The tightest limit of it and all above it; null for none.
    pub limit_bytes: Option<Bytes>,
    /// What is left of that limit; null for no limit.
    pub left_bytes: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(probes: Vec<Probe>) -> DoctorReport {
        let cpu = Cpu {
            vendor: "GenuineIntel".into(),
            model_name: "Xeon".into(),
            family: 6,
            model: 207,
            hypervisor: true,
        };
        let tlb = TlbSizes {
            l1d_4k_entries: 96,
            l2_4k_entries: 2048,
            l2_2m_entries: 1024,
            source: "table".into(),
            assumed: false,
        };
        DoctorReport {
            schema: SCHEMA.into(),
            kernel_release: "6.18.0".into(),
            cpu: CpuReport { cpu, tlb },
            base_page_bytes: Bytes::kib(4),
            huge_page_bytes: Bytes::mib(2),
            probes,
            thp: BTreeMap::from([("enabled".into(), "always [madvise] never".into())]),
            cgroup: None,
            psi: true,
            capabilities: vec!["cap_sys_nice".into()],
            seccomp_mode: 0,
            no_new_privs: false,
            perf_event_paranoid: Some(2),
            yama_ptrace_scope: None,
        }
    }

    #[test]
    fn tuning_needs_promotion_and_one_sampler() {
        let yes = |name| Probe::yes(name, "seen");
        let clock = yes(Probe::SAMPLER_CPU_CLOCK);
        assert!(report(vec![yes(Probe::PROMOTE), clock.clone()]).can_tune());
        assert!(report(vec![yes(Probe::PROMOTE), yes(Probe::SAMPLER_HARDWARE)]).can_tune());
        assert!(!report(vec![yes(Probe::PROMOTE)]).can_tune());
        assert!(!report(vec![Probe::no(Probe::PROMOTE, "no", None), clock]).can_tune());
    }

    #[test]
    fn json_is_flat_where_a_reader_expects_it_and_comes_back_whole() {
        let report = report(vec![Probe::yes(Probe::PROMOTE, "seen").with_detail("1 ms")]);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["schema"], "hugepilot.doctor/1");
        assert_eq!(json["cpu"]["model"], 207);
        assert_eq!(json["cpu"]["tlb"]["l2_4k_entries"], 2048);
        assert_eq!(json["huge_page_bytes"], 2 << 20);
        assert!(json["yama_ptrace_scope"].is_null());
        assert_eq!(serde_json::from_value::<DoctorReport>(json).unwrap(), report);
    }
}
