//! Names of the simulated policies.

use std::fmt;
use std::str::FromStr;

use hugepilot_policy::tune::Policy;
use hugepilot_record::PolicyName;

/// Policy of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimPolicy {
    /// A policy of `tune`, decided by the same code.
    Tune(PolicyName),
    /// The first regions of given mappings, such as the property arrays of a graph whose vertices
    /// are sorted by degree.
    Prefix,
}

impl SimPolicy {
    /// All policies, in the order of documents.
    pub fn all() -> impl Iterator<Item = Self> {
        let tune = PolicyName::ALL.into_iter().filter(|&name| Policy::of(name).is_some());
        tune.map(Self::Tune).chain([Self::Prefix])
    }

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tune(name) => name.as_str(),
            Self::Prefix => "prefix",
        }
    }
}

impl fmt::Display for SimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SimPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().find(|policy| policy.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            format!("unknown policy {text:?}; policies: {}", names.join(", "))
        })
    }
}
