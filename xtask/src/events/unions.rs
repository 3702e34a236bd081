//! Events of AMD that are not in the files: unions of unit masks, and one mask of a later design.

use super::Events;

/// Comments of the tables with unions.
const NOTES: [&str; 2] = [
    "Unions of unit masks of these events: L1_DTLB_MISS.*ALL*, L1_DTLB_MISS.4K_L2_MISS (with",
    "coalesced pages), L2_CACHE_REQ_STAT.*, LS_DMND_FILLS.*, LS_ANY_FILLS.*",
];
const NOTES_ZEN5: [&str; 3] = [
    NOTES[0],
    NOTES[1],
    "CYCLES_NO_RETIRE.NOT_COMPLETE_MISSING_LOAD: as Zen 4 (Linux, ex_no_retire.load_not_complete)",
];

/// Name, config and the numbers of the first and last design that have it.
type Union = (&'static str, u64, u8, u8);

/// Sources of the masks: the tables themselves, and `pmu-events` of Linux
/// (`ls_dmnd_fills_from_sys`, `ls_any_fills_from_sys`, `ls_l1_d_tlb_miss`, `l2_cache_req_stat`).
const UNIONS: [Union; 13] = [
    ("L1_DTLB_MISS.ALL", 0xff45, 1, 5),
    ("L1_DTLB_MISS.ALL_L2_HIT", 0x0f45, 1, 5),
    ("L1_DTLB_MISS.ALL_L2_MISS", 0xf045, 1, 5),
    ("L1_DTLB_MISS.4K_L2_MISS", 0x3045, 1, 5),
    ("L2_CACHE_REQ_STAT.DC_ACCESS_IN_L2", 0xf864, 1, 5),
    ("L2_CACHE_REQ_STAT.DC_HIT_IN_L2", 0xf064, 1, 5),
    ("LS_DMND_FILLS.ALL", 0x5f43, 3, 3),
    ("LS_DMND_FILLS.ALL", 0xdf43, 4, 5),
    ("LS_DMND_FILLS.BEYOND_L2", 0x5a43, 2, 2),
    ("LS_DMND_FILLS.BEYOND_L2", 0x5e43, 3, 3),
    ("LS_DMND_FILLS.BEYOND_L2", 0xde43, 4, 5),
    ("LS_DMND_FILLS.DRAM", 0x4843, 2, 5),
    ("LS_ANY_FILLS.DRAM", 0x4844, 3, 5),
];

/// Adds the unions of a table, and returns its comments.
pub(super) fn add(table: &str, events: &mut Events) -> &'static [&'static str] {
    let Some(design) = table.strip_prefix("zen").and_then(|number| number.parse::<u8>().ok())
    else {
        return &[];
    };
    for (name, config, first, last) in UNIONS {
        if (first..=last).contains(&design) {
            events.insert(name.to_owned(), [config, 0]);
        }
    }
    if design < 5 {
        return &NOTES;
    }
    events.insert("CYCLES_NO_RETIRE.NOT_COMPLETE_MISSING_LOAD".to_owned(), [0xa2d6, 0]);
    &NOTES_ZEN5
}

#[cfg(test)]
mod tests {
    use super::super::tests::is_in_committed;
    use super::*;

    #[test]
    fn each_design_has_its_unions_in_the_committed_table() {
        for (table, unions) in
            [("zen1", 6), ("zen2", 8), ("zen3", 10), ("zen4", 10), ("zen5", 11), ("neoverse_n1", 0)]
        {
            let mut events = Events::new();
            add(table, &mut events);
            assert_eq!(events.len(), unions, "{table}");
            is_in_committed(table, &events);
        }
    }
}
