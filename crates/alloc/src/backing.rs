//! Page kinds, and chains of them in order of preference.

use std::fmt;
use std::str::FromStr;

use hugepilot_units::{AddrRange, Bytes, ParseError, VirtAddr};

const EXPECTED_BACKING: &str = "base, system, thp, thp:30% (the first 30 %), thp:20-50%, \
     collapse, collapse:30%, hugetlb-2m or hugetlb-1g";
const EXPECTED_PART: &str = "nothing, or a part such as :20% or :20-40%";
const EXPECTED_CHAIN: &str =
    "backings in order of preference, each once, such as hugetlb-2m,thp,base";

/// Kind of page behind memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Base pages (`MADV_NOHUGEPAGE`), regardless of the system's THP setting.
    Base,
    /// Pages by the system's THP setting, without advice. Another process can collapse them, which
    /// [`Base`](Self::Base) forbids.
    System,
    /// Transparent huge pages from the first touch (`MADV_HUGEPAGE`), if the kernel finds free
    /// ones. The kernel reports no failure, so read
    /// [`HugeRegion::usage`](crate::HugeRegion::usage). Zheng's first approach.
    Thp(Part),
    /// Pages by the system's THP setting at first. Once filled,
    /// [`HugeRegion::collapse`](crate::HugeRegion::collapse) collapses this part; the rest stays on
    /// base pages. Works with THP set to `never`, and reports failures.
    Collapse(Part),
    /// Pages of the 2 MiB hugetlb pool, reserved when the memory is mapped. Zheng's second
    /// approach.
    Hugetlb2M,
    /// Pages of the 1 GiB hugetlb pool. Lengths are rounded up to 1 GiB.
    Hugetlb1G,
}

impl Backing {
    /// Transparent huge pages for all of the memory.
    pub const THP: Self = Self::Thp(Part::WHOLE);

    /// Collapse of all of the memory, once it is filled.
    pub const COLLAPSE: Self = Self::Collapse(Part::WHOLE);

    /// Returns the page size of the hugetlb pool; `None` for backings without a pool.
    pub const fn pool_page(self) -> Option<Bytes> {
        match self {
            Self::Hugetlb2M => Some(Bytes::mib(2)),
            Self::Hugetlb1G => Some(Bytes::gib(1)),
            Self::Base | Self::System | Self::Thp(_) | Self::Collapse(_) => None,
        }
    }
}

/// Prints a form that parses to the same backing.
impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::System => f.write_str("system"),
            Self::Thp(part) => write!(f, "thp{part}"),
            Self::Collapse(part) => write!(f, "collapse{part}"),
            Self::Hugetlb2M => f.write_str("hugetlb-2m"),
            Self::Hugetlb1G => f.write_str("hugetlb-1g"),
        }
    }
}

impl FromStr for Backing {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fail = || ParseError { expected: EXPECTED_BACKING, found: text.to_owned() };
        Ok(match text.trim() {
            "base" => Self::Base,
            "system" => Self::System,
            "hugetlb-2m" => Self::Hugetlb2M,
            "hugetlb-1g" => Self::Hugetlb1G,
            other => match (other.strip_prefix("thp"), other.strip_prefix("collapse")) {
                (Some(part), _) => Self::Thp(part.parse().map_err(|_| fail())?),
                (_, Some(part)) => Self::Collapse(part.parse().map_err(|_| fail())?),
                _ => return Err(fail()),
            },
        })
    }
}

/// Part of a region, in percent of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    from: u8,
    to: u8,
}

impl Part {
    /// Whole region.
    pub const WHOLE: Self = Self { from: 0, to: 100 };

    /// Returns the part from `from` to `to` percent; `None` unless `from < to <= 100`.
    pub const fn percent(from: u8, to: u8) -> Option<Self> {
        if from < to && to <= 100 { Some(Self { from, to }) } else { None }
    }

    /// Returns this part of `range`; both ends are rounded down to multiples of `huge` from its
    /// start.
    pub(crate) fn of(self, range: AddrRange, huge: Bytes) -> AddrRange {
        let units = range.len().get() / huge.get();
        // Lengths are below 2^63, so 100 times their huge pages fit.
        let at = |percent: u8| -> VirtAddr {
            if percent == 100 {
                range.end
            } else {
                range.start.plus(huge.times(units * u64::from(percent) / 100))
            }
        };
        AddrRange::new(at(self.from), at(self.to))
    }
}

/// Prints the suffix of a backing's name: nothing for the whole, `:20%` or `:20-40%`.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::WHOLE => Ok(()),
            Self { from: 0, to } => write!(f, ":{to}%"),
            Self { from, to } => write!(f, ":{from}-{to}%"),
        }
    }
}

