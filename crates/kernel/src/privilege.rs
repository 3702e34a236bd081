//! Capabilities of the binary, raised for one kind of call at a time.
//!
//! A binary with file capabilities (`setcap`) acts for users who do not hold these capabilities. [`lower`] therefore
//! empties the effective set before anything else runs. The capabilities stay in the permitted set, and `raised`
//! makes those that one [`Purpose`] needs effective for one call. Everything else, above all each file that a user
//! names, is opened with the rights of the user. Commands that need no capability [`renounce`] them.
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

/// Why a capability is raised. SECURITY.md lists these; a test compares both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Opens `/proc/PID` and the files there that every user may read, if `/proc` is mounted with `hidepid`.
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

    /// The capabilities that the kernel may ask for. Those that the binary lacks are not raised.
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

    /// The system calls between raising and lowering, by name.
    pub const fn calls(self) -> &'static [&'static str] {
        match self {
            Self::OpenProcess | Self::OpenPageMap | Self::OpenMappings => &["open", "openat"],
            Self::EnterRoot => &["openat"],
            Self::ReadMemory => &["process_vm_readv"],
            Self::AdviseMemory => &["process_madvise"],
            Self::OpenEvent => &["perf_event_open"],
        }
    }

    /// What is opened or called, as SECURITY.md has it.
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

/// The capabilities that [`raised`] may raise: the permitted set once [`lower`] has emptied the effective one. 0 before,
/// for root, and without capabilities: then nothing needs raising.
static PERMITTED: AtomicU64 = AtomicU64::new(0);

/// Whether this process runs with the rights of another user or group: from a set-uid or set-gid
/// binary.
pub fn is_set_id() -> bool {
    getuid() != geteuid() || getgid() != getegid()
}

/// Returns the user and the group that started this process.
pub fn own_ids() -> (u32, u32) {
    (getuid().as_raw(), getgid().as_raw())
}

/// Takes all capabilities out of the effective set and keeps them permitted. For the start of the program, before the
/// first thread; does nothing for root.
///
/// # Errors
/// For a set-uid or set-gid binary, which would open files with the rights of the owner of the binary; if the kernel
/// refuses the call, as with a seccomp filter.
pub fn lower() -> Result<(), Unsupported> {
    if is_set_id() {
        return Err(Unsupported::SetUid { binary: executable::quoted() });
    }
    if getuid().is_root() {
        return Ok(());
    }
    let sets = capabilities(None).map_err(|errno| stopped("capget", errno))?;
    if sets.permitted.is_empty() {
        return Ok(());
    }
    let lowered = CapabilitySets { effective: CapabilitySet::empty(), ..sets };
    set_capabilities(None, lowered).map_err(|errno| stopped("capset", errno))?;
    PERMITTED.store(sets.permitted.bits(), Relaxed);
    Ok(())
}

/// Gives up the capabilities of the binary for good. The ambient ones, which the user hands to every program, stay
/// permitted, so that a program that is started inherits them as without hugepilot. Then `/proc/self` belongs to the
/// user again, as for a binary without file capabilities.
///
/// # Errors
/// If the kernel refuses one of the calls, as with a seccomp filter.
pub fn renounce() -> Result<(), Unsupported> {
    if PERMITTED.swap(0, Relaxed) == 0 {
        return Ok(());
    }
    let sets = capabilities(None).map_err(|errno| stopped("capget", errno))?;
    let ambient = sets.permitted.iter().filter(|&one| is_ambient(one)).collect();
    let kept = CapabilitySets { effective: CapabilitySet::empty(), permitted: ambient, ..sets };
    set_capabilities(None, kept).map_err(|errno| stopped("capset", errno))?;
    // The kernel hides a process that gained capabilities at its start from the user. Nothing is left to hide.
    let dumpable = || match dumpable_behavior()? {
        DumpableBehavior::Dumpable => Ok(()),
        _ => set_dumpable_behavior(DumpableBehavior::Dumpable),
    };
    dumpable().map_err(|errno| stopped("prctl", errno))
}

/// The kernel lets every process lower its own rights: something else refused.
fn stopped(call: &str, errno: Errno) -> Unsupported {
    let errno = hugepilot_record::Errno(errno.raw_os_error());
    Unsupported::CannotLower { call: call.to_owned(), errno }
}

fn is_ambient(one: CapabilitySet) -> bool {
    capability_is_in_ambient_set(one).unwrap_or(false)
}

/// Gives up all capabilities of a forked child, which then is an ordinary process of the user. Async-signal-safe.
pub(crate) fn renounce_in_child() {
    if PERMITTED.load(Relaxed) != 0 {
        let none = CapabilitySet::empty();
        let _ = set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        );
    }
}

/// Does `work` with the capabilities of `purpose` effective in this thread, as far as they are permitted. Costs
/// three system calls for a binary with capabilities, and nothing for others.
pub(crate) fn raised<T>(purpose: Purpose, work: impl FnOnce() -> T) -> T {
    let wanted = purpose.set() & PERMITTED.load(Relaxed);
    let _lowered_on_drop = (wanted != 0).then(|| Raised::new(wanted)).flatten();
    work()
}

/// Capabilities are effective while this lives, also through a panic. They belong to a thread, so this is not `Send`.
struct Raised {
    sets: CapabilitySets,
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl Raised {
    /// `None` if the kernel refuses: the call that follows then reports what is missing.
    fn new(wanted: u64) -> Option<Self> {
        let sets = capabilities(None).ok()?;
        let effective = CapabilitySet::from_bits_retain(wanted);
        set_capabilities(None, CapabilitySets { effective, ..sets }).ok()?;
        Some(Self { sets, _of_this_thread: std::marker::PhantomData })
    }
}

impl Drop for Raised {
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
    fn a_filter_that_refuses_is_not_taken_for_a_set_uid_bit() {
        let reason = stopped("capset", Errno::PERM);
        let text = reason.to_string();
        assert!(text.contains("seccomp") && !text.contains("set-uid"), "{text}");
        let help = &reason.help()[0];
        assert!(help.contains("SystemCallFilter=capset") && !help.contains("chmod"), "{help}");
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
