//! Events of AMD that are not in the files: unions of unit masks, and masks that Linux has.

use std::fmt::Write as _;

use super::Events;

/// Masks that the file of their design lacks: name, config, design and source.
const OF_LINUX: [(&str, u64, u8, &str); 2] = [
    (
        "DISPATCH_RESOURCE_STALL_CYCLES_0.RETIRE_TOKEN_STALL",
        0x20af,
        2,
        "Linux, de_dis_dispatch_token_stalls0",
    ),
    (
        "CYCLES_NO_RETIRE.NOT_COMPLETE_MISSING_LOAD",
        0xa2d6,
        5,
        "as Zen 4 (Linux, ex_no_retire.load_not_complete)",
    ),
];
/// Longest line of a comment.
const WIDTH: usize = 96;

/// Name, config and the numbers of the first and last design that have it.
type Union = (&'static str, u64, u8, u8);

/// Sources of the masks: the tables themselves, and `pmu-events` of Linux
/// (`ls_dmnd_fills_from_sys`, `ls_any_fills_from_sys`, `ls_l1_d_tlb_miss`, `l2_cache_req_stat`,
/// `de_dis_dispatch_token_stalls0`, `de_dispatch_stall_cycle_dynamic_tokens_part2`).
const UNIONS: [Union; 17] = [
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
    ("DYNAMIC_TOKENS_DISPATCH_STALLS_CYCLES_0.SCHEDULER_TOKEN_STALL", 0x3faf, 1, 1),
    ("DISPATCH_RESOURCE_STALL_CYCLES_0.SCHEDULER_TOKEN_STALL", 0x1faf, 2, 2),
    ("DISPATCH_RESOURCE_STALL_CYCLES_2.INT_SCHEDULER_TOKEN_STALL", 0x0faf, 3, 4),
    ("DISPATCH_RESOURCE_STALL_CYCLES_2.INT_SCHEDULER_TOKEN_STALL", 0x03af, 5, 5),
];

/// Adds the unions of a table, and returns its comments, which name them.
pub(super) fn add(table: &str, events: &mut Events) -> Vec<String> {
    let Some(design) = table.strip_prefix("zen").and_then(|number| number.parse::<u8>().ok())
    else {
        return Vec::new();
    };
    let of_design = UNIONS.iter().filter(|(_, _, first, last)| (*first..=*last).contains(&design));
    let mut names = Vec::new();
    for (name, config, ..) in of_design {
        events.insert((*name).to_owned(), [*config, 0]);
        names.push(*name);
    }
    let mut notes = wrapped(&format!("Unions of unit masks: {}", names.join(", ")));
    notes.push("L1_DTLB_MISS.4K_L2_MISS counts coalesced pages, too".to_owned());
    for (name, config, _, source) in OF_LINUX.iter().filter(|(.., of, _)| *of == design) {
        events.insert((*name).to_owned(), [*config, 0]);
        notes.push(format!("{name}: {source}"));
    }
    notes
}

/// Breaks a text into lines.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = &mut lines[0];
        if line.len() + word.len() > WIDTH {
            lines.insert(0, word.to_owned());
        } else {
            let space = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{space}{word}");
        }
    }
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::tests::{committed, is_in_committed};
    use super::*;

    #[test]
    fn each_design_has_its_unions_in_the_committed_table() {
        for (table, unions) in [
            ("zen1", 7),
            ("zen2", 10),
            ("zen3", 11),
            ("zen4", 11),
            ("zen5", 12),
            ("neoverse_n1", 0),
        ] {
            let mut events = Events::new();
            let notes = add(table, &mut events);
            assert_eq!(events.len(), unions, "{table}");
            let comments: Vec<String> = committed(table)
                .iter()
                .skip(1)
                .map_while(|line| line.strip_prefix("# ").map(str::to_owned))
                .collect();
            assert_eq!(comments, notes, "{table}");
            let named = |name: &String| notes.iter().any(|note| note.contains(name.as_str()));
            assert!(events.keys().all(named), "{table}: {notes:?}");
            is_in_committed(table, &events);
        }
    }
}