impl FromStr for Part {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Ok(Self::WHOLE);
        }
        let read = || {
            let part = text.strip_prefix(':')?.strip_suffix('%')?;
            let (from, to) = part.split_once('-').unwrap_or(("0", part));
            Self::percent(from.parse().ok()?, to.parse().ok()?)
        };
        read().ok_or_else(|| ParseError { expected: EXPECTED_PART, found: text.to_owned() })
    }
}

/// Backings in the order of preference, each at most once. A chain of one never falls back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    links: [Backing; Self::MAX_LEN],
    len: usize,
}

impl Chain {
    /// Largest number of backings in a chain.
    pub const MAX_LEN: usize = 6;

    /// `thp,base`: transparent huge pages if enabled, else base pages. Needs no pool.
    pub const THP_OR_BASE: Self = Self::only(Backing::THP).then(Backing::Base);

    /// Creates a chain of one backing.
    pub const fn only(backing: Backing) -> Self {
        Self { links: [backing; Self::MAX_LEN], len: 1 }
    }

    /// Appends `backing`, for use if all before it are refused.
    ///
    /// # Panics
    /// If the chain already has [`Self::MAX_LEN`] backings.
    #[must_use]
    pub const fn then(mut self, backing: Backing) -> Self {
        assert!(self.len < Self::MAX_LEN, "a chain has five backings at most");
        self.links[self.len] = backing;
        self.len += 1;
        self
    }

    /// Returns the backings, first choice first; never empty.
    pub fn backings(&self) -> &[Backing] {
        &self.links[..self.len]
    }
}

impl From<Backing> for Chain {
    fn from(backing: Backing) -> Self {
        Self::only(backing)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Chain").field(&self.backings()).finish()
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, backing) in self.backings().iter().enumerate() {
            write!(f, "{}{backing}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Chain {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut chain: Option<Self> = None;
        for part in text.split(',') {
            let backing: Backing = part.parse()?;
            chain = Some(match chain {
                None => Self::only(backing),
                Some(chain)
                    if chain.len < Self::MAX_LEN && !chain.backings().contains(&backing) =>
                {
                    chain.then(backing)
                }
                Some(_) => {
                    return Err(ParseError { expected: EXPECTED_CHAIN, found: text.to_owned() });
                }
            });
        }
        chain.ok_or_else(|| ParseError { expected: EXPECTED_CHAIN, found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chains_read_back_what_they_print() {
        let texts = [
            "base",
            "hugetlb-2m,thp,base",
            "hugetlb-1g,hugetlb-2m,collapse",
            "thp:30%,base",
            "thp:20-50%",
            "collapse:30%",
        ];
        for text in texts {
            assert_eq!(text.parse::<Chain>().unwrap().to_string(), text);
        }
        assert_eq!(
            " hugetlb-2m , thp:100%".parse::<Chain>().unwrap().to_string(),
            "hugetlb-2m,thp"
        );
        assert_eq!("thp,base".parse::<Chain>().unwrap(), Chain::THP_OR_BASE);
    }

    #[test]
    fn invalid_chains_are_errors() {
        let texts = [
            "",
            ",",
            "thp,",
            "huge",
            "thp:",
            "thp:0%",
            "thp:50-20%",
            "thp:101%",
            "thp:-5%",
            "collapse:x",
            "base,base",
            "base,system,thp,collapse,hugetlb-2m,hugetlb-1g,thp:1%",
        ];
        for text in texts {
            assert!(text.parse::<Chain>().is_err(), "{text}");
        }
    }

    #[test]
    fn parts_are_whole_huge_pages_and_the_last_reaches_the_end() {
        let range = AddrRange::at(VirtAddr::new(8 << 20), Bytes::mib(14));
        let part = |from, to| Part::percent(from, to).unwrap().of(range, Bytes::mib(2));
        assert_eq!(part(0, 100), range);
        assert_eq!(part(0, 50), AddrRange::at(VirtAddr::new(8 << 20), Bytes::mib(6)));
        assert_eq!(part(50, 100), AddrRange::at(VirtAddr::new(14 << 20), Bytes::mib(8)));
        assert!(part(0, 1).is_empty());
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "no memory is at stake")]
        fn parsing_never_panics(text in "[a-z0-9:,%-]{0,32}") {
            if let Ok(chain) = text.parse::<Chain>() {
                prop_assert_eq!(chain.to_string().parse::<Chain>().unwrap(), chain);
            }
        }
    }
}
