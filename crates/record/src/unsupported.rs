//! Reasons why a kernel, a machine or a user does not support a feature.

mod help;
mod mode;
mod pool;
mod prefetch;
mod shrink;

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use help::raise_pool_limit;
pub use mode::ModeUnsupported;
pub use pool::PoolUnsupported;
pub use prefetch::PrefetchUnsupported;
pub use shrink::ShrinkUnsupported;

use crate::Errno;

/// Reason why a feature does not work here, with the facts that its sentence and its help need.
///
/// In JSON, `code` names the variant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unsupported {
    /// The user lacks a capability that file capabilities can grant.
    #[error("{call} requires {capability}, which hugepilot lacks ({errno})")]
    CapabilityMissing {
        /// System call.
        call: String,
        /// Name, such as `cap_sys_nice`.
        capability: String,
        /// Error of the call.
        errno: Errno,
        /// Command that grants hugepilot's capabilities to the running binary.
        setcap: String,
    },
    /// The user lacks a capability, and `no_new_privs` voids file capabilities.
    #[error("{call} requires {capability}, which hugepilot lacks ({errno})")]
    NoNewPrivs {
        /// System call.
        call: String,
        /// Name, such as `cap_sys_nice`.
        capability: String,
        /// Error of the call.
        errno: Errno,
    },
    /// The bounding set of a container or service lacks a capability.
    #[error("{call} requires {capability}, which this container or service withholds ({errno})")]
    CapabilityWithheld {
        /// System call.
        call: String,
        /// Name, such as `cap_sys_nice`.
        capability: String,
        /// Error of the call.
        errno: Errno,
    },
    /// A capability is held, but only in a user namespace.
    #[error(
        "{call} requires {capability} in the initial user namespace ({errno}); hugepilot holds it \
         in this container only"
    )]
    UserNamespace {
        /// System call.
        call: String,
        /// Name, such as `cap_sys_nice`.
        capability: String,
        /// Error of the call.
        errno: Errno,
    },
    /// A call is forbidden although its capability is held.
    #[error(
        "{call} is forbidden ({errno}) although hugepilot has its capability: a security module \
         (SELinux, AppArmor, lockdown) may be the cause"
    )]
    SecurityModule {
        /// System call.
        call: String,
        /// Error of the call.
        errno: Errno,
    },
    /// A seccomp filter answered instead of the kernel.
    #[error("a seccomp filter stops {call} before it reaches the kernel ({errno})")]
    SeccompFilter {
        /// System call.
        call: String,
        /// Error of the filter.
        errno: Errno,
    },
    /// Either a seccomp filter or the kernel's configuration lacks a call.
    #[error("a seccomp filter hides {call}, or the kernel was built without it ({errno})")]
    SeccompOrKernel {
        /// System call.
        call: String,
        /// Error of the filter or the kernel.
        errno: Errno,
    },
    /// `kernel.perf_event_paranoid` is above 2.
    #[error("kernel.perf_event_paranoid={level} forbids perf events without cap_perfmon ({errno})")]
    PerfEventParanoid {
        /// Value of the setting.
        level: i32,
        /// Error of the call.
        errno: Errno,
    },
    /// `kernel.yama.ptrace_scope` is above 1.
    #[error("kernel.yama.ptrace_scope={scope} forbids {call} ({errno})")]
    PtraceScope {
        /// Value of the setting.
        scope: i32,
        /// System call.
        call: String,
        /// Error of the call.
        errno: Errno,
    },
    /// A call failed for a reason that has no variant.
    #[error("{call} failed with {errno}")]
    CallFailed {
        /// System call.
        call: String,
        /// Error of the call.
        errno: Errno,
    },

    /// The kernel has no `process_madvise`.
    #[error("the kernel has no process_madvise (Linux 5.10), or a seccomp filter hides it")]
    NoProcessMadvise,
    /// The kernel has no `PAGEMAP_SCAN`.
    #[error("the kernel has no PAGEMAP_SCAN: it came with Linux 6.7")]
    NoPagemapScan,
    /// The kernel does not know the advice.
    #[error(
        "the kernel rejects the advice (EINVAL): it is older than Linux 6.1, or built without THP"
    )]
    AdviceUnknown,
    /// No free huge page for a promotion.
    #[error("the kernel found no free huge page (ENOMEM): memory is fragmented")]
    Fragmented,
    /// The cgroup of hugepilot is at its limit.
    #[error("hugepilot's cgroup is at its memory limit (EBUSY)")]
    CgroupFull,
    /// `prctl(PR_SET_THP_DISABLE)` is in force.
    #[error("THP is disabled for hugepilot by prctl(PR_SET_THP_DISABLE), which children inherit")]
    ThpDisabled,

    /// The kernel has no perf events.
    #[error("the kernel has no perf events, or a seccomp filter hides them")]
    NoPerfEvents,
    /// A probe found that an event does not exist.
    #[error("no such event here ({errno})")]
    NoSuchEvent {
        /// Error of `perf_event_open`.
        errno: Errno,
    },
    /// No event of the processor exists, not even `cycles`.
    #[error(
        "this {} has no performance counters (PMU)",
        if *.hypervisor { "virtual machine" } else { "machine" }
    )]
    NoCounters {
        /// Whether the machine is virtual.
        hypervisor: bool,
    },
    /// An event that a command needs does not exist.
    #[error("the processor, its hypervisor or the kernel lacks this event")]
    EventMissing,
    /// The kernel rejects the attributes of an event.
    #[error("the kernel rejects the attributes of the event (EINVAL)")]
    EventInvalid,
    /// Another program has exclusive use of the counters.
    #[error("another program has exclusive use of the processor's counters (EBUSY)")]
    CountersBusy,
    /// No counter or breakpoint is free.
    #[error("all hardware breakpoints or counters of the processor are in use (ENOSPC)")]
    CountersInUse,
    /// The limit on open files of this process.
    #[error("this process has too many files open (EMFILE)")]
    OpenFiles,
    /// The limit on open files of the system.
    #[error("the whole system has too many files open (ENFILE)")]
    SystemOpenFiles,
    /// The limit on open files, known before a target's counters were opened.
    #[error("{threads} threads need too many open files")]
    ThreadsNeedFiles {
        /// Threads of the target.
        threads: usize,
        /// Limit on open files that is enough.
        limit: usize,
    },
    /// The limit on locked memory.
    #[error("the sample buffers of this user exceed the limit on locked memory (EPERM)")]
    LockedMemory,
    /// No memory for sample buffers.
    #[error("no memory for sample buffers (ENOMEM)")]
    NoSampleBuffers,
    /// A sandbox emulates perf events and lacks an ioctl.
    #[error("a sandbox that emulates perf events does not know this ioctl")]
    SandboxIoctl,
    /// An ioctl on a perf event is forbidden.
    #[error("a security module or a seccomp filter forbids the ioctl")]
    IoctlForbidden,
    /// The target ended.
    #[error("the process is gone")]
    ProcessGone,

    /// The binary is set-uid or set-gid.
    #[error("the binary is set-uid or set-gid, which opens the files of its owner to every user")]
    SetUid {
        /// Path of the binary, quoted for a shell.
        binary: String,
    },
    /// Lowering capabilities failed.
    #[error(
        "cannot lower capabilities: {call}: {errno}; a seccomp filter or a security module \
         rejects it"
    )]
    CannotLower {
        /// System call.
        call: String,
        /// Error of the call.
        errno: Errno,
    },

    /// Reclaim was requested of the root cgroup.
    #[error("the kernel reclaims nothing from the root of all cgroups")]
    RootCgroup,
    /// An amount was requested of a cgroup of version 1.
    #[error(
        "memory.force_empty takes no amount: in cgroups of version 1 the kernel reclaims as much \
         as it can"
    )]
    ReclaimAmount,
    /// Reclaim would swap.
    #[error("there is swap space, and memory.force_empty would swap out all memory of the cgroup")]
    ReclaimSwaps {
        /// Setting that allows the swapping.
        file: String,
    },
    /// The kernel has no file for reclaim.
    #[error("the cgroup {cgroup} has no {file}")]
    NoReclaimFile {
        /// Path of the cgroup.
        cgroup: String,
        /// Name of the file.
        file: String,
    },

    /// A probe got no memory.
    #[error("no memory could be mapped for the probe: {errno}")]
    NoProbeMemory {
        /// Error of `mmap`.
        errno: Errno,
    },
    /// A probe got no child process.
    #[error("no child process could be started for the probe: {errno}")]
    NoProbeChild {
        /// Error of `fork`.
        errno: Errno,
    },
    /// The child of the demotion probe got no huge page.
    #[error("the child got no huge page for the probe: memory is fragmented, or THP is off")]
    NoHugePage,
    /// khugepaged promoted the child first.
    #[error("khugepaged promoted the child before the probe could, so the probe shows nothing")]
    KhugepagedFirst,
    /// A promotion had no effect.
    #[error("the kernel accepted MADV_COLLAPSE, but the pagemap shows no huge page")]
    NotPromoted,
    /// A split had no effect.
    #[error("the kernel accepted MADV_COLD on one page, but split nothing")]
    NotSplit,
    /// A split freed nothing.
    #[error("the huge page was split, but its zero-filled pages were not freed")]
    ZeroPagesKept,
    /// The pages of a probe's child could not be read.
    #[error("cannot verify the pages of the child: {error}")]
    NotVerified {
        /// Error of the read.
        error: String,
    },
    /// The pagemap differs from the child's memory.
    #[error("the pagemap of a child shows {pages} of {expected} pages")]
    PagesMissing {
        /// Pages in the pagemap.
        pages: u64,
        /// Pages of the child.
        expected: u64,
    },
    /// A read returned other bytes than the child wrote.
    #[error("process_vm_readv returned other bytes than the child wrote")]
    WrongMemory,
    /// An event gave no samples with registers.
    #[error("the event opened, but no sample with registers arrived")]
    NoSamples,
    /// An event gave no samples with addresses.
    #[error("the event opened, but no page walk with an address arrived")]
    NoPageWalks,

    /// hugepilot has no source of data addresses for this vendor.
    #[error("no source of data addresses is known for {vendor}")]
    NoKnownSource {
        /// Vendor of the processor.
        vendor: String,
    },
    /// No source of data addresses works.
    #[error("no source gave page walks with addresses")]
    NoWorkingSource {
        /// Reason of one source that has help; none if no source has.
        reason: Option<Box<Self>>,
    },
    /// The virtual machine has no PMU with data addresses.
    #[error(
        "this virtual machine has no PMU that gives data addresses; most hypervisors pass neither \
         PEBS nor IBS to it"
    )]
    GuestPmu {
        /// Whether the processor is AMD's, whose IBS virtual machines never get.
        amd: bool,
    },
    /// The buffer of ARM's Statistical Profiling Extension is not decoded.
    #[error("this version of hugepilot does not decode its trace buffer")]
    SpeNotDecoded,
    /// No unit of that name in sysfs.
    #[error(
        "the kernel shows no unit {unit}: the processor has none, a hypervisor hides it, or its \
         module is not loaded"
    )]
    NoUnit {
        /// Name, without an index.
        unit: String,
    },
    /// A unit does not know a term of an event.
    #[error("the unit {unit} does not know {terms:?}: see its format in sysfs")]
    UnitTerms {
        /// Name of the unit.
        unit: String,
        /// Terms of the event.
        terms: String,
    },
    /// No `cpu` unit in sysfs.
    #[error("the kernel shows no counters of the processor (no cpu unit in sysfs)")]
    NoCpuUnit,
    /// Load latency needs a group of events.
    #[error("this core requires the event in a group with mem-loads-aux, which is not supported")]
    MemLoadsAux,
    /// The `cpu` unit has no load latency.
    #[error("the cpu unit has no event mem-loads")]
    NoMemLoads,
    /// The `cpu` unit's description of an event has unknown terms.
    #[error("the cpu unit does not know its own event mem-loads")]
    MemLoadsUnknown,
    /// No `ibs_op` unit in sysfs.
    #[error("the kernel shows no ibs_op unit: the processor has none, or the hypervisor hides it")]
    NoIbs,
    /// The `ibs_op` unit is too old.
    #[error("the ibs_op unit cannot count micro-ops (no cnt_ctl)")]
    IbsMicroOps,

    /// The kernel has no hugetlb pages of a size.
    #[error("the processor or the kernel has no hugetlb pages of {size_bytes}")]
    NoHugetlb {
        /// Page size.
        size_bytes: Bytes,
    },
    /// A hugetlb pool has no pages.
    #[error("the pool of {size_bytes} pages is empty")]
    PoolEmpty {
        /// Page size.
        size_bytes: Bytes,
    },
    /// A hugetlb pool has no free page.
    #[error("the pool of {size_bytes} pages has no free page")]
    PoolExhausted {
        /// Page size.
        size_bytes: Bytes,
    },
    /// The cgroup does not grant a page of a hugetlb pool: a touch would raise SIGBUS.
    #[error(
        "the cgroup grants no page of the pool of {size_bytes} pages: {file} leaves {left_bytes}"
    )]
    PoolNotGranted {
        /// Page size.
        size_bytes: Bytes,
        /// File of the limit.
        file: String,
        /// Limit less usage.
        left_bytes: Bytes,
    },
    /// Mapping a page of a hugetlb pool failed.
    #[error("mmap of a {size_bytes} page failed: {errno}")]
    PoolMmap {
        /// Page size.
        size_bytes: Bytes,
        /// Error of `mmap`.
        errno: Errno,
    },

    /// `lab` drops the capabilities of the binary, so only root may do this.
    #[error("{error}")]
    LabRootRequired {
        /// Failed access.
        error: String,
        /// Way to become root.
        advice: String,
    },
    /// Failure of a read, in its own words.
    #[error("{cause}")]
    Other {
        /// Sentence without a period.
        cause: String,
    },
    /// A hugetlb pool cannot be resized.
    #[error(transparent)]
    #[serde(untagged)]
    Pool(#[from] PoolUnsupported),
    /// The kernel's shrinker cannot debloat a cgroup.
    #[error(transparent)]
    #[serde(untagged)]
    Shrink(#[from] ShrinkUnsupported),
    /// Hardware prefetchers cannot be read or set.
    #[error(transparent)]
    #[serde(untagged)]
    Prefetch(#[from] PrefetchUnsupported),
    /// A program cannot run in a page mode.
    #[error(transparent)]
    #[serde(untagged)]
    Mode(#[from] ModeUnsupported),
}

impl Unsupported {
    /// Reason in the words of a failed read.
    pub fn because(error: &impl ToString) -> Self {
        Self::Other { cause: error.to_string() }
    }
}

#[cfg(test)]
mod tests;
