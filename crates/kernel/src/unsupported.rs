//! Reasons for errors of the kernel, from the error number and the permissions of this process.

use hugepilot_record::{Errno, Unsupported};

use crate::rights::{Capability, Rights};
use crate::{KernelError, executable};

/// Returns why `process_madvise` on a process of the same user failed with `errno`.
///
/// `answer` is the error of an impossible request ([`crate::sys::reach`]).
pub(crate) fn of_advice(errno: Errno, answer: Errno, rights: &Rights) -> Unsupported {
    let call = "process_madvise";
    if let Some(filtered) = filtered(call, errno, answer, rights) {
        return filtered;
    }
    match errno {
        Errno::EPERM | Errno::EACCES => missing(call, errno, Capability::SysNice, rights),
        Errno::ENOSYS => Unsupported::NoProcessMadvise,
        Errno::EINVAL => Unsupported::AdviceUnknown,
        Errno::ENOMEM => Unsupported::Fragmented,
        Errno::EBUSY => Unsupported::CgroupFull,
        errno => failed(call, errno),
    }
}

/// Returns why `perf_event_open` on a process of the same user failed with `errno`.
pub(crate) fn of_event(errno: Errno, answer: Errno, rights: &Rights) -> Unsupported {
    let call = "perf_event_open";
    if let Some(filtered) = filtered(call, errno, answer, rights) {
        return filtered;
    }
    match errno {
        Errno::EPERM | Errno::EACCES => match rights.perf_event_paranoid {
            Some(level) if level > 2 && !rights.has(Capability::Perfmon) => {
                Unsupported::PerfEventParanoid { level, errno }
            }
            _ => missing(call, errno, Capability::Perfmon, rights),
        },
        Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP => Unsupported::NoSuchEvent { errno },
        errno => of_sampling(call, errno).unwrap_or_else(|| failed(call, errno)),
    }
}

/// Returns why a read of a process of the same user failed (`call`: of its pagemap, its memory).
pub(crate) fn of_read(
    call: &str,
    errno: Errno,
    answer: Option<Errno>,
    rights: &Rights,
) -> Unsupported {
    if let Some(filtered) = answer.and_then(|answer| filtered(call, errno, answer, rights)) {
        return filtered;
    }
    match (errno, rights.yama_ptrace_scope) {
        (Errno::EPERM | Errno::EACCES, Some(scope)) if scope > 1 => {
            Unsupported::PtraceScope { scope, call: call.to_owned(), errno }
        }
        (Errno::EPERM | Errno::EACCES, _) => missing(call, errno, Capability::SysPtrace, rights),
        (Errno::ENOTTY, _) => Unsupported::NoPagemapScan,
        (errno, _) => failed(call, errno),
    }
}

impl KernelError {
    /// Returns the reason that the call and its error number alone show; `None` if they show none,
    /// as for a missing permission.
    pub fn unsupported(&self) -> Option<Unsupported> {
        let Self::Syscall { call, errno, .. } = self else { return None };
        match (*call, *errno) {
            ("PAGEMAP_SCAN", Errno::ENOTTY) => Some(Unsupported::NoPagemapScan),
            ("process_madvise", Errno::ENOSYS) => Some(Unsupported::NoProcessMadvise),
            ("process_madvise", _) => None,
            (call, errno) => of_sampling(call, errno),
        }
    }
}

