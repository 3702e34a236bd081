//! NUMA nodes to allocate memory from.

use std::fmt;
use std::str::FromStr;

use hugepilot_units::ParseError;

use crate::{AllocError, Result, Setting, Sys};

const EXPECTED_NODES: &str = "memory nodes from 0 to 63, such as 0 or 0-3,5";

/// Set of the memory nodes 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes(u64);

impl Nodes {
    /// Returns a set of one node; `None` above 63.
    pub const fn one(node: u32) -> Option<Self> {
        if node < u64::BITS { Some(Self(1 << node)) } else { None }
    }
    /// Returns one bit per node, node 0 lowest.
    pub const fn mask(self) -> u64 {
        self.0
    }
}

/// Prints the kernel's list format: `0-3,5`.
impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut node = 0;
        let mut comma = "";
        while node < u64::BITS && self.0 >> node != 0 {
            node += (self.0 >> node).trailing_zeros();
            let run = (self.0 >> node).trailing_ones();
            write!(f, "{comma}{node}")?;
            if run > 1 {
                write!(f, "-{}", node + run - 1)?;
            }
            (node, comma) = (node + run, ",");
        }
        Ok(())
    }
}

impl FromStr for Nodes {
    type Err = ParseError;
    fn from_str(text: &str) -> std::result::Result<Self, ParseError> {
        let fail = || ParseError { expected: EXPECTED_NODES, found: text.to_owned() };
        let mut mask = 0_u64;
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                text.parse::<u32>().ok().filter(|&node| node < u64::BITS).ok_or_else(fail)
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(fail());
            }
            mask |= (u64::MAX >> (63 - (last - first))) << first;
        }
        Ok(Self(mask))
    }
}

/// NUMA policy of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numa {
    /// The policy of the thread that touches a page: by default, its own node.
    #[default]
    Default,
    /// These nodes only.
    Bind(Nodes),
    /// These nodes, page by page.
    Interleave(Nodes),
}

impl Numa {
    /// Returns the nodes, if any.
    pub const fn nodes(self) -> Option<Nodes> {
        match self {
            Self::Default => None,
            Self::Bind(nodes) | Self::Interleave(nodes) => Some(nodes),
        }
    }

    /// Rejects nodes without memory, which the kernel drops silently if one valid node is left.
    /// Reads one small file.
    pub(crate) fn check(self, sys: &impl Sys) -> Result<()> {
        let Some(requested) = self.nodes() else { return Ok(()) };
        let mut buffer = [0; 256];
        let text = sys.setting(Setting::NodesWithMemory, &mut buffer);
        // Unreadable: the kernel checks the nodes itself when the memory is bound.
        let Some(available) = text.and_then(|text| text.parse::<Nodes>().ok()) else {
            return Ok(());
        };
        if requested.0 & !available.0 == 0 {
            Ok(())
        } else {
            Err(AllocError::Nodes { requested, available })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_read_back() {
        for text in ["0", "63", "0-3", "0-3,5", "1,3,5-63", "0-63"] {
            assert_eq!(text.parse::<Nodes>().unwrap().to_string(), text);
        }
        assert_eq!("0,1,2".parse::<Nodes>().unwrap().to_string(), "0-2");
        assert_eq!("5".parse::<Nodes>().ok(), Nodes::one(5));
        for text in ["", "64", "3-1", "-1", "a", "0,,1"] {
            assert!(text.parse::<Nodes>().is_err(), "{text}");
        }
        assert_eq!(Nodes::one(64), None);
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "no memory is at stake")]
        fn every_mask_reads_back(mask in 1_u64..) {
            prop_assert_eq!(Nodes(mask).to_string().parse::<Nodes>().unwrap(), Nodes(mask));
        }
    }
}
