//! What was done to a process: asked, answered, seen.

use std::collections::BTreeMap;
use std::fmt;

use hugepilot_units::{Nanos, Region};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Skips;

/// An error number of the kernel. Any value is allowed: kernels invent new uses.
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
    /// A read or write failed.
    pub const EIO: Self = Self(5);
    /// No such process.
    pub const ESRCH: Self = Self(3);
    /// Try again: the page was pinned or locked for a moment.
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

/// The names of the error numbers 0 to 133, as in `asm-generic/errno.h`, which x86-64 and ARM64 use; empty where there is none.
#[rustfmt::skip]
const NAMES: [&str; 134] = [
    "", "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD",
    "EAGAIN", "ENOMEM", "EACCES", "EFAULT", "ENOTBLK", "EBUSY", "EEXIST", "EXDEV", "ENODEV", "ENOTDIR",
    "EISDIR", "EINVAL", "ENFILE", "EMFILE", "ENOTTY", "ETXTBSY", "EFBIG", "ENOSPC", "ESPIPE", "EROFS",
    "EMLINK", "EPIPE", "EDOM", "ERANGE", "EDEADLK", "ENAMETOOLONG", "ENOLCK", "ENOSYS", "ENOTEMPTY",
    "ELOOP", "", "ENOMSG", "EIDRM", "ECHRNG", "EL2NSYNC", "EL3HLT", "EL3RST", "ELNRNG", "EUNATCH",
    "ENOCSI", "EL2HLT", "EBADE", "EBADR", "EXFULL", "ENOANO", "EBADRQC", "EBADSLT", "", "EBFONT", "ENOSTR",
    "ENODATA", "ETIME", "ENOSR", "ENONET", "ENOPKG", "EREMOTE", "ENOLINK", "EADV", "ESRMNT", "ECOMM",
    "EPROTO", "EMULTIHOP", "EDOTDOT", "EBADMSG", "EOVERFLOW", "ENOTUNIQ", "EBADFD", "EREMCHG", "ELIBACC",
    "ELIBBAD", "ELIBSCN", "ELIBMAX", "ELIBEXEC", "EILSEQ", "ERESTART", "ESTRPIPE", "EUSERS", "ENOTSOCK",
    "EDESTADDRREQ", "EMSGSIZE", "EPROTOTYPE", "ENOPROTOOPT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT",
    "EOPNOTSUPP", "EPFNOSUPPORT", "EAFNOSUPPORT", "EADDRINUSE", "EADDRNOTAVAIL", "ENETDOWN", "ENETUNREACH",
    "ENETRESET", "ECONNABORTED", "ECONNRESET", "ENOBUFS", "EISCONN", "ENOTCONN", "ESHUTDOWN",
    "ETOOMANYREFS", "ETIMEDOUT", "ECONNREFUSED", "EHOSTDOWN", "EHOSTUNREACH", "EALREADY", "EINPROGRESS",
    "ESTALE", "EUCLEAN", "ENOTNAM", "ENAVAIL", "EISNAM", "EREMOTEIO", "EDQUOT", "ENOMEDIUM", "EMEDIUMTYPE",
    "ECANCELED", "ENOKEY", "EKEYEXPIRED", "EKEYREVOKED", "EKEYREJECTED", "EOWNERDEAD", "ENOTRECOVERABLE",
    "ERFKILL", "EHWPOISON",
];

/// The symbolic name, or the number where we know none.
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

/// What came of one act. The return value alone never makes it `Verified`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A look afterwards showed a huge page.
    Verified,
    /// The kernel said yes, and a look showed no huge page.
    NotVerified,
    /// The kernel said no.
    Failed(Errno),
}

/// One promotion that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// The region.
    pub region: Region,
    /// How long the calls took, without waiting for a processor.
    pub took: Nanos,
    /// Calls made: 2 when the first said EAGAIN.
    pub calls: u32,
    /// What came of it.
    pub outcome: Outcome,
}

/// Why acting ended before the plan did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The user asked (Ctrl-C, SIGTERM).
    Interrupted,
    /// The target ended.
    TargetGone,
    /// The target started another program (exec): the plan is not about it.
    TargetExeced,
    /// One collapse took longer than allowed.
    SlowCollapse,
    /// Memory is short on the system or in the cgroup (PSI, headroom).
    MemoryPressure,
    /// The cgroup reached its limit (EBUSY).
    CgroupFull,
    /// No huge pages are to be had (ENOMEM several times in a row).
    NoHugePages,
    /// The kernel forbids it (EPERM, EACCES, ENOSYS).
    NotPermitted,
    /// Many regions in a row failed in the same way.
    RepeatedFailure,
    /// Its state, its pages or its mappings cannot be read, so it is unknown what may be changed.
    Unreadable,
    /// Another run of hugepilot changes it.
    InUse,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupted => "interrupted",
            Self::TargetGone => "the target ended",
            Self::TargetExeced => "the target started another program",
            Self::SlowCollapse => "a collapse took longer than allowed",
            Self::MemoryPressure => "memory is short",
            Self::CgroupFull => "the cgroup is at its memory limit",
            Self::NoHugePages => "no free huge pages",
            Self::NotPermitted => "not permitted",
            Self::RepeatedFailure => "the same failure many times in a row",
            Self::Unreadable => "its state, pages or mappings cannot be read",
            Self::InUse => "another run of hugepilot changes it",
        })
    }
}

/// Everything that was tried, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The acts.
    pub acts: Vec<Act>,
    /// Regions that were passed over because they changed since the plan.
    pub skipped: Skips,
    /// Why it ended early, if it did.
    pub stopped: Option<Stop>,
}

impl Journal {
    /// Regions that were tried.
    pub fn attempted(&self) -> u64 {
        self.acts.len() as u64
    }
    /// Regions seen on a huge page afterwards.
    pub fn verified(&self) -> u64 {
        self.acts.iter().filter(|act| act.outcome == Outcome::Verified).count() as u64
    }
    /// Failures by errno name; `not_verified` counts successes that a look did not confirm.
    pub fn failed(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for act in &self.acts {
            let key = match act.outcome {
                Outcome::Verified => continue,
                Outcome::NotVerified => "not_verified".to_owned(),
                Outcome::Failed(errno) => errno.to_string(),
            };
            *counts.entry(key).or_insert(0) += 1;
        }
        counts
    }
    /// Time spent in the calls.
    pub fn took(&self) -> Nanos {
        self.acts.iter().fold(Nanos::ZERO, |sum, act| sum + act.took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_that_linux_has_is_named() {
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
        // Linux leaves out 41 and 58.
        let unnamed: Vec<i32> =
            (1..=133).filter(|&n| Errno(n).to_string().starts_with("errno")).collect();
        assert_eq!(unnamed, [41, 58]);
        assert_eq!(
            (Errno(-1).to_string(), Errno(999).to_string()),
            ("errno -1".into(), "errno 999".into())
        );
    }
}
