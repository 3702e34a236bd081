//! Presets: the TLBs of a CPU, as a TOML file.
//!
//! ```toml
//! name = "haswell"
//! cpu = "Intel Haswell-EP"
//! source = "CPUID leaf 2 of a Xeon E5 v3"
//! assumed = ["walk_caches"]
//! levels = 4
//!
//! [[l1]]
//! holds = ["base"]
//! entries = 64
//! ways = 4
//! replacement = "plru"
//!
//! [[l2]]
//! holds = ["base", "huge"]
//! entries = 1024
//! ways = 8
//!
//! [[walk_caches]]
//! level = 1
//! entries = 32
//! ways = 4
//! ```

use serde::{Deserialize, Serialize};

use crate::array::{SetIndex, Shape};
use crate::pages::PageClass;
use crate::set::{LISTED_WAYS, Replacement};

/// Most structures of a level, and walk caches.
const MAX_STRUCTURES: usize = 8;
/// Most entries of a structure.
const MAX_ENTRIES: usize = 1 << 14;
/// Most ways of a set, unless there is one set only.
const MAX_WAYS: usize = 64;

/// TLBs of a CPU, per hardware thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Name on the command line.
    pub name: String,
    /// The CPU.
    pub cpu: String,
    /// Where the values come from.
    pub source: String,
    /// Values without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Levels of the page table: 4, or 5 with addresses of 57 bits.
    pub levels: u32,
    /// Whether L2 holds a 1 GiB page as its 2 MiB parts, if it has no entries for it.
    #[serde(default)]
    pub smashes_giant: bool,
    /// Structures of the first level. Each page class is in one of them.
    pub l1: Vec<Tlb>,
    /// Structures of the second level. A class may be in none.
    #[serde(default)]
    pub l2: Vec<Tlb>,
    /// Caches of upper levels of the page table, fully associative without `ways`.
    #[serde(default)]
    pub walk_caches: Vec<WalkCache>,
}

/// Structure of a TLB level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// Page classes that it holds.
    pub holds: Vec<PageClass>,
    /// Entries.
    pub entries: usize,
    /// Entries of a set; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<usize>,
    /// First way and number of ways of the classes that may not use all.
    #[serde(default, skip_serializing_if = "WaysOf::is_empty")]
    pub ways_of: WaysOf,
    /// Replacement in a set.
    #[serde(default)]
    pub replacement: Replacement,
    /// Selection of a set.
    #[serde(default)]
    pub index: SetIndex,
}

/// Ways of page classes that may not use all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaysOf {
    /// Base pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<(usize, usize)>,
    /// 2 MiB pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge: Option<(usize, usize)>,
    /// 1 GiB pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub giant: Option<(usize, usize)>,
}

impl WaysOf {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
    const fn get(&self, class: PageClass) -> Option<(usize, usize)> {
        match class {
            PageClass::Base => self.base,
            PageClass::Huge => self.huge,
            PageClass::Giant => self.giant,
        }
    }
}

/// Cache of the entries of one level of the page table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCache {
    /// Level: 1 for entries that point to a table of base pages, 2 and 3 above.
    pub level: u32,
    /// Entries.
    pub entries: usize,
    /// Entries of a set; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<usize>,
}

/// A preset that does not parse, or describes no TLB.
#[derive(Debug, thiserror::Error)]
pub enum PresetError {
    /// Not TOML, or not its fields. The problem quotes the text.
    #[error("line {line}, column {column}: {problem}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Character in the line, from 1.
        column: usize,
        /// The problem.
        problem: String,
    },
    /// Values that do not fit together.
    #[error("{place}: {problem}")]
    Value {
        /// Place, as in `l2[0]`.
        place: String,
        /// The problem.
        problem: String,
    },
}

