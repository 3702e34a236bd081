//! Names of policies.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of a policy that selects regions to promote, or huge pages to split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Regions that pay, by a trial inside the process, or else by a model.
    #[default]
    Heat,
    /// Promotion candidate cache.
    Pcc,
    /// First come, first served.
    Linux,
    /// A cursor through the address spaces.
    Khugepaged,
    /// Highest access coverage first.
    Hawkeye,
    /// Buckets of bloat density.
    Emd,
    /// Exact bloat density.
    Exact,
    /// Every eligible region.
    All,
    /// No region.
    Never,
    /// The events of a file.
    Schedule,
}

impl PolicyName {
    /// All names, in the order of documents.
    pub const ALL: [Self; 10] = [
        Self::Heat,
        Self::Pcc,
        Self::Linux,
        Self::Khugepaged,
        Self::Hawkeye,
        Self::Emd,
        Self::Exact,
        Self::All,
        Self::Never,
        Self::Schedule,
    ];

    /// Returns the name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Heat => "heat",
            Self::Pcc => "pcc",
            Self::Linux => "linux",
            Self::Khugepaged => "khugepaged",
            Self::Hawkeye => "hawkeye",
            Self::Emd => "emd",
            Self::Exact => "exact",
            Self::All => "all",
            Self::Never => "never",
            Self::Schedule => "schedule",
        }
    }

    /// Whether it selects regions to promote, for `tune --policy`.
    pub const fn promotes(self) -> bool {
        !matches!(self, Self::Emd | Self::Exact)
    }

    /// Whether it is an order of splitting, for `debloat --order`.
    pub const fn splits(self) -> bool {
        matches!(self, Self::Heat | Self::Hawkeye | Self::Emd | Self::Exact)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
