//! Reasons why the kernel's shrinker cannot debloat a cgroup.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason why the kernel's shrinker cannot debloat a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ShrinkUnsupported {
    /// The kernel has no setting `shrink_underused`.
    #[error("this kernel does not split underused huge pages: it has no shrink_underused")]
    NoShrinker,
    /// The kernel rejects the arguments of a reclaim request.
    #[error("the kernel rejects the request: {error}")]
    ReclaimRejected {
        /// Failed write.
        error: String,
    },
    /// The cgroup has no memory controller.
    #[error("no memory is accounted to {cgroup}")]
    NoMemoryController {
        /// Directory of the cgroup.
        cgroup: String,
    },
    /// No huge page has the requested share of zero-filled pages.
    #[error("with --min-bloat {min_bloat} no huge page counts as underused")]
    MinBloat {
        /// Requested share, such as `100%`.
        min_bloat: String,
    },
    /// The user, or a read-only `/sys`, forbids a change of settings.
    #[error("kernel settings cannot be changed here: {error}")]
    SettingsForbidden {
        /// Failed write.
        error: String,
    },
}

impl ShrinkUnsupported {
    pub(super) const fn help(&self) -> &'static str {
        match self {
            Self::NoShrinker => "use Linux 6.12 or newer with transparent huge pages",
            Self::ReclaimRejected { .. } => {
                "use Linux 6.9 or newer, where reclaim can exclude swapping, or disable swap: \
                 swapoff -a"
            }
            Self::NoMemoryController { .. } => {
                "name a cgroup of the memory controller, such as /sys/fs/cgroup/db.slice (version \
                 2) or /sys/fs/cgroup/memory/db (version 1)"
            }
            Self::MinBloat { .. } => "use --min-bloat 99% or less",
            Self::SettingsForbidden { .. } => {
                "run as root, on the host or in a container that may write /sys"
            }
        }
    }
}
