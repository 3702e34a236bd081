//! Attempted promotions: requests, results of the calls, and outcomes.

use std::collections::BTreeMap;
use std::fmt;

use hugepilot_units::{Nanos, Region};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel_reason::COMPACT;
use crate::{Sentence, Skips};

/// An error number of the kernel. Any value is allowed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const EPERM: Self = Self(1);
    /// No such file, or no such perf event.
    pub const ENOENT: Self = Self(2);
    /// Failed read or write.
    pub const EIO: Self = Self(5);
    /// No such process.
    pub const ESRCH: Self = Self(3);
    /// Page pinned or locked for a moment; try again.
    pub const EAGAIN: Self = Self(11);
    /// No huge page free, or a hole in the range.
    pub const ENOMEM: Self = Self(12);
    /// No access.
    pub const EACCES: Self = Self(13);
    /// No memory at that address.
    pub const EFAULT: Self = Self(14);
    /// The cgroup is at its limit.
    pub const EBUSY: Self = Self(16);
    /// No such device: the processor lacks the unit.
    pub const ENODEV: Self = Self(19);
    /// The kernel will not do this here.
    pub const EINVAL: Self = Self(22);
    /// No descriptors left, in the whole system.
    pub const ENFILE: Self = Self(23);
    /// No descriptors left.
    pub const EMFILE: Self = Self(24);
    /// The kernel does not know this `ioctl`.
    pub const ENOTTY: Self = Self(25);
    /// No room left.
    pub const ENOSPC: Self = Self(28);
    /// The kernel lacks the call.
    pub const ENOSYS: Self = Self(38);
    /// Not supported by this device.
    pub const EOPNOTSUPP: Self = Self(95);
}

/// Names of the error numbers 0 to 133, as in `asm-generic/errno.h`, which x86-64 and ARM64 use;
/// empty if undefined.
#[rustfmt::skip]
const NAMES: [&str; 134] = [
    "", "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD",
    "EAGAIN", "ENOMEM", "EACCES", "EFAULT", "ENOTBLK", "EBUSY", "EEXIST", "EXDEV", "ENODEV",
    "ENOTDIR", "EISDIR", "EINVAL", "ENFILE", "EMFILE", "ENOTTY", "ETXTBSY", "EFBIG", "ENOSPC",
    "ESPIPE", "EROFS", "EMLINK", "EPIPE", "EDOM", "ERANGE", "EDEADLK", "ENAMETOOLONG", "ENOLCK",
    "ENOSYS", "ENOTEMPTY", "ELOOP", "", "ENOMSG", "EIDRM", "ECHRNG", "EL2NSYNC", "EL3HLT", "EL3RST",
    "ELNRNG", "EUNATCH", "ENOCSI", "EL2HLT", "EBADE", "EBADR", "EXFULL", "ENOANO", "EBADRQC",
    "EBADSLT", "", "EBFONT", "ENOSTR", "ENODATA", "ETIME", "ENOSR", "ENONET", "ENOPKG", "EREMOTE",
    "ENOLINK", "EADV", "ESRMNT", "ECOMM", "EPROTO", "EMULTIHOP", "EDOTDOT", "EBADMSG", "EOVERFLOW",
    "ENOTUNIQ", "EBADFD", "EREMCHG", "ELIBACC", "ELIBBAD", "ELIBSCN", "ELIBMAX", "ELIBEXEC",
    "EILSEQ", "ERESTART", "ESTRPIPE", "EUSERS", "ENOTSOCK", "EDESTADDRREQ", "EMSGSIZE",
    "EPROTOTYPE", "ENOPROTOOPT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EOPNOTSUPP", "EPFNOSUPPORT",
    "EAFNOSUPPORT", "EADDRINUSE", "EADDRNOTAVAIL", "ENETDOWN", "ENETUNREACH", "ENETRESET",
    "ECONNABORTED", "ECONNRESET", "ENOBUFS", "EISCONN", "ENOTCONN", "ESHUTDOWN", "ETOOMANYREFS",
    "ETIMEDOUT", "ECONNREFUSED", "EHOSTDOWN", "EHOSTUNREACH", "EALREADY", "EINPROGRESS", "ESTALE",
    "EUCLEAN", "ENOTNAM", "ENAVAIL", "EISNAM", "EREMOTEIO", "EDQUOT", "ENOMEDIUM", "EMEDIUMTYPE",
    "ECANCELED", "ENOKEY", "EKEYEXPIRED", "EKEYREVOKED", "EKEYREJECTED", "EOWNERDEAD",
    "ENOTRECOVERABLE", "ERFKILL", "EHWPOISON",
];