/// Name and text of each preset of this crate.
const BUILT_IN: [(&str, &str); 14] = [
    ("ivy-bridge", include_str!("presets/ivy-bridge.toml")),
    ("haswell", include_str!("presets/haswell.toml")),
    ("broadwell", include_str!("presets/broadwell.toml")),
    ("skylake-sp", include_str!("presets/skylake-sp.toml")),
    ("ice-lake-sp", include_str!("presets/ice-lake-sp.toml")),
    ("sapphire-rapids", include_str!("presets/sapphire-rapids.toml")),
    ("zen1", include_str!("presets/zen1.toml")),
    ("zen2", include_str!("presets/zen2.toml")),
    ("zen3", include_str!("presets/zen3.toml")),
    ("zen4", include_str!("presets/zen4.toml")),
    ("zen5", include_str!("presets/zen5.toml")),
    ("neoverse-n1", include_str!("presets/neoverse-n1.toml")),
    ("neoverse-v2", include_str!("presets/neoverse-v2.toml")),
    ("pcc-artifact", include_str!("presets/pcc-artifact.toml")),
];

impl Preset {
    /// Names of the presets of this crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|&(name, _)| name)
    }

    /// Returns the TOML of the preset of this crate with that name.
    pub fn text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|&&(known, _)| known == name).map(|&(_, text)| text)
    }

    /// Returns the preset of this crate with that name.
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|&&(known, _)| known == name)?;
        // A test parses each of them.
        Self::parse(text).ok()
    }

    /// Returns the base pages that its larger level holds at most.
    pub fn base_entries(&self) -> u32 {
        let of = |level: &[Tlb]| -> usize {
            let holds = |tlb: &&Tlb| tlb.holds.contains(&PageClass::Base);
            level.iter().filter(holds).map(|tlb| tlb.entries).sum()
        };
        u32::try_from(of(&self.l1).max(of(&self.l2))).unwrap_or(u32::MAX)
    }

    /// Parses a preset.
    ///
    /// # Errors
    ///
    /// [`PresetError::Syntax`] with line and column, or [`PresetError::Value`] with the structure.
    pub fn parse(text: &str) -> Result<Self, PresetError> {
        let preset: Self = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        preset.check()?;
        Ok(preset)
    }

    fn check(&self) -> Result<(), PresetError> {
        if !(4..=5).contains(&self.levels) {
            return Err(wrong("levels", format!("{} is neither 4 nor 5", self.levels)));
        }
        for (name, level) in [("l1", &self.l1), ("l2", &self.l2)] {
            check_count(name, level.len())?;
            for (at, tlb) in level.iter().enumerate() {
                tlb.check().map_err(|problem| wrong(format!("{name}[{at}]"), problem))?;
            }
            for class in PageClass::ALL {
                let holders = level.iter().filter(|tlb| tlb.holds.contains(&class)).count();
                if holders > 1 {
                    return Err(wrong(name, format!("{holders} structures hold {class:?} pages")));
                }
                if holders == 0 && name == "l1" && class != PageClass::Giant {
                    return Err(wrong(name, format!("no structure holds {class:?} pages")));
                }
            }
        }
        check_count("walk_caches", self.walk_caches.len())?;
        for (at, cache) in self.walk_caches.iter().enumerate() {
            let place = || format!("walk_caches[{at}]");
            if cache.level == 0 || cache.level >= self.levels {
                let problem =
                    format!("level {} is not within 1 to {}", cache.level, self.levels - 1);
                return Err(wrong(place(), problem));
            }
            check_sets(cache.entries, cache.ways).map_err(|problem| wrong(place(), problem))?;
        }
        Ok(())
    }
}