/// Returns the reason for errors of the calls that sampling uses: `perf_event_open`, and `ioctl`
/// and `mmap` on its events.
///
/// Sources: perf_event_open(2), and the kernel's `kernel/events/core.c` for further causes.
fn of_sampling(call: &str, errno: Errno) -> Option<Unsupported> {
    Some(match (call, errno) {
        ("perf_event_open", Errno::ENOSYS) => Unsupported::NoPerfEvents,
        ("perf_event_open", Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => {
            Unsupported::EventMissing
        }
        ("perf_event_open", Errno::EINVAL) => Unsupported::EventInvalid,
        ("perf_event_open", Errno::EBUSY) => Unsupported::CountersBusy,
        ("perf_event_open", Errno::ENOSPC) => Unsupported::CountersInUse,
        (_, Errno::EMFILE) => Unsupported::OpenFiles,
        (_, Errno::ENFILE) => Unsupported::SystemOpenFiles,
        ("mmap of a perf event", Errno::EPERM) => Unsupported::LockedMemory,
        ("perf_event_open" | "mmap of a perf event", Errno::ENOMEM) => Unsupported::NoSampleBuffers,
        (call, Errno::ENOTTY | Errno::ENOSYS) if call.starts_with("ioctl(PERF") => {
            Unsupported::SandboxIoctl
        }
        (call, Errno::EPERM | Errno::EACCES) if call.starts_with("ioctl(PERF") => {
            Unsupported::IoctlForbidden
        }
        _ => return None,
    })
}

fn failed(call: &str, errno: Errno) -> Unsupported {
    Unsupported::CallFailed { call: call.to_owned(), errno }
}

/// Returns the reason if a filter answered instead of the kernel.
///
/// A kernel without the call and a filter that hides it both return ENOSYS. Only if there is a
/// filter may it be the filter.
fn filtered(call: &str, errno: Errno, answer: Errno, rights: &Rights) -> Option<Unsupported> {
    if answer != errno {
        return None;
    }
    let call = call.to_owned();
    match errno {
        Errno::EPERM | Errno::EACCES => Some(Unsupported::SeccompFilter { call, errno }),
        Errno::ENOSYS if rights.seccomp_mode == 2 => {
            Some(Unsupported::SeccompOrKernel { call, errno })
        }
        _ => None,
    }
}

/// Returns why `call`, which requires `capability`, is not permitted.
fn missing(call: &str, errno: Errno, capability: Capability, rights: &Rights) -> Unsupported {
    let (call, name) = (call.to_owned(), capability.name().to_owned());
    if rights.has(capability) {
        return if rights.initial_user_namespace {
            Unsupported::SecurityModule { call, errno }
        } else {
            Unsupported::UserNamespace { call, capability: name, errno }
        };
    }
    if !rights.bounding.has(capability) {
        return Unsupported::CapabilityWithheld { call, capability: name, errno };
    }
    if rights.no_new_privs {
        return Unsupported::NoNewPrivs { call, capability: name, errno };
    }
    let setcap = executable::setcap("");
    Unsupported::CapabilityMissing { call, capability: name, errno, setcap }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

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
        of_advice(Errno::EPERM, Errno::EINVAL, &rights)
    }

    #[test]
    fn a_missing_capability_is_named_with_the_way_to_get_it_here() {
        let plain = advice(rights());
        let (call, capability) = ("process_madvise".into(), "cap_sys_nice".into());
        let (errno, setcap) = (Errno::EPERM, executable::setcap(""));
        assert_eq!(plain, Unsupported::CapabilityMissing { call, capability, errno, setcap });

        let container = advice(Rights { bounding: Capabilities(0), ..rights() });
        assert!(matches!(container, Unsupported::CapabilityWithheld { .. }), "{container}");
        let service = advice(Rights { no_new_privs: true, ..rights() });
        assert!(matches!(service, Unsupported::NoNewPrivs { .. }), "{service}");
    }

    #[test]
    fn a_held_capability_leaves_other_causes() {
        let held = Rights { permitted: Capabilities(NICE), ..rights() };
        assert!(matches!(advice(held), Unsupported::SecurityModule { .. }));
        let rootless = advice(Rights { initial_user_namespace: false, ..held });
        assert!(matches!(rootless, Unsupported::UserNamespace { .. }));
        let filter = of_advice(Errno::EPERM, Errno::EPERM, &held);
        assert!(matches!(filter, Unsupported::SeccompFilter { .. }), "{filter}");
    }

    #[test]
    fn events_are_forbidden_by_the_setting_or_missing() {
        let strict = Rights { perf_event_paranoid: Some(4), ..rights() };
        let denied = of_event(Errno::EACCES, Errno::EINVAL, &strict);
        assert_eq!(denied, Unsupported::PerfEventParanoid { level: 4, errno: Errno::EACCES });
        let absent = of_event(Errno::ENOENT, Errno::EINVAL, &rights());
        assert_eq!(absent, Unsupported::NoSuchEvent { errno: Errno::ENOENT });
        let filter = of_event(Errno::EPERM, Errno::EPERM, &rights());
        assert!(matches!(filter, Unsupported::SeccompFilter { .. }), "{filter}");
    }

    #[test]
    fn old_kernels_are_known_by_their_error() {
        let old = of_advice(Errno::ENOSYS, Errno::ENOSYS, &rights());
        assert_eq!(old, Unsupported::NoProcessMadvise);
        let filter = Rights { seccomp_mode: 2, ..rights() };
        let hidden = of_advice(Errno::ENOSYS, Errno::ENOSYS, &filter);
        assert!(matches!(hidden, Unsupported::SeccompOrKernel { .. }), "{hidden}");
        let scan = of_read("PAGEMAP_SCAN", Errno::ENOTTY, None, &rights());
        assert_eq!(scan, Unsupported::NoPagemapScan);
        let yama = Rights { yama_ptrace_scope: Some(3), ..rights() };
        let read = of_read("process_vm_readv", Errno::EPERM, Some(Errno::EINVAL), &yama);
        assert!(matches!(read, Unsupported::PtraceScope { scope: 3, .. }), "{read}");
    }

    #[test]
    fn every_failure_of_sampling_has_a_cause() {
        let of = |call, errno| KernelError::Syscall { call, pid: Pid(7), errno }.unsupported();
        let (open, enable, map) =
            ("perf_event_open", "ioctl(PERF_EVENT_IOC_ENABLE)", "mmap of a perf event");
        for (call, errno, reason) in [
            (open, Errno::ENOSYS, Unsupported::NoPerfEvents),
            (open, Errno::EBUSY, Unsupported::CountersBusy),
            (open, Errno::ENOSPC, Unsupported::CountersInUse),
            (open, Errno::EMFILE, Unsupported::OpenFiles),
            (open, Errno::ENFILE, Unsupported::SystemOpenFiles),
            (open, Errno::EOPNOTSUPP, Unsupported::EventMissing),
            (open, Errno::ENODEV, Unsupported::EventMissing),
            (open, Errno::ENOENT, Unsupported::EventMissing),
            (open, Errno::ENOMEM, Unsupported::NoSampleBuffers),
            (enable, Errno::ENOTTY, Unsupported::SandboxIoctl),
            (enable, Errno::EPERM, Unsupported::IoctlForbidden),
            (map, Errno::EPERM, Unsupported::LockedMemory),
            ("PAGEMAP_SCAN", Errno::ENOTTY, Unsupported::NoPagemapScan),
            ("process_madvise", Errno::ENOSYS, Unsupported::NoProcessMadvise),
        ] {
            assert_eq!(of(call, errno), Some(reason), "{call} {errno}");
        }
        assert_eq!(of(open, Errno::EACCES), None, "the help depends on the permissions");
    }
}