/// Writes the symbolic name, or the number if undefined.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = usize::try_from(self.0)
            .ok()
            .and_then(|number| NAMES.get(number))
            .filter(|name| !name.is_empty());
        match name {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

/// Outcome of a promotion. A return value alone never makes it `Verified`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActOutcome {
    /// The pagemap shows a huge page afterwards.
    Verified,
    /// The kernel reported success, and the pagemap shows no huge page.
    NotVerified,
    /// The call failed.
    Failed(Errno),
}

/// A promotion that was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// The region.
    pub region: Region,
    /// Time of the calls, without time in the run queue.
    pub took: Nanos,
    /// Number of calls: 2 if the first failed with EAGAIN.
    pub calls: u32,
    /// Its outcome.
    pub outcome: ActOutcome,
}

impl Act {
    /// Whether the pagemap shows its huge page.
    pub fn is_verified(&self) -> bool {
        self.outcome == ActOutcome::Verified
    }
}

/// Reason why promotion ended before the end of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Interrupted by the user (Ctrl-C, SIGTERM).
    #[text("interrupted")]
    Interrupted,
    /// The target ended.
    #[text("the target ended")]
    TargetGone,
    /// The target started another program (exec), for which the plan does not hold.
    #[text("the target started another program")]
    TargetExeced,
    /// A collapse took longer than allowed.
    #[text("a collapse took longer than allowed")]
    SlowCollapse,
    /// Memory is short on the system or in the cgroup (PSI, headroom).
    #[text("memory is short")]
    MemoryPressure,
    /// The cgroup reached its limit (EBUSY).
    #[text("the cgroup is at its memory limit")]
    CgroupFull,
    /// The kernel has no free huge pages (ENOMEM several times in a row).
    #[text("no free huge pages")]
    #[help("{COMPACT}")]
    NoHugePages,
    /// The kernel forbids it (EPERM, EACCES, ENOSYS).
    #[text("not permitted")]
    NotPermitted,
    /// Many regions in a row failed in the same way.
    #[text("the same failure many times in a row")]
    RepeatedFailure,
    /// Its state, pages or mappings cannot be read, so safe changes are unknown.
    #[text("its state, pages or mappings cannot be read")]
    Unreadable,
    /// Another hugepilot process changes it.
    #[text("another run of hugepilot changes it")]
    InUse,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// All attempted promotions, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The promotions.
    pub acts: Vec<Act>,
    /// Regions skipped because they changed after the plan.
    pub skipped: Skips,
    /// Reason of an early end; `None` if the plan is complete.
    pub stopped: Option<Stop>,
}

impl Attempts {
    /// Returns the number of attempted regions.
    pub fn attempted(&self) -> u64 {
        self.acts.len() as u64
    }
    /// Returns the number of planned regions that were tried, or skipped because they had changed.
    pub fn handled(&self) -> u64 {
        self.attempted() + self.skipped.values().sum::<u64>()
    }
    /// Returns the number of regions verified on huge pages.
    pub fn verified(&self) -> u64 {
        self.acts.iter().filter(|act| act.is_verified()).count() as u64
    }
    /// Returns whether each attempted region was verified.
    pub fn verified_by_region(&self) -> BTreeMap<Region, bool> {
        self.acts.iter().map(|act| (act.region, act.is_verified())).collect()
    }
    /// Returns the failures by errno name; `not_verified` counts unverified successes.
    pub fn failed(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for act in &self.acts {
            let key = match act.outcome {
                ActOutcome::Verified => continue,
                ActOutcome::NotVerified => "not_verified".to_owned(),
                ActOutcome::Failed(errno) => errno.to_string(),
            };
            *counts.entry(key).or_insert(0) += 1;
        }
        counts
    }
    /// Returns the total time of the calls.
    pub fn took(&self) -> Nanos {
        self.acts.iter().fold(Nanos::ZERO, |sum, act| sum + act.took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_of_linux_has_a_name() {
        let named = [
            (Errno::ENOENT, "ENOENT"),
            (Errno::EMFILE, "EMFILE"),
            (Errno::ENOTTY, "ENOTTY"),
            (Errno::ENOSPC, "ENOSPC"),
            (Errno::ENOSYS, "ENOSYS"),
            (Errno::EOPNOTSUPP, "EOPNOTSUPP"),
            (Errno(75), "EOVERFLOW"),
            (Errno(110), "ETIMEDOUT"),
            (Errno(133), "EHWPOISON"),
        ];
        for (errno, name) in named {
            assert_eq!(errno.to_string(), name);
        }
        // Linux skips 41 and 58.
        let unnamed: Vec<i32> =
            (1..=133).filter(|&n| Errno(n).to_string().starts_with("errno")).collect();
        assert_eq!(unnamed, [41, 58]);
        assert_eq!(
            (Errno(-1).to_string(), Errno(999).to_string()),
            ("errno -1".into(), "errno 999".into())
        );
    }
}
