//! Pages of regions in a file: neighbours with the same counts are one entry.

use std::collections::BTreeMap;

use hugepilot_units::Region;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::RegionPages;

/// Most regions of all entries, so that a damaged file cannot fill the memory.
const MAX_REGIONS: u64 = 1 << 24;

/// Neighbouring regions with equal counts.
#[derive(Serialize, Deserialize)]
struct Entry {
    regions: u64,
    #[serde(flatten)]
    first: RegionPages,
}

pub(super) fn serialize<S: Serializer>(
    pages: &BTreeMap<Region, RegionPages>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut entries: Vec<Entry> = Vec::new();
    for &pages in pages.values() {
        match entries.last_mut() {
            Some(last) if same(&last.first, last.regions, pages) => last.regions += 1,
            _ => entries.push(Entry { regions: 1, first: pages }),
        }
    }
    serializer.collect_seq(entries)
}

fn same(first: &RegionPages, after: u64, pages: RegionPages) -> bool {
    RegionPages { region: Region::new(first.region.get() + after), ..*first } == pages
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Region, RegionPages>, D::Error> {
    let mut pages = BTreeMap::new();
    for Entry { regions, first } in Vec::<Entry>::deserialize(deserializer)? {
        if regions > MAX_REGIONS.saturating_sub(pages.len() as u64) {
            return Err(serde::de::Error::custom(format!("{regions} regions in one entry")));
        }
        pages.extend((0..regions).map(|next| {
            let region = Region::new(first.region.get().wrapping_add(next));
            (region, RegionPages { region, ..first })
        }));
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Table {
        #[serde(with = "super")]
        pages: BTreeMap<Region, RegionPages>,
    }

    fn table(counts: &[(u64, u64, bool)]) -> Table {
        let pages = counts.iter().map(|&(number, resident, huge)| {
            let region = Region::new(number);
            (region, RegionPages { huge, ..RegionPages::on_base_pages(region, resident) })
        });
        Table { pages: pages.collect() }
    }

    #[test]
    fn equal_neighbours_are_one_entry() {
        let counts: Vec<_> = (100..4196).map(|number| (number, 512, false)).collect();
        let text = serde_json::to_string(&table(&counts)).unwrap();
        assert!(text.len() < 100 && text.contains("4096"), "{text}");
        assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), table(&counts));
    }

    #[test]
    fn a_damaged_entry_is_an_error() {
        let text = r#"{"pages":[{"regions":99999999999,"region":0,"resident":1,"swapped":0,
                       "huge":false,"shared":0}]}"#;
        let error = serde_json::from_str::<Table>(text).unwrap_err().to_string();
        assert!(error.contains("99999999999 regions"), "{error}");
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            counts in prop::collection::vec((0_u64..60, 510_u64..513, any::<bool>()), 0..60),
        ) {
            let table = table(&counts);
            let text = serde_json::to_string(&table).unwrap();
            prop_assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), table);
        }
    }
}
