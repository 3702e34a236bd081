//! Why the kernel said no, in words, and what to change.

use hugepilot_record::Errno;
use hugepilot_record::doctor::Probe;

use crate::rights::{Capability, Rights};
use crate::{KernelError, executable};

/// Why something is not to be had here, and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Unsupported {
    /// The cause.
    pub cause: String,
    /// The remedy, as a command where there is one.
    pub fix: Option<String>,
}

const DOCKER_CAPABILITIES: &str =
    "docker run --cap-add SYS_NICE --cap-add PERFMON --cap-add DAC_READ_SEARCH …";

impl Unsupported {
    /// For that reason, with no remedy.
    pub fn because(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), fix: None }
    }
    /// The same with a remedy.
    #[must_use]
    pub fn fixed_by(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
    /// As the result of a probe.
    pub fn probe(self, name: &str) -> Probe {
        Probe::no(name, self.cause, self.fix)
    }

    /// `process_madvise` on a process of our own user failed with `errno`; `answer` is what an impossible request
    /// brought ([`crate::sys::reach`]).
    pub(crate) fn of_advice(errno: Errno, answer: Errno, rights: &Rights) -> Self {
        let call = "process_madvise";
        if let Some(filtered) = filtered(call, errno, answer, rights) {
            return filtered;
        }
        match errno {
            Errno::EPERM | Errno::EACCES => missing(call, errno, &[Capability::SysNice], rights),
            Errno::ENOSYS => no_process_madvise(),
            Errno::EINVAL => Self::because(
                "the kernel refuses the advice (EINVAL): it is older than Linux 6.1, or built without THP",
            )
            .fixed_by("a kernel of Linux 6.12 or newer with CONFIG_TRANSPARENT_HUGEPAGE"),
            Errno::ENOMEM => {
                Self::because("the kernel found no free huge page (ENOMEM): memory is fragmented")
                    .fixed_by("echo 1 | sudo tee /proc/sys/vm/compact_memory")
            }
            Errno::EBUSY => Self::because("our cgroup is at its memory limit (EBUSY)")
                .fixed_by("raise memory.max of the cgroup, or run hugepilot outside of it"),
            errno => Self::because(format!("{call} failed with {errno}")),
        }
    }

    /// `perf_event_open` on a process of our own user failed.
    pub(crate) fn of_event(errno: Errno, answer: Errno, rights: &Rights) -> Self {
        let call = "perf_event_open";
        if let Some(filtered) = filtered(call, errno, answer, rights) {
            return filtered;
        }
        match errno {
            Errno::EPERM | Errno::EACCES => match rights.perf_event_paranoid {
                Some(level) if level > 2 && !rights.has(Capability::Perfmon) => Self::because(format!(
                    "kernel.perf_event_paranoid={level} forbids perf events without cap_perfmon ({errno})"
                ))
                .fixed_by("sudo sysctl kernel.perf_event_paranoid=2"),
                _ => missing(call, errno, &[Capability::Perfmon], rights),
            },
            Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP => {
                Self::because(format!("no such event here ({errno})"))
            }
            errno => Self::of_sampling(call, errno)
                .unwrap_or_else(|| Self::because(format!("{call} failed with {errno}"))),
        }
    }

    /// Why the call that `error` names failed, as far as its errno alone tells; `None` where that says enough, as of a missing
    /// right.
    pub fn of(error: &KernelError) -> Option<Self> {
        let KernelError::Syscall { call, errno, .. } = error else { return None };
        match (*call, *errno) {
            ("PAGEMAP_SCAN", Errno::ENOTTY) => Some(no_pagemap_scan()),
            ("process_madvise", Errno::ENOSYS) => Some(no_process_madvise()),
            ("process_madvise", _) => None,
            (call, errno) => Self::of_sampling(call, errno),
        }
    }

    /// The same of the calls that sampling is made of: `perf_event_open`, and `ioctl` and `mmap` on its events. The causes are
    /// those of perf_event_open(2), and of the kernel's `kernel/events/core.c` where that names more.
    fn of_sampling(call: &str, errno: Errno) -> Option<Self> {
        let (why, fix) = match (call, errno) {
            ("perf_event_open", Errno::ENOSYS) => (
                "the kernel has no perf events, or a seccomp filter hides them",
                "a kernel with CONFIG_PERF_EVENTS; in a container, allow perf_event_open in its seccomp profile",
            ),
            ("perf_event_open", Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => (
                "the processor, its hypervisor or the kernel lacks this event",
                "`hugepilot doctor` says which samplers work here",
            ),
            ("perf_event_open", Errno::EINVAL) => (
                "the kernel does not take the event as it is asked for (EINVAL)",
                "a kernel of Linux 6.7 or newer",
            ),
            ("perf_event_open", Errno::EBUSY) => (
                "another program has the processor's counters to itself (EBUSY)",
                "end other profilers (perf, VTune, oprofile), and give back the watchdog's counter: sudo sysctl \
                 kernel.nmi_watchdog=0",
            ),
            ("perf_event_open", Errno::ENOSPC) => (
                "all hardware breakpoints or counters of the processor are in use (ENOSPC)",
                "end the debuggers and profilers that use them",
            ),
            (_, Errno::EMFILE) => (
                "this process has too many files open (EMFILE)",
                "let it have more: ulimit -n 65536 (as root, or systemd's LimitNOFILE=)",
            ),
            (_, Errno::ENFILE) => (
                "the whole system has too many files open (ENFILE)",
                "end programs that hold many files, or raise the limit: sudo sysctl fs.file-max=1000000",
            ),
            ("mmap of a perf event", Errno::EPERM) => (
                "the sample buffers of this user take more locked memory than is allowed (EPERM)",
                "sudo sysctl kernel.perf_event_mlock_kb=65536, or ulimit -l unlimited",
            ),
            ("perf_event_open" | "mmap of a perf event", Errno::ENOMEM) => (
                "no memory for sample buffers (ENOMEM)",
                "free memory, or raise the cgroup's limit",
            ),
            (call, Errno::ENOTTY | Errno::ENOSYS) if call.starts_with("ioctl(PERF") => (
                "a sandbox answers in the kernel's place, and does not know this ioctl of perf events",
                "run hugepilot outside of the sandbox (gVisor, a seccomp filter)",
            ),
            (call, Errno::EPERM | Errno::EACCES) if call.starts_with("ioctl(PERF") => (
                "a security module or a seccomp filter forbids the ioctl",
                "sudo dmesg | grep -iE 'denied|audit'",
            ),
            _ => return None,
        };
        Some(Self::because(why).fixed_by(fix))
    }

    /// Looking into a process of our own user (`call`: its page map, its memory) failed.
    pub(crate) fn of_look(
        call: &str,
        errno: Errno,
        answer: Option<Errno>,
        rights: &Rights,
    ) -> Self {
        if let Some(filtered) = answer.and_then(|answer| filtered(call, errno, answer, rights)) {
            return filtered;
        }
        match errno {
            Errno::EPERM | Errno::EACCES
                if rights.yama_ptrace_scope.is_some_and(|scope| scope > 1) =>
            {
                let scope = rights.yama_ptrace_scope.unwrap_or(0);
                Self::because(format!("kernel.yama.ptrace_scope={scope} forbids {call} ({errno})"))
                    .fixed_by("sudo sysctl kernel.yama.ptrace_scope=1")
            }
            Errno::EPERM | Errno::EACCES => missing(call, errno, &[Capability::SysPtrace], rights),
            Errno::ENOTTY => no_pagemap_scan(),
            errno => Self::because(format!("{call} failed with {errno}")),
        }
    }
}

fn no_process_madvise() -> Unsupported {
    Unsupported::because(
        "the kernel has no process_madvise (Linux 5.10), or a seccomp filter hides it",
    )
    .fixed_by("a kernel of Linux 6.12 or newer")
}

fn no_pagemap_scan() -> Unsupported {
    Unsupported::because("the kernel has no PAGEMAP_SCAN: it came with Linux 6.7")
        .fixed_by("a kernel of Linux 6.12 or newer")
}

/// The refusal when something other than the kernel proper answered. A kernel without the call and a filter that plays
/// one both say ENOSYS; only when there is a filter may it be the filter.
fn filtered(call: &str, errno: Errno, answer: Errno, rights: &Rights) -> Option<Unsupported> {
    if answer != errno {
        return None;
    }
    let why = match errno {
        Errno::EPERM | Errno::EACCES => {
            format!("a seccomp filter stops {call} before it reaches the kernel ({errno})")
        }
        Errno::ENOSYS if rights.seccomp_mode == 2 => {
            format!("a seccomp filter hides {call}, or the kernel was built without it ({errno})")
        }
        _ => return None,
    };
    Some(Unsupported::because(why).fixed_by(format!(
        "allow {call} in the filter (docker run --security-opt seccomp=PROFILE.json; systemd SystemCallFilter={call}), \
         or run hugepilot outside of it"
    )))
}

/// Which of the `wanted` capabilities is missing, and how to get it in the situation we are in.
fn missing(call: &str, errno: Errno, wanted: &[Capability], rights: &Rights) -> Unsupported {
    let Some(&lacking) = wanted.iter().find(|&&capability| !rights.has(capability)) else {
        return if rights.initial_user_namespace {
            Unsupported::because(format!(
                "{call} is forbidden ({errno}) although we hold its capability: a security module (SELinux, \
                 AppArmor, lockdown) may be the cause"
            ))
            .fixed_by("sudo dmesg | grep -iE 'denied|lockdown'")
        } else {
            Unsupported::because(format!(
                "{call} wants {} in the initial user namespace ({errno}); ours counts only in this container",
                wanted[0].name()
            ))
            .fixed_by(format!("run hugepilot on the host, or not rootless: {DOCKER_CAPABILITIES}"))
        };
    };
    let name = lacking.name();
    if !rights.bounding.has(lacking) {
        return Unsupported::because(format!(
            "{call} needs {name}, which this container or service withholds ({errno})"
        ))
        .fixed_by(DOCKER_CAPABILITIES);
    }
    let refusal =
        Unsupported::because(format!("{call} needs {name}, which we do not have ({errno})"));
    if rights.no_new_privs {
        let upper = name.to_ascii_uppercase();
        return refusal.fixed_by(format!(
            "sudo, outside of this session: no_new_privs is set, so file capabilities give nothing (systemd: \
             AmbientCapabilities={upper})"
        ));
    }
    refusal.fixed_by(executable::setcap(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Capabilities;

    const NICE: u64 = 1 << Capability::SysNice as u32;

    fn rights() -> Rights {
        Rights {
            bounding: Capabilities(u64::MAX),
            initial_user_namespace: true,
            perf_event_paranoid: Some(2),
            ..Rights::default()
        }
    }

    fn advice(rights: Rights) -> Unsupported {
        Unsupported::of_advice(Errno::EPERM, Errno::EINVAL, &rights)
    }

    #[test]
    fn a_missing_capability_is_named_with_the_way_to_get_it_here() {
        let plain = advice(rights());
        assert!(plain.cause.contains("cap_sys_nice") && plain.cause.contains("EPERM"), "{plain}");
        assert_eq!(plain.fix.as_deref(), Some(executable::setcap("").as_str()));

        let container = advice(Rights { bounding: Capabilities(0), ..rights() });
        assert!(container.cause.contains("container"), "{container}");
        assert!(container.fix.unwrap().contains("--cap-add SYS_NICE"));

        let fixed = advice(Rights { no_new_privs: true, ..rights() }).fix.unwrap();
        assert!(!fixed.contains("setcap") && fixed.contains("no_new_privs"));
    }

    #[test]
    fn a_held_capability_leaves_other_causes() {
        let held = Rights { permitted: Capabilities(NICE), ..rights() };
        assert!(advice(held).cause.contains("security module"));
        let rootless = advice(Rights { initial_user_namespace: false, ..held });
        assert!(rootless.cause.contains("initial user namespace"));
        assert!(rootless.fix.unwrap().contains("on the host"));
        let filter = Unsupported::of_advice(Errno::EPERM, Errno::EPERM, &held);
        assert!(filter.cause.contains("seccomp"), "{filter}");
    }

    #[test]
    fn events_are_forbidden_by_the_setting_or_not_there() {
        let strict = Rights { perf_event_paranoid: Some(4), ..rights() };
        let refusal = Unsupported::of_event(Errno::EACCES, Errno::EINVAL, &strict);
        assert!(refusal.cause.contains("perf_event_paranoid=4"), "{refusal}");
        assert_eq!(refusal.fix.as_deref(), Some("sudo sysctl kernel.perf_event_paranoid=2"));
        let absent = Unsupported::of_event(Errno::ENOENT, Errno::EINVAL, &rights());
        assert_eq!((absent.cause.as_str(), absent.fix), ("no such event here (ENOENT)", None));
        let filter = Unsupported::of_event(Errno::EPERM, Errno::EPERM, &rights());
        assert!(filter.cause.contains("seccomp"), "{filter}");
    }

    #[test]
    fn old_kernels_are_told_by_their_answer() {
        let old = Unsupported::of_advice(Errno::ENOSYS, Errno::ENOSYS, &rights());
        assert!(old.cause.contains("5.10"), "{old}");
        let filter = Rights { seccomp_mode: 2, ..rights() };
        let hidden = Unsupported::of_advice(Errno::ENOSYS, Errno::ENOSYS, &filter);
        assert!(hidden.cause.contains("seccomp"), "{hidden}");
        let scan = Unsupported::of_look("PAGEMAP_SCAN", Errno::ENOTTY, None, &rights());
        assert!(scan.cause.contains("6.7"), "{scan}");
        let yama = Rights { yama_ptrace_scope: Some(3), ..rights() };
        let read =
            Unsupported::of_look("process_vm_readv", Errno::EPERM, Some(Errno::EINVAL), &yama);
        assert!(read.cause.contains("ptrace_scope=3"), "{read}");
    }

    #[test]
    fn every_failure_of_sampling_has_a_cause_and_a_fix() {
        let of = |call, errno| {
            Unsupported::of(&KernelError::Syscall { call, pid: hugepilot_record::Pid(7), errno })
        };
        let (open, enable, map) =
            ("perf_event_open", "ioctl(PERF_EVENT_IOC_ENABLE)", "mmap of a perf event");
        for (call, errno, word) in [
            (open, Errno::ENOSYS, "CONFIG_PERF_EVENTS"),
            (open, Errno::EBUSY, "nmi_watchdog"),
            (open, Errno::ENOSPC, "breakpoints"),
            (open, Errno::EMFILE, "ulimit -n"),
            (open, Errno::ENFILE, "fs.file-max"),
            (open, Errno::EOPNOTSUPP, "doctor"),
            (open, Errno::ENODEV, "doctor"),
            (open, Errno::ENOENT, "doctor"),
            (open, Errno::ENOMEM, "free memory"),
            (enable, Errno::ENOTTY, "sandbox"),
            (enable, Errno::EPERM, "security module"),
            (map, Errno::EPERM, "perf_event_mlock_kb"),
            ("PAGEMAP_SCAN", Errno::ENOTTY, "6.7"),
            ("process_madvise", Errno::ENOSYS, "5.10"),
        ] {
            let refusal = of(call, errno).unwrap_or_else(|| panic!("{call} {errno}"));
            let text = format!("{refusal} {}", refusal.fix.as_ref().expect("a fix"));
            assert!(text.contains(word), "{call} {errno}: {text}");
        }
        assert_eq!(of(open, Errno::EACCES), None, "a right: its fix depends on who we are");
    }
}