impl Tlb {
    fn check(&self) -> Result<(), String> {
        check_sets(self.entries, self.ways)?;
        let ways = self.ways();
        if self.holds.is_empty() {
            return Err("it holds no pages".to_owned());
        }
        for class in PageClass::ALL {
            let Some((first, count)) = self.ways_of.get(class) else { continue };
            if count == 0 || first.saturating_add(count) > ways {
                return Err(format!(
                    "{count} ways from way {first} for {class:?} pages are not within {ways} ways"
                ));
            }
        }
        let is_tree = ways.is_power_of_two() && ways <= MAX_WAYS && self.ways_of.is_empty();
        if self.replacement == Replacement::Plru && !is_tree {
            return Err(format!(
                "the tree of PLRU needs a power of two of ways, at most {MAX_WAYS}, for all classes"
            ));
        }
        if self.replacement == Replacement::Random && ways > MAX_WAYS {
            return Err(format!("{ways} ways with random replacement; at most {MAX_WAYS}"));
        }
        if self.replacement == Replacement::Lru && ways > LISTED_WAYS && !self.ways_of.is_empty() {
            return Err(format!(
                "{ways} ways with LRU are for all classes; at most {LISTED_WAYS} can be divided"
            ));
        }
        Ok(())
    }

    fn ways(&self) -> usize {
        self.ways.unwrap_or(self.entries)
    }

    pub(crate) fn shape(&self) -> Shape {
        let ways = self.ways();
        let of_class = PageClass::ALL.map(|class| {
            let holds = self.holds.contains(&class);
            holds.then(|| self.ways_of.get(class).unwrap_or((0, ways)))
        });
        let (replacement, index) = (self.replacement, self.index);
        Shape { sets: self.entries / ways, ways, of_class, replacement, index }
    }
}

fn syntax(text: &str, error: &toml::de::Error) -> PresetError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    PresetError::Syntax {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        problem: error.message().replace('\n', ", "),
    }
}

fn wrong(place: impl Into<String>, problem: String) -> PresetError {
    PresetError::Value { place: place.into(), problem }
}

fn check_count(place: &str, count: usize) -> Result<(), PresetError> {
    if count > MAX_STRUCTURES {
        return Err(wrong(place, format!("{count} structures; at most {MAX_STRUCTURES}")));
    }
    Ok(())
}

