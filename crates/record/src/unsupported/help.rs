//! Suggested actions for each reason.

use hugepilot_units::Bytes;

use super::Unsupported;

const DOCKER_CAPABILITIES: &str =
    "docker run --cap-add SYS_NICE --cap-add PERFMON --cap-add DAC_READ_SEARCH …";
const NEW_KERNEL: &str = "a kernel of Linux 6.12 or newer";

/// Returns the command that removes the limit of a cgroup on pool pages.
pub fn raise_pool_limit(file: &str) -> String {
    let none = if file.ends_with("limit_in_bytes") { "-1" } else { "max" };
    format!("raise the limit: echo {none} | sudo tee {file}")
}

impl Unsupported {
    /// Suggested actions, as commands if possible; the likeliest first. Empty if none is known.
    pub fn help(&self) -> Vec<String> {
        let help = match self {
            Self::NoWorkingSource { reason } => {
                return reason.as_ref().map_or_else(Vec::new, |reason| reason.help());
            }
            Self::Pool(cause) => return cause.help().into_iter().collect(),
            Self::Mode(cause) => return cause.help().into_iter().collect(),
            Self::Shrink(cause) => cause.help().to_owned(),
            Self::Prefetch(cause) => cause.help().to_owned(),
            Self::LabRootRequired { advice, .. } => advice.clone(),
            Self::UnitTerms { unit, .. } => {
                format!("ls /sys/bus/event_source/devices/{unit}*/format")
            }
            Self::ThreadsNeedFiles { limit, .. } => format!("ulimit -n {limit}"),
            Self::SetUid { binary } => format!("sudo chmod ug-s {binary}"),
            Self::ReclaimSwaps { file } => format!("echo 0 | sudo tee {file}; or swapoff -a"),
            Self::PoolNotGranted { file, .. } => raise_pool_limit(file),
            Self::PoolEmpty { size_bytes } | Self::PoolExhausted { size_bytes } => {
                pool(*size_bytes)
            }
            _ => match self.permission_help() {
                Some(help) => help,
                None => return self.fixed_help().map(str::to_owned).into_iter().collect(),
            },
        };
        vec![help]
    }

    /// Help for a missing permission.
    fn permission_help(&self) -> Option<String> {
        Some(match self {
            Self::CapabilityMissing { setcap, .. } => setcap.clone(),
            Self::NoNewPrivs { capability, .. } => format!(
                "sudo, outside of this session: no_new_privs is set, so file capabilities have no \
                 effect (systemd: AmbientCapabilities={})",
                capability.to_ascii_uppercase()
            ),
            Self::CapabilityWithheld { .. } => DOCKER_CAPABILITIES.to_owned(),
            Self::UserNamespace { .. } => {
                format!("run hugepilot on the host, or not rootless: {DOCKER_CAPABILITIES}")
            }
            Self::SecurityModule { .. } => "sudo dmesg | grep -iE 'denied|lockdown'".to_owned(),
            Self::SeccompFilter { call, .. } | Self::SeccompOrKernel { call, .. } => {
                format!("{}, or run hugepilot outside of it", allow(call))
            }
            Self::CannotLower { call, .. } => {
                format!("{}, or run a copy of hugepilot without file capabilities", allow(call))
            }
            Self::PerfEventParanoid { .. } => "sudo sysctl kernel.perf_event_paranoid=2".to_owned(),
            Self::PtraceScope { .. } => "sudo sysctl kernel.yama.ptrace_scope=1".to_owned(),
            _ => return None,
        })
    }

    /// Help without facts.
    const fn fixed_help(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoProcessMadvise | Self::NoPagemapScan | Self::ZeroPagesKept => NEW_KERNEL,
            Self::AdviceUnknown => {
                "a kernel of Linux 6.12 or newer with CONFIG_TRANSPARENT_HUGEPAGE"
            }
            Self::Fragmented | Self::NoHugePage => "echo 1 | sudo tee /proc/sys/vm/compact_memory",
            Self::CgroupFull => "raise memory.max of the cgroup, or run hugepilot outside of it",
            Self::ThpDisabled => "start hugepilot from a shell without this setting",
            Self::KhugepagedFirst => "hugepilot doctor, once more",
            Self::NoPerfEvents => {
                "a kernel with CONFIG_PERF_EVENTS; in a container, allow perf_event_open in its \
                 seccomp profile"
            }
            Self::NoUnit { .. } => "ls /sys/bus/event_source/devices",
            Self::NoCounters { hypervisor: true } => {
                "a virtual machine has counters only if its host passes them on: KVM -cpu \
                 host,pmu=on; clouds: a bare-metal or PMU-enabled instance"
            }
            Self::NoCounters { hypervisor: false } => "sudo dmesg | grep -i 'performance events'",
            Self::EventMissing => "`hugepilot doctor` lists the samplers that work here",
            Self::EventInvalid => "a kernel of Linux 6.7 or newer",
            Self::CountersBusy => {
                "end other profilers (perf, VTune, oprofile), and free the watchdog's counter: \
                 sudo sysctl kernel.nmi_watchdog=0"
            }
            Self::CountersInUse => "end the debuggers and profilers that use them",
            Self::OpenFiles => {
                "raise the limit: ulimit -n 65536 (as root, or systemd's LimitNOFILE=)"
            }
            Self::SystemOpenFiles => {
                "end programs that hold many files, or raise the limit: sudo sysctl \
                 fs.file-max=1000000"
            }
            Self::LockedMemory => {
                "sudo sysctl kernel.perf_event_mlock_kb=65536, or ulimit -l unlimited"
            }
            Self::NoSampleBuffers => "free memory, or raise the cgroup's limit",
            Self::SandboxIoctl => "run hugepilot outside of the sandbox (gVisor, a seccomp filter)",
            Self::IoctlForbidden => "sudo dmesg | grep -iE 'denied|audit'",
            Self::RootCgroup => "name a cgroup below it",
            Self::ReclaimAmount => "drop --amount",
            Self::NoReclaimFile { .. } => "a kernel of Linux 5.19 or newer",
            // A virtual PMU brings PEBS, but not IBS.
            Self::GuestPmu { amd: true } => {
                "use a bare-metal instance for IBS; the CPU clock works without it"
            }
            Self::GuestPmu { amd: false } => {
                "on the host, give the virtual machine a PMU (KVM: -cpu host,pmu=on; clouds: a \
                 bare-metal or PMU-enabled instance); the CPU clock works without it"
            }
            _ => return None,
        })
    }
}

fn allow(call: &str) -> String {
    format!(
        "allow {call} in the filter (docker run --security-opt seccomp=PROFILE.json; systemd \
         SystemCallFilter={call})"
    )
}

/// The command that fills a pool. Memory for large pages is unfragmented only after boot.
fn pool(size: Bytes) -> String {
    let set = format!("sudo hugepilot pool set --size {size} --count N");
    if size <= Bytes::mib(512) {
        return set;
    }
    let gib = size.get() >> 30;
    format!("{set}, soon after boot; surest with hugepagesz={gib}G hugepages=N at boot")
}
