//! Compaction of free memory into blocks of huge-page size.
//!
//! Builds and tests fill memory with cached files. That leaves much free memory but few free
//! huge pages.

use std::fs;

use hugepilot_units::Bytes;

use crate::need::{self, Need};

/// Wanted amount of free memory in huge blocks; the largest victims use less.
const WANTED: Bytes = Bytes::gib(2);
/// Order of a 2 MiB block of 4 KiB base pages.
const HUGE_ORDER: usize = 9;

/// Compacts free memory if less than 2 GiB of it is in huge blocks.
///
/// Drops cached files if compaction alone is not enough. Takes seconds, but rarely; 0.1 ms if there
/// is enough. Does nothing without root or outside live tests: a test that lacks huge pages
/// reports it.
pub fn make_room() {
    if need::live() != Need::Ok {
        return;
    }
    for file in ["compact_memory", "drop_caches", "compact_memory"] {
        let free = free_in_huge_blocks(&fs::read_to_string("/proc/buddyinfo").unwrap_or_default());
        if free >= WANTED || fs::write(format!("/proc/sys/vm/{file}"), "1").is_err() {
            return;
        }
    }
}

fn free_in_huge_blocks(buddyinfo: &str) -> Bytes {
    let of_zone = |line: &str| {
        let blocks = line.split_whitespace().skip(4 + HUGE_ORDER).enumerate();
        blocks
            .map(|(order, count)| Bytes::mib(2 << order).times(count.parse().unwrap_or(0)))
            .sum::<Bytes>()
    };
    buddyinfo.lines().map(of_zone).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_two_mebibytes_and_more_count() {
        let text = "Node 0, zone DMA32   7000 3012  954  298  183  172   41   22   15   32   10\n\
                    Node 0, zone Normal     9    9    9    9    9    9    9    9    9    3    1\n";
        assert_eq!(free_in_huge_blocks(text), Bytes::mib(2 * 35 + 4 * 11));
        assert_eq!(free_in_huge_blocks(""), Bytes::ZERO);
    }
}
