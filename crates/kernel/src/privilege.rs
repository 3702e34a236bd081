//! Capabilities of the binary, raised for one kind of call at a time.
//!
//! A binary with file capabilities (`setcap`) acts for users who do not hold these capabilities.
//! [`lower`] therefore empties the effective set before anything else runs. The capabilities stay
//! in the permitted set, and `raised` makes those that one [`Purpose`] needs effective for one
//! call. Everything else, above all each file that a user names, is opened with the permissions of
//! the user. Commands that need no capability [`renounce`] them.
//!
//! Root is not confined: each of these capabilities is root's own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, dumpable_behavior, getegid, geteuid, getgid, getuid, set_dumpable_behavior,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_ambient_set, set_capabilities,
};

use crate::rights::Capability;
use crate::{Unsupported, executable};

/// Purpose for which a capability is raised. SECURITY.md lists these; a test compares both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Opens `/proc/PID` and the files there that every user may read, if `/proc` is mounted with
    /// `hidepid`.
    OpenProcess,
    /// Opens `/proc/PID/pagemap`.
    OpenPageMap,
    /// Opens `/proc/PID/maps`, `smaps` and `smaps_rollup`.
    OpenMappings,
    /// Opens the directory `/proc/PID/root`, without anything below it.
    EnterRoot,
    /// Copies memory out of the target: `process_vm_readv`.
    ReadMemory,
    /// Promotes or splits memory of the target: `process_madvise`.
    AdviseMemory,
    /// Samples or counts events of the target: `perf_event_open`.
    OpenEvent,
}

impl Purpose {
    /// Each purpose, in the order of SECURITY.md.
    pub const ALL: [Self; 7] = [
        Self::OpenProcess,
        Self::OpenPageMap,
        Self::OpenMappings,
        Self::EnterRoot,
        Self::ReadMemory,
        Self::AdviseMemory,
        Self::OpenEvent,
    ];

    /// Returns the capabilities that the kernel may require. Those that the binary lacks are not
    /// raised.
    pub const fn capabilities(self) -> &'static [Capability] {
        use Capability::{DacReadSearch, Perfmon, SysNice, SysPtrace};
        match self {
            Self::OpenProcess | Self::EnterRoot | Self::ReadMemory => &[SysPtrace],
            Self::OpenPageMap => &[DacReadSearch, Perfmon, SysPtrace],
            Self::OpenMappings => &[Perfmon, SysPtrace],
            Self::AdviseMemory => &[SysNice, Perfmon, SysPtrace],
            Self::OpenEvent => &[Perfmon, SysPtrace],
        }
    }

    /// Returns the system calls between raising and lowering, by name.
    pub const fn calls(self) -> &'static [&'static str] {
        match self {
            Self::OpenProcess | Self::OpenPageMap | Self::OpenMappings => &["open", "openat"],
            Self::EnterRoot => &["openat"],
            Self::ReadMemory => &["process_vm_readv"],
            Self::AdviseMemory => &["process_madvise"],
            Self::OpenEvent => &["perf_event_open"],
        }
    }

    /// Returns the object that is opened or called, as in SECURITY.md.
    pub const fn object(self) -> &'static str {
        match self {
            Self::OpenProcess => "`/proc/PID` and its world-readable files, for `hidepid`",
            Self::OpenPageMap => "`/proc/PID/pagemap`",
            Self::OpenMappings => "`/proc/PID/maps`, `smaps`, `smaps_rollup`",
            Self::EnterRoot => "`/proc/PID/root`, the directory alone",
            Self::ReadMemory => {
                "memory of the target, to count zero-filled pages and to decode JIT code"
            }
            Self::AdviseMemory => "`MADV_COLLAPSE` and `MADV_COLD` on the target",
            Self::OpenEvent => "perf events of the target",
        }
    }

    fn set(self) -> u64 {
        self.capabilities().iter().fold(0, |set, &capability| set | 1 << capability as u32)
    }
}

/// Capabilities that [`raised`] may raise: the permitted set once [`lower`] has emptied the
/// effective one. 0 before, for root, and without capabilities: then no call needs raising.
static PERMITTED: AtomicU64 = AtomicU64::new(0);

/// Whether this process runs with the IDs of another user or group: from a set-uid or set-gid
/// binary.
pub fn is_set_id() -> bool {
    getuid() != geteuid() || getgid() != getegid()
}

/// Returns the user and the group that started this process.
pub fn own_ids() -> (u32, u32) {
    (getuid().as_raw(), getgid().as_raw())
}

