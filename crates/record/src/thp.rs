//! THP settings of the kernel, as read at one moment.

use std::fmt;

use hugepilot_units::{Bytes, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pid;

/// Word of a THP setting. Each setting has some of them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ThpWord {
    /// Everywhere.
    Always,
    /// The word of the setting for all sizes.
    Inherit,
    /// Where the program advised `MADV_HUGEPAGE`.
    Madvise,
    /// The same, of shared memory.
    Advise,
    /// In shared memory, where a huge page ends before the end of the file.
    WithinSize,
    /// Compact in the background (`defrag`).
    Defer,
    /// Like `madvise` where advised, otherwise like `defer` (`defrag`).
    #[serde(rename = "defer+madvise")]
    DeferMadvise,
    /// Nowhere.
    Never,
    /// Nowhere in shared memory, whatever the mount option of a tmpfs.
    Deny,
    /// Everywhere in shared memory, whatever the mount option of a tmpfs.
    Force,
}

impl ThpWord {
    const ALL: [Self; 10] = [
        Self::Always,
        Self::Inherit,
        Self::Madvise,
        Self::Advise,
        Self::WithinSize,
        Self::Defer,
        Self::DeferMadvise,
        Self::Never,
        Self::Deny,
        Self::Force,
    ];

    /// Parses the word of a setting; `None` if later kernels added it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.as_str() == text)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Inherit => "inherit",
            Self::Madvise => "madvise",
            Self::Advise => "advise",
            Self::WithinSize => "within_size",
            Self::Defer => "defer",
            Self::DeferMadvise => "defer+madvise",
            Self::Never => "never",
            Self::Deny => "deny",
            Self::Force => "force",
        }
    }
}

impl fmt::Display for ThpWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Settings of one page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThpSize {
    /// The page size.
    pub page_bytes: Bytes,
    /// `enabled`; `None` if the kernel has no such setting.
    pub enabled: Option<ThpWord>,
    /// `shmem_enabled`; `None` if the kernel has no such setting.
    pub shmem_enabled: Option<ThpWord>,
}

/// Settings of khugepaged.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Khugepaged {
    /// Whether it compacts memory if no free block is large enough.
    pub defrag: bool,
    /// Base pages that it scans before each pause, in all processes together.
    pub pages_to_scan: u64,
    /// Length of that pause.
    pub scan_sleep_ns: Nanos,
    /// Limit on base pages of a region that are not resident.
    pub max_ptes_none: u64,
    /// Limit on base pages of a region that are in swap.
    pub max_ptes_swap: u64,
    /// Limit on base pages of a region that another process also maps.
    pub max_ptes_shared: u64,
}

/// Settings below `/sys/kernel/mm/transparent_hugepage`. A setting that the kernel lacks, or whose
/// value is unknown, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThpConfig {
    /// `enabled`, of private memory.
    pub enabled: Option<ThpWord>,
    /// `defrag`: whether a first touch compacts memory.
    pub defrag: Option<ThpWord>,
    /// `shmem_enabled`, of shared memory.
    pub shmem_enabled: Option<ThpWord>,
    /// Settings of each page size, in rising order; empty before Linux 6.8.
    pub sizes: Vec<ThpSize>,
    /// khugepaged.
    pub khugepaged: Option<Khugepaged>,
}

/// Mount of a tmpfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// Mount point.
    pub mount: String,
    /// Process in whose mount namespace it is; `None` for that of hugepilot.
    pub namespace: Option<Pid>,
    /// Mount option `huge`; `None` if unknown.
    pub huge: Option<ThpWord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_json() {
        for word in ThpWord::ALL {
            assert_eq!(serde_json::to_value(word).unwrap(), word.to_string());
            assert_eq!(ThpWord::parse(&word.to_string()), Some(word));
        }
        assert_eq!(ThpWord::parse("sometimes"), None);
    }
}
