//! Load mode: treatment of the page cache.

use std::fmt;
use std::str::FromStr;

use crate::error::NameKind;
use crate::{GraphError, Result};

/// Treatment of a file's data in the page cache. The data is used once. Cached, it occupies the
/// memory that huge pages are made of (Manocha et al., IISWC'22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadMode {
    /// `O_DIRECT`: bypasses the page cache. If the file system does not support it, [`Self::Drop`].
    #[default]
    Direct,
    /// Drops each block from the page cache after reading it.
    Drop,
    /// Leaves the data in the page cache.
    Cached,
    /// Requires a file on a tmpfs, whose data is in memory anyway.
    Tmpfs,
}

impl LoadMode {
    /// All load modes.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Drop, Self::Cached, Self::Tmpfs];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Drop => "drop",
            Self::Cached => "cached",
            Self::Tmpfs => "tmpfs",
        }
    }
}

impl fmt::Display for LoadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LoadMode {
    type Err = GraphError;
    fn from_str(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|load_mode| load_mode.name() == text);
        let found = || text.to_owned();
        named.ok_or_else(|| GraphError::UnknownName { kind: NameKind::LoadMode, found: found() })
    }
}
