//! Page plan: the pages of each array.

use std::fmt;
use std::str::FromStr;

use hugepilot_alloc::{Backing, HugeVec, Options, Zero};

use crate::error::NameKind;
use crate::{GraphError, Result, ThreadPool};

/// Array of a graph, or of a kernel that runs on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Array {
    /// Start of the edges of each vertex: one more than vertices.
    Offsets,
    /// Target vertices of the edges.
    Edges,
    /// Weights of the edges.
    Weights,
    /// Offsets of the incoming edges of a directed graph.
    InOffsets,
    /// Source vertices of the incoming edges.
    InEdges,
    /// Weights of the incoming edges.
    InWeights,
    /// Property array: one value per vertex. Includes both buffers of a double buffer.
    Property,
    /// Frontier of a kernel: queues and bitmaps. The buckets of delta-stepping grow and shrink all
    /// the time, so they are on the heap.
    Worklist,
}

impl Array {
    /// All arrays, in their natural allocation order.
    pub const ALL: [Self; 8] = [
        Self::Offsets,
        Self::Edges,
        Self::Weights,
        Self::InOffsets,
        Self::InEdges,
        Self::InWeights,
        Self::Property,
        Self::Worklist,
    ];

    /// Returns the name on the command line and in `/proc/PID/maps`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offsets => "offsets",
            Self::Edges => "edges",
            Self::Weights => "weights",
            Self::InOffsets => "in-offsets",
            Self::InEdges => "in-edges",
            Self::InWeights => "in-weights",
            Self::Property => "property",
            Self::Worklist => "worklist",
        }
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses a backing; `hugetlb` means 2 MiB.
fn backing(text: &str) -> Result<Backing> {
    let text = if text == "hugetlb" { "hugetlb-2m" } else { text };
    let found = || text.to_owned();
    text.parse().map_err(|_| GraphError::UnknownName { kind: NameKind::Pages, found: found() })
}

/// Pages of every array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlan([Backing; Array::ALL.len()]);

impl PagePlan {
    /// Makes a plan with the same pages for all arrays.
    pub const fn all(pages: Backing) -> Self {
        Self([pages; Array::ALL.len()])
    }

    /// Replaces the pages of one array.
    #[must_use]
    pub const fn with(mut self, array: Array, pages: Backing) -> Self {
        self.0[array as usize] = pages;
        self
    }

    /// Allocates `len` zeroed values for an array on its pages, without a fallback to other pages.
    /// The values are not resident, except those to be collapsed.
    ///
    /// # Errors
    /// [`GraphError::Memory`].
    pub fn zeroed<T: Zero>(&self, array: Array, len: usize) -> Result<HugeVec<T>> {
        let values = HugeVec::zeroed(len, Options::only(self.of(array)).named(array.name())?)?;
        if matches!(self.of(array), Backing::Collapse(_)) {
            values.prefault(ThreadPool::all().threads())?;
        }
        Ok(values)
    }

    /// Returns the pages of an array.
    pub const fn of(&self, array: Array) -> Backing {
        self.0[array as usize]
    }
}

/// Base pages for all arrays: huge pages are explicit.
impl Default for PagePlan {
    fn default() -> Self {
        Self::all(Backing::Base)
    }
}

/// Parses `thp` (all arrays) or `property=thp:20%,edges=base` (base pages for the others). Later
/// entries override earlier ones and `all=`. An entry for `offsets`, `edges` or `weights` also
/// applies to the transpose, unless that has an entry.
impl FromStr for PagePlan {
    type Err = GraphError;
    fn from_str(text: &str) -> Result<Self> {
        let (mut plan, mut explicit) = (Self::default(), Vec::new());
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, pages)) = part.split_once('=') else {
                plan = Self::all(backing(part)?);
                explicit.clear();
                continue;
            };
            let pages = backing(pages)?;
            if name == "all" {
                plan = Self::all(pages);
                explicit.clear();
                continue;
            }
            let array = Array::ALL.into_iter().find(|array| array.name() == name);
            let found = || name.to_owned();
            let array = array
                .ok_or_else(|| GraphError::UnknownName { kind: NameKind::Array, found: found() })?;
            plan = plan.with(array, pages);
            explicit.push(array);
            let incoming = match array {
                Array::Offsets => Array::InOffsets,
                Array::Edges => Array::InEdges,
                Array::Weights => Array::InWeights,
                _ => continue,
            };
            if !explicit.contains(&incoming) {
                plan = plan.with(incoming, pages);
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_pages_are_parsed() {
        let plan: PagePlan =
            "property=thp:20%,offsets=hugetlb, edges=collapse:50%".parse().unwrap();
        assert_eq!(plan.of(Array::Property).to_string(), "thp:20%");
        assert_eq!(plan.of(Array::Offsets).to_string(), "hugetlb-2m");
        assert_eq!(plan.of(Array::InOffsets), plan.of(Array::Offsets));
        assert_eq!(plan.of(Array::InEdges).to_string(), "collapse:50%");
        assert_eq!(plan.of(Array::Worklist).to_string(), "base");
        for either in
            ["in-edges=thp,edges=base", "edges=base,in-edges=thp", "thp,edges=base,in-edges=thp"]
        {
            let plan: PagePlan = either.parse().unwrap();
            assert_eq!(
                (plan.of(Array::InEdges), plan.of(Array::Edges)),
                (Backing::THP, Backing::Base)
            );
        }
        assert_eq!("thp".parse::<PagePlan>().unwrap(), PagePlan::all(Backing::THP));
        let mixed: PagePlan = "all=thp,worklist=base".parse().unwrap();
        assert_eq!(
            (mixed.of(Array::Edges), mixed.of(Array::Worklist)),
            (Backing::THP, Backing::Base)
        );
    }

    #[test]
    fn errors_quote_the_word() {
        let message = |text: &str| text.parse::<PagePlan>().unwrap_err().to_string();
        assert!(message("propery=thp").contains("propery"), "{}", message("propery=thp"));
        for pages in ["thp:0%", "thp:101%", "collapse:", "collapse:x%", "huge", "property="] {
            assert!(pages.parse::<PagePlan>().is_err(), "{pages}");
        }
    }
}
