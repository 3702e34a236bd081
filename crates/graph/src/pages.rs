//! Which array gets which pages.

use std::fmt;
use std::str::FromStr;

use hugepilot_alloc::{Backing, HugeVec, Options, Zero};

use crate::{GraphError, Result, ThreadPool};

/// An array of a graph, or of a kernel that runs on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Array {
    /// Where each vertex's edges begin: one more than there are vertices.
    Offsets,
    /// The vertices that the edges lead to.
    Edges,
    /// The weights of the edges.
    Weights,
    /// As `Offsets`, of the edges that lead to each vertex of a directed graph.
    InOffsets,
    /// As `Edges`, where these edges come from.
    InEdges,
    /// As `Weights`, of these edges.
    InWeights,
    /// What a kernel keeps per vertex; where it is double-buffered, both.
    Property,
    /// What a kernel keeps of the work before it: queues and bitmaps. The buckets of delta-algorithm grow and are emptied all the
    /// time, and are in no mapping of their own but on the heap.
    Worklist,
}

impl Array {
    /// All of them, in the order in which they are allocated unless the property comes first.
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

    /// As people write it, and as it shows in `/proc/PID/maps`.
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

/// The backing that people write, `hugetlb` being that of 2 MiB.
fn backing(text: &str) -> Result<Backing> {
    let text = if text == "hugetlb" { "hugetlb-2m" } else { text };
    text.parse().map_err(|_| GraphError::Pages { found: text.to_owned() })
}

/// The pages of every array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlan([Backing; Array::ALL.len()]);

impl PagePlan {
    /// These pages for all.
    pub const fn all(pages: Backing) -> Self {
        Self([pages; Array::ALL.len()])
    }

    /// The same, but for one array.
    #[must_use]
    pub const fn with(mut self, array: Array, pages: Backing) -> Self {
        self.0[array as usize] = pages;
        self
    }

    /// `len` zeroed values for that array, on its pages: what was named is what is measured, so nothing else is taken where
    /// these are not to be had. Nothing is resident yet, unless it is to be collapsed.
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

    /// Those of one.
    pub const fn of(&self, array: Array) -> Backing {
        self.0[array as usize]
    }
}

/// Base pages for all: huge pages are for those arrays that are named.
impl Default for PagePlan {
    fn default() -> Self {
        Self::all(Backing::Base)
    }
}

/// `thp` for all, or `property=thp:20%,edges=base`, the rest being base pages. `all=` and later names win over earlier ones;
/// `offsets`, `edges` and `weights` are those of the transpose, too, unless that has its own.
impl FromStr for PagePlan {
    type Err = GraphError;
    fn from_str(text: &str) -> Result<Self> {
        let (mut plan, mut own) = (Self::default(), Vec::new());
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, pages)) = part.split_once('=') else {
                plan = Self::all(backing(part)?);
                own.clear();
                continue;
            };
            let pages = backing(pages)?;
            if name == "all" {
                plan = Self::all(pages);
                own.clear();
                continue;
            }
            let array = Array::ALL.into_iter().find(|array| array.name() == name);
            let array = array.ok_or_else(|| GraphError::Array { found: name.to_owned() })?;
            plan = plan.with(array, pages);
            own.push(array);
            let twin = match array {
                Array::Offsets => Array::InOffsets,
                Array::Edges => Array::InEdges,
                Array::Weights => Array::InWeights,
                _ => continue,
            };
            if !own.contains(&twin) {
                plan = plan.with(twin, pages);
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_pages_are_read() {
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
    fn what_is_wrong_is_named() {
        let message = |text: &str| text.parse::<PagePlan>().unwrap_err().to_string();
        assert!(message("propery=thp").contains("propery"), "{}", message("propery=thp"));
        for pages in ["thp:0%", "thp:101%", "collapse:", "collapse:x%", "huge", "property="] {
            assert!(pages.parse::<PagePlan>().is_err(), "{pages}");
        }
    }
}
