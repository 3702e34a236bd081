//! How a file is read, as far as the page cache is concerned.

use std::fmt;
use std::str::FromStr;

use crate::{GraphError, Result};

/// What becomes of a file's data in the page cache. It is used once; where it stays it takes the memory of which huge pages
/// are made (Manocha and others, IISWC'22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadMode {
    /// It never gets there (`O_DIRECT`). Where the file system cannot do that, it is dropped.
    #[default]
    Direct,
    /// It is dropped, block by block, once it is read.
    Drop,
    /// It stays, for the next that reads it.
    Cached,
    /// It is there already: the file must be on a tmpfs.
    Tmpfs,
}

impl LoadMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Drop, Self::Cached, Self::Tmpfs];

    /// As people write it.
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
        named.ok_or_else(|| GraphError::NoLoadMode { found: text.to_owned() })
    }
}