/// Empties the effective set and keeps the capabilities permitted. Call it at the start of the
/// program, before the first thread. Does nothing for root.
///
/// # Errors
/// For a set-uid or set-gid binary, which would open files with the permissions of its owner; if
/// the kernel rejects the call, as with a seccomp filter.
pub fn lower() -> Result<(), Unsupported> {
    if is_set_id() {
        return Err(Unsupported::SetUid { binary: executable::quoted() });
    }
    if getuid().is_root() {
        return Ok(());
    }
    let sets = capabilities(None).map_err(|errno| lowering_failed("capget", errno))?;
    if sets.permitted.is_empty() {
        return Ok(());
    }
    let lowered = CapabilitySets { effective: CapabilitySet::empty(), ..sets };
    set_capabilities(None, lowered).map_err(|errno| lowering_failed("capset", errno))?;
    PERMITTED.store(sets.permitted.bits(), Relaxed);
    Ok(())
}

/// Renounces the capabilities of the binary for good. The ambient ones, which the user hands to
/// every program, stay permitted, so that a started program inherits them as without hugepilot.
/// Then `/proc/self` belongs to the user again, as for a binary without file capabilities.
///
/// # Errors
/// If the kernel rejects a call, as with a seccomp filter.
pub fn renounce() -> Result<(), Unsupported> {
    if PERMITTED.swap(0, Relaxed) == 0 {
        return Ok(());
    }
    let sets = capabilities(None).map_err(|errno| lowering_failed("capget", errno))?;
    let ambient = sets.permitted.iter().filter(|&one| is_ambient(one)).collect();
    let kept = CapabilitySets { effective: CapabilitySet::empty(), permitted: ambient, ..sets };
    set_capabilities(None, kept).map_err(|errno| lowering_failed("capset", errno))?;
    // The kernel hides a process that gained capabilities at its start from its user. Without
    // capabilities, it need not stay hidden.
    let dumpable = || match dumpable_behavior()? {
        DumpableBehavior::Dumpable => Ok(()),
        _ => set_dumpable_behavior(DumpableBehavior::Dumpable),
    };
    dumpable().map_err(|errno| lowering_failed("prctl", errno))
}

/// Returns the error of lowering capabilities. The kernel permits it to every process, so a filter
/// or a security module rejected it.
fn lowering_failed(call: &str, errno: Errno) -> Unsupported {
    let errno = hugepilot_record::Errno(errno.raw_os_error());
    Unsupported::CannotLower { call: call.to_owned(), errno }
}

fn is_ambient(one: CapabilitySet) -> bool {
    capability_is_in_ambient_set(one).unwrap_or(false)
}

/// Renounces all capabilities of a forked child, which then is an ordinary process of the user.
/// Async-signal-safe.
pub(crate) fn renounce_in_child() {
    if PERMITTED.load(Relaxed) != 0 {
        let none = CapabilitySet::empty();
        let _ = set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        );
    }
}

/// Runs `work` with the permitted capabilities of `purpose` effective in this thread. Costs three
/// system calls for a binary with capabilities, and nothing for others.
pub(crate) fn raised<T>(purpose: Purpose, work: impl FnOnce() -> T) -> T {
    let wanted = purpose.set() & PERMITTED.load(Relaxed);
    let _lowered_on_drop = (wanted != 0).then(|| RaisedCapabilities::new(wanted)).flatten();
    work()
}

/// Guard that keeps capabilities effective, also through a panic. They belong to a thread, so this
/// is not `Send`.
struct RaisedCapabilities {
    sets: CapabilitySets,
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl RaisedCapabilities {
    /// `None` if the kernel rejects it: the call that follows then reports the missing capability.
    fn new(wanted: u64) -> Option<Self> {
        let sets = capabilities(None).ok()?;
        let effective = CapabilitySet::from_bits_retain(wanted);
        set_capabilities(None, CapabilitySets { effective, ..sets }).ok()?;
        Some(Self { sets, _of_this_thread: std::marker::PhantomData })
    }
}

impl Drop for RaisedCapabilities {
    fn drop(&mut self) {
        if let Err(error) = set_capabilities(None, self.sets) {
            // A process that cannot lower a capability must not go on with it.
            eprintln!("hugepilot: cannot lower capabilities: capset: {error}");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_raises_something_and_nothing_that_changes_files() {
        for purpose in Purpose::ALL {
            assert!(purpose.set() != 0 && !purpose.calls().is_empty(), "{purpose:?}");
        }
        let reads = |purpose: &Purpose| purpose.set() >> Capability::DacReadSearch as u32 & 1 == 1;
        let readers: Vec<_> = Purpose::ALL.into_iter().filter(reads).collect();
        assert_eq!(readers, [Purpose::OpenPageMap], "the only one that passes file permissions");
    }

    #[test]
    fn security_md_lists_each_purpose_with_its_capabilities() {
        let document = include_str!("../../../SECURITY.md");
        let row = |purpose: Purpose| {
            let names: Vec<_> =
                purpose.capabilities().iter().map(|one| format!("`{}`", one.name())).collect();
            format!("| {} | {} |", purpose.object(), names.join(", "))
        };
        let rows: Vec<_> = Purpose::ALL.into_iter().map(row).collect();
        assert!(
            document.contains(&rows.join("\n")),
            "SECURITY.md should have:\n{}",
            rows.join("\n")
        );
    }
}
