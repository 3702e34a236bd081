//! Free memory in blocks as large as a huge page. Builds and tests fill memory with cached files, which leaves plenty of free
//! memory and few free huge pages.

use std::fs;

use hugepilot_units::Bytes;

use crate::need::{self, Need};

/// So much is there for each test: the largest victims take less.
const WANTED: Bytes = Bytes::gib(2);
/// A free block of order 9 is 2 MiB where base pages are 4 KiB.
const HUGE_ORDER: usize = 9;

/// Lets the kernel put free memory together where less than 2 GiB of it is in huge blocks, dropping cached files if it must.
/// Seconds, and rarely needed; 0.1 ms when there is room. Only for live tests, and without root nothing is done: a test that
/// misses huge pages says so.
pub fn make_room() {
    if need::live() != Need::Ok {
        return;
    }
    for (file, what) in [("compact_memory", "1"), ("drop_caches", "1"), ("compact_memory", "1")] {
        let free = free_in_huge_blocks(&fs::read_to_string("/proc/buddyinfo").unwrap_or_default());
        if free >= WANTED || fs::write(format!("/proc/sys/vm/{file}"), what).is_err() {
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
        let text = "Node 0, zone   DMA32   7000   3012    954    298    183    172     41     22     15     32     10\n\
                    Node 0, zone   Normal 9 9 9 9 9 9 9 9 9 3 1\n";
        assert_eq!(free_in_huge_blocks(text), Bytes::mib(2 * 35 + 4 * 11));
        assert_eq!(free_in_huge_blocks(""), Bytes::ZERO);
    }
}
