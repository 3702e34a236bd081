//! Hostile traces.

use std::path::Path;
use std::process::Command;

use hugepilot_record::trace::{TraceAccess, TraceMapping, TracePiece, TraceWriter};
use hugepilot_testkit::{need, requires};
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use crate::tool::{Done, HUGEPILOT, LIMIT, Running};

/// Blocks of mappings in a trace.
const BLOCKS: usize = 75;
/// Address space of the simulator: two thirds of what the mappings of all blocks take.
const MOST_KIB: &str = "600000";

/// Bytes of a block, as a trace has it.
fn block(piece: &TracePiece) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    let start = usize::try_from(writer.bytes()).unwrap();
    writer.piece(piece).unwrap();
    let end = usize::try_from(writer.bytes()).unwrap();
    writer.finish(0, &[]).unwrap()[start..end].to_vec()
}

/// 3,000 mappings of one page with the longest names: 12 MiB. No other block has the same pages.
fn mappings(block: u64) -> TracePiece {
    let mapping = |at| {
        let start = VirtAddr::new((block * 3000 + at) << 13);
        let range = AddrRange::at(start, Bytes::kib(4));
        TraceMapping { range, name: "a".repeat(4096) }
    };
    TracePiece::Mappings((0..3000).map(mapping).collect())
}

fn access() -> TracePiece {
    TracePiece::Accesses { thread: 0, accesses: vec![TraceAccess { address: 0, store: false }] }
}

/// Simulates a trace of `blocks`, which lacks its end, with limited memory.
fn simulate(path: &Path, command: &str, blocks: &[&[u8]]) -> Done {
    let head = TraceWriter::new(Vec::new()).unwrap().finish(0, &[]).unwrap()[..8].to_vec();
    std::fs::write(path, [&[&head[..]], blocks].concat().concat()).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -v {MOST_KIB}; exec \"$0\" \"$@\""), HUGEPILOT, "sim"]);
    shell.args(command.split_whitespace()).arg(path).env("MALLOC_ARENA_MAX", "1");
    Running::start(shell).wait(LIMIT)
}

/// Mappings without an access in between, mappings before each access, and always other mappings.
#[test]
fn the_mappings_of_a_trace_take_bounded_memory() {
    requires!(need::memory(Bytes::gib(4)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.trace");
    let (same, access) = (block(&mappings(0)), block(&access()));
    let waiting: Vec<&[u8]> = (0..BLOCKS).map(|_| &same[..]).chain([&access[..]]).collect();
    let between: Vec<&[u8]> = (0..BLOCKS).flat_map(|_| [&same[..], &access[..]]).collect();
    let tlb = "tlb --pages 4k";
    for (command, blocks) in [(tlb, &waiting), (tlb, &between), ("pcc", &waiting)] {
        let done = simulate(&path, command, blocks);
        assert!(done.exits(0).out().contains("is cut at byte"), "{command}");
    }

    let others: Vec<Vec<u8>> = (0..12).map(|at| block(&mappings(at))).collect();
    let blocks: Vec<&[u8]> = others.iter().map(Vec::as_slice).chain([&access[..]]).collect();
    let at = 8 + others[..5].iter().map(Vec::len).sum::<usize>();
    let problem =
        format!("block at byte {at}, after access 0: its mappings and the former ones need ");
    let refused = simulate(&path, "tlb", &blocks);
    refused.exits(2).says(&[&problem, "; at most 64MiB"]);
}