fn check_sets(entries: usize, ways: Option<usize>) -> Result<(), String> {
    if !(1..=MAX_ENTRIES).contains(&entries) {
        return Err(format!("{entries} entries; at least 1, at most {MAX_ENTRIES}"));
    }
    let Some(ways) = ways else { return Ok(()) };
    if ways == 0 || !entries.is_multiple_of(ways) {
        return Err(format!("{entries} entries are not a multiple of {ways} ways"));
    }
    let sets = entries / ways;
    if !sets.is_power_of_two() {
        return Err(format!(
            "{entries} entries in {ways} ways are {sets} sets, not a power of two"
        ));
    }
    if sets > 1 && ways > MAX_WAYS {
        return Err(format!("{ways} ways; at most {MAX_WAYS}, or all entries"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hugepilot_events::Design;
    use proptest::prelude::*;

    use super::*;
    use crate::hierarchy::{Coalescing, Hierarchy, PART, Part, Places, Use};

    proptest! {
        /// Cut and changed presets: an error, or TLBs that work.
        #[test]
        fn a_damaged_preset_is_refused_or_works(
            (_, text) in prop::sample::select(BUILT_IN.to_vec()),
            cut in 0.0f64..1.3,
            changes in prop::collection::vec((0.0f64..1.0, "[0-9a-z\\[\\]={},\"]"), 0..4),
        ) {
            let mut text: String = text.chars().take((text.len() as f64 * cut) as usize).collect();
            for (place, with) in changes {
                let at = (text.len() as f64 * place) as usize;
                if at < text.len() {
                    text.replace_range(at..=at, &with);
                }
            }
            if let Ok(preset) = Preset::parse(&text) {
                let mut tlbs = Hierarchy::new(&preset, Coalescing::All, 4);
                let (mut part, mut references) = (Part::default(), [0; PART]);
                let (mut l2, mut walks) = (Places::default(), Places::default());
                for page in (0..4000).map(|page| page * 77) {
                    let used = |class| Use::new(page, 0, 0, class);
                    part.set(PageClass::ALL.map(used).into_iter());
                    tlbs.touch_l1(&part, &mut l2);
                    tlbs.touch_l2(&part, &l2, &mut walks);
                    tlbs.walk(&part, &walks, &mut references);
                    tlbs.forget(page, 0, |_| true);
                }
            }
        }

        #[test]
        fn numbers_beyond_all_limits_are_refused(
            entries in prop::sample::select(vec![0u64, 1 << 15, 1 << 32, (1 << 63) - 1]),
            first in prop::sample::select(vec![0u64, 9, (1 << 63) - 1]),
        ) {
            let text = include_str!("presets/ice-lake-sp.toml");
            let large = text.replace("entries = 2048", &format!("entries = {entries}"));
            prop_assert!(Preset::parse(&large).is_err());
            let ways = text.replace("huge = [0, 8]", &format!("huge = [{first}, 8]"));
            prop_assert_eq!(Preset::parse(&ways).is_ok(), first == 0);
        }
    }

    #[test]
    fn each_built_in_preset_parses_and_has_its_name() {
        for (name, text) in BUILT_IN {
            let preset = Preset::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(preset.name, name);
            assert!(!preset.source.is_empty(), "{name}");
        }
    }

    /// Reaches as published: Haswell's L2 has 1,024 entries, Zen 5's 4,096 (reference tables of
    /// the CPUs, not of this crate).
    #[test]
    fn levels_have_their_published_entries() {
        let entries = |name: &str, level: fn(&Preset) -> &Vec<Tlb>| {
            let preset = Preset::built_in(name).unwrap();
            level(&preset).iter().map(|tlb| tlb.entries).collect::<Vec<_>>()
        };
        assert_eq!(entries("haswell", |preset| &preset.l1), [64, 32, 4]);
        let of_designs = Design::ALL.iter().filter_map(|design| design.preset());
        assert_eq!(of_designs.filter(|name| Preset::built_in(name).is_some()).count(), 13);
        assert_eq!(entries("haswell", |preset| &preset.l2), [1024]);
        assert_eq!(entries("ice-lake-sp", |preset| &preset.l2), [2048]);
        assert_eq!(entries("zen5", |preset| &preset.l1), [96]);
        assert_eq!(entries("zen5", |preset| &preset.l2), [4096, 1024]);
    }

    #[test]
    fn wrong_values_are_named_with_their_place() {
        let text = include_str!("presets/haswell.toml");
        for (from, to, expected) in [
            ("ways = 8", "ways = 6", "l2[0]: 1024 entries are not a multiple of 6 ways"),
            ("entries = 1024", "entries = 0", "l2[0]: 0 entries; at least 1, at most 16384"),
            ("levels = 4", "levels = 9", "levels: 9 is neither 4 nor 5"),
            (
                "entries = 64\nways = 4",
                "entries = 96\nways = 4",
                "l1[0]: 96 entries in 4 ways are 24 sets, not a power of two",
            ),
            ("level = 2", "level = 4", "walk_caches[1]: level 4 is not within 1 to 3"),
            ("[\"base\"]", "[\"huge\"]", "l1: no structure holds Base pages"),
            ("[\"giant\"]", "[]", "l1[2]: it holds no pages"),
            (
                "entries = 1024\nways = 8\nreplacement = \"plru\"",
                "entries = 1024\nreplacement = \"random\"",
                "l2[0]: 1024 ways with random replacement; at most 64",
            ),
            (
                "ways = 8\nreplacement = \"plru\"",
                "ways = 32\nways_of = { huge = [0, 8] }",
                "l2[0]: 32 ways with LRU are for all classes; at most 16 can be divided",
            ),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Preset::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let error = Preset::parse(&text.replace("levels = 4", "levels = four")).unwrap_err();
        assert!(error.to_string().starts_with("line 7, column 10: "), "{error}");
    }
}
