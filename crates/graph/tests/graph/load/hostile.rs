//! Truncated, damaged and inconsistent files.

use std::sync::LazyLock;

use hugepilot_graph::{Format, GraphError, Ids, LoadOptions, LoadedGraph, load, save};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{Files, by_hand, gzip, loaded, options, refused, refuses_with, rejects};

/// Small valid file of each format: name, contents, and whether the length is determined.
fn valid() -> &'static [(&'static str, Vec<u8>, bool)] {
    static VALID: LazyLock<Vec<(&str, Vec<u8>, bool)>> = LazyLock::new(all_valid);
    &VALID
}

fn all_valid() -> Vec<(&'static str, Vec<u8>, bool)> {
    let zstd = compress_to_vec(by_hand::WEL.as_bytes(), CompressionLevel::Fastest);
    let mut all: Vec<(&str, Vec<u8>, bool)> = vec![
        ("a.el", by_hand::EL.into(), false),
        ("b.wel", by_hand::WEL.into(), false),
        ("c.csv", by_hand::CSV_WEIGHTED.into(), false),
        ("d.mtx", by_hand::MTX.into(), true),
        ("e.mtx", by_hand::MTX_SYMMETRIC.into(), true),
        ("f.gr", by_hand::DIMACS.into(), true),
        ("g.graph", by_hand::METIS_WEIGHTED.into(), true),
        ("h.graph", by_hand::METIS_FULL.into(), true),
        ("i.wel.gz", gzip(by_hand::WEL), true),
        ("j.wel.zst", zstd, true),
        ("k.sg", by_hand::gap(false, false), true),
        ("l.wsg", by_hand::gap(true, true), true),
        ("m.gr", by_hand::galois(1, true), true),
        ("n.gr", by_hand::galois(2, false), true),
    ];
    let files = Files::new();
    let graph = loaded::<u32>("g.wel", by_hand::WEL, &options(true)).unwrap().graph;
    let path = files.path("o.hpg");
    let ids = Ids::list(6, |v| 9 - v as u64).unwrap();
    save(&path, true, Format::Native, &graph, &ids).unwrap();
    all.push(("o.hpg", std::fs::read(path).unwrap(), true));
    all
}

/// Checks that a graph takes no more memory than its file justifies.
fn bounded<V: hugepilot_graph::Width>(loaded: &LoadedGraph<V>, len: usize) {
    let graph = &loaded.graph;
    let values = graph.vertices() + 2 * graph.out.edges();
    assert!(values * size_of::<V>() <= (1 << 21) + 200 * len, "{values} values from {len} bytes");
}

/// Whether an error names a line or a byte. An edge list without edges has no such line.
fn has_place(error: &str, name: &str) -> bool {
    let line = error.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
    line.is_some_and(|line| line.starts_with(|digit| ('1'..='9').contains(&digit)))
        || error.starts_with(&format!("{name}, byte "))
        || error.starts_with(&format!("{name}: no vertices"))
}

#[test]
fn a_file_truncated_at_any_byte_is_rejected_with_a_position() {
    for (name, contents, tells) in valid() {
        loaded::<u32>(name, contents, &options(true)).unwrap();
        for len in 0..contents.len() {
            match loaded::<u32>(name, &contents[..len], &options(true)) {
                Err(error) => {
                    let text = error.to_string();
                    let at = text.find(name).map_or("", |at| &text[at..]);
                    let place = matches!(error, GraphError::Load { .. }) && has_place(at, name);
                    assert!(place, "{name} of {len} bytes: {text}");
                }
                // The last line end is optional, and so is the last digit of a weight; the last
                // line of METIS may be of an isolated vertex.
                Ok(_) if !*tells || contents.len() - len <= 2 => {}
                Ok(_) => panic!("{name} of {len} bytes, of {}, was loaded", contents.len()),
            }
        }
    }
}

#[test]
fn a_directory_with_a_truncated_or_missing_file_is_rejected() {
    for (damaged, contents) in by_hand::four(true) {
        for len in 0..contents.len() {
            let files = Files::new();
            for (name, contents) in by_hand::four(true) {
                files.with(name, if name == damaged { &contents[..len] } else { &contents });
            }
            // "6 7" without a line end is the same.
            if damaged == "num_nodes_edges.txt" && len == 3 {
                continue;
            }
            let error = load::<u32>(files.path(""), &options(true)).unwrap_err().to_string();
            assert!(error.contains(".bin") || error.contains("num_nodes_edges.txt:1:"), "{error}");
        }
        if damaged != "edge_values.bin" {
            let files = Files::new();
            for (name, contents) in by_hand::four(true).iter().filter(|file| file.0 != damaged) {
                files.with(name, contents);
            }
            let four = LoadOptions { format: Some(Format::FourFiles), ..options(true) };
            rejects(files.path(""), &four, &[damaged]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn changed_bytes_give_a_graph_or_an_error_and_take_no_memory(
        which in 0usize..15,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        directed: bool,
        compact: bool,
    ) {
        let (name, mut contents, _) = valid()[which].clone();
        for (at, byte) in changes {
            let at = at.index(contents.len());
            contents[at] = byte;
        }
        let compact = compact && name.ends_with("el");
        let options = LoadOptions { compact, ..options(directed) };
        for wide in [false, true] {
            let len = contents.len();
            let checked = if wide {
                loaded::<u64>(name, &contents, &options).map(|loaded| bounded(&loaded, len))
            } else {
                loaded::<u32>(name, &contents, &options).map(|loaded| bounded(&loaded, len))
            };
            if let Err(error) = checked {
                let is_load = !matches!(error, GraphError::Memory(_) | GraphError::Io { .. });
                prop_assert!(is_load, "{}", error);
            }
        }
    }

    #[test]
    fn any_text_gives_a_graph_or_an_error(text in "[0-9 ,.%#acp\n-]{0,80}", name in 0usize..5) {
        let (name, head) = [
            ("g.el", ""),
            ("g.wel", ""),
            ("g.mtx", "%%MatrixMarket matrix coordinate real general\n"),
            ("g.gr", "p sp 9 3\n"),
            ("g.graph", "3 3 11\n"),
        ][name];
        for head in ["", head] {
            let contents = format!("{head}{text}");
            if let Ok(loaded) = loaded::<u32>(name, &contents, &options(true)) {
                bounded(&loaded, contents.len());
            }
        }
    }
}

#[track_caller]
fn refuses(name: &str, contents: impl AsRef<[u8]>, words: &str) {
    refuses_with(name, contents, &options(true), &[words]);
}

/// Overwrites bytes of a file.
fn with(mut file: Vec<u8>, at: usize, word: &[u8]) -> Vec<u8> {
    file[at..at + word.len()].copy_from_slice(word);
    file
}

#[test]
fn inconsistent_headers_are_rejected_before_memory_is_taken() {
    for count in [u64::MAX, 1 << 63, 1 << 40, u64::from(u32::MAX), 1000] {
        for at in [1, 9] {
            let file = with(by_hand::gap(false, true), at, &count.to_le_bytes());
            refuses("g.sg", file, "g.sg, byte");
        }
        for at in [16, 24] {
            let file = with(by_hand::galois(1, true), at, &count.to_le_bytes());
            refuses("g.gr", file, "g.gr, byte 16");
        }
        let mtx = |head: &str| by_hand::MTX.replace("6 6 7", head);
        refuses("g.mtx", mtx(&format!("6 6 {count}")), "g.mtx:3:");
        refuses("g.gr", by_hand::DIMACS.replace("6 7", &format!("6 {count}")), "g.gr:3:");
        refuses("g.graph", by_hand::METIS.replace("6 6", &format!("{count} 6")), "g.graph:2:");
        if count > 1000 {
            let words = ["g.mtx:3:", "--vertices"];
            refuses_with("g.mtx", mtx(&format!("{count} {count} 7")), &options(true), &words);
            refuses("g.el", format!("0 {}\n", count - 3), "--compact");
        }
    }
}

/// Compressed text may be a thousand times as long, but this is not.
#[test]
fn a_compressed_file_justifies_its_text_and_no_more() {
    for (name, text) in [
        ("g.mtx.gz", by_hand::MTX.replace("6 6 7", "1000000 1000000 7")),
        ("g.gr.gz", by_hand::DIMACS.replace("6 7", "1000000 7")),
    ] {
        let what = format!("{name}:3: 1000000 vertices in {} bytes", text.len());
        refuses_with(name, gzip(&text), &options(true), &[&what, "--vertices"]);
        let meant = LoadOptions { vertices: Some(1_000_000), ..options(true) };
        assert_eq!(loaded::<u32>(name, gzip(&text), &meant).unwrap().graph.vertices(), 1_000_000);
    }
}

#[test]
fn a_section_beyond_2_64_is_rejected() {
    let vertices = (1u64 << 61) - 2;
    let mut page = vec![0; 4096];
    page[..8].copy_from_slice(b"hpgraph\n");
    // Version and width, vertices, position and length of the first section.
    for (at, word) in [(8, 1 + (8 << 32)), (24, vertices), (40, 4096), (48, (vertices + 1) * 8)] {
        page[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = crc32c::crc32c(&page);
    page[20..24].copy_from_slice(&sum.to_le_bytes());
    refuses("g.hpg", page, "g.hpg, byte 4096: the file ends");
}

/// Classic Mac OS line ends: as separators, they would join all lines, and all but the first edge
/// would be ignored.
#[test]
fn carriage_returns_without_line_feeds_are_rejected() {
    let old = |text: &str| text.replace('\n', "\r");
    for (name, text, line) in [
        ("g.el", old(by_hand::EL), 1),
        ("g.wel", old(by_hand::WEL), 1),
        ("g.csv", old(by_hand::CSV), 1),
        ("g.mtx", old(by_hand::MTX), 1),
        ("g.gr", old(by_hand::DIMACS), 1),
        ("g.graph", old(by_hand::METIS), 1),
        ("g.el", "# x\r0 1\n1 2\n".to_owned(), 1),
        ("g.el", "from,to\n0,1\n1,2\r2,3\n".to_owned(), 3),
    ] {
        refuses(name, text, &format!("{name}:{line}: a carriage return"));
    }
    for text in ["0 1\r\n1 2\r\n", "0 1\r\r\n1 2\r\r\n", "0 1\n1 2\r"] {
        let edges = loaded::<u32>("g.el", text, &options(true)).unwrap().graph.edges();
        assert_eq!(edges, 2, "{text:?}");
    }
}

#[test]
fn faults_inside_are_reported_with_their_byte() {
    let (directed, wide) = (|| by_hand::gap(false, true), by_hand::galois(2, false));
    let long = |file, at, word: u64| with(file, at, &word.to_le_bytes());
    let short = |file, at, word: i32| with(file, at, &word.to_le_bytes());
    for (name, file, words) in [
        ("g.sg", long(directed(), 17, 1), "byte 17: the first offset is 1"),
        ("g.sg", long(directed(), 33, 1), "byte 33: offset 1 follows 2"),
        ("g.sg", long(directed(), 17 + 48, 8), "byte 65: the last offset is 8"),
        ("g.sg", short(directed(), 77, 6), "byte 77: vertex 6 in a graph of 6"),
        ("g.wsg", short(by_hand::gap(true, true), 77, 0), "byte 77: weight"),
        ("g.wsg", short(by_hand::gap(true, true), 77, -1), "byte 77: weight"),
        // A transpose of another graph.
        ("g.sg", short(directed(), 17 + 84 + 56, 3), "byte 101: the incoming edges"),
        ("g.gr", long(wide, 80, 1 << 32), "byte 80: 4294967296 exceeds 32 bits"),
    ] {
        refuses(name, file, words);
    }
    // Edges of an undirected graph in one row only.
    let words = ["g.sg, byte 17: ", "undirected edges"];
    refuses_with("g.sg", short(by_hand::gap(false, false), 73, 2), &options(true), &words);
    let metis = by_hand::METIS_WEIGHTED.replace("3 9", "3 8");
    refuses("g.graph", metis, "g.graph:1: undirected edges must be");
}

#[test]
fn a_changed_bit_in_the_native_format_is_detected() {
    let (_, contents, _) = valid().last().unwrap();
    let word = |at: usize| u64::from_le_bytes(*contents[at..].first_chunk().unwrap()) as usize;
    let sections = (0..7).flat_map(|i| word(40 + i * 24)..word(40 + i * 24) + word(48 + i * 24));
    for byte in (0..256).chain([4095]).chain(sections) {
        let mut damaged = contents.clone();
        damaged[byte] ^= 0x10;
        let error = refused("o.hpg", damaged, &options(true));
        assert!(error.contains("byte") || error.contains("unknown format"), "{error}");
        assert!(byte < 4096 || error.contains("checksum"), "{error}");
    }
    // Trailing bytes.
    refuses("o.hpg", [contents, &[0][..]].concat(), "1 bytes follow");
}

#[test]
fn unsupported_compressions_and_marks_are_named() {
    for (file, says) in [
        (&b"BZh61AY&SY\x10\x20\x30"[..], "bzip2"),
        (b"\xfd7zXZ\0\0\x04", "xz"),
        (b"PK\x03\x04\x14", "zip"),
        (b"\xff\xfe0\0 \x001\0\n\0", "byte order mark"),
    ] {
        refuses_with("g.el", file, &options(false), &["g.el", says]);
    }
    let graph = loaded::<u32>("g.csv", b"BZhId,PK\n0,1\n", &options(false)).unwrap().graph;
    assert_eq!(graph.edges(), 1);
    refuses_with("g.csv", b"O 1\n1 2\n", &options(false), &["g.csv:1:", "\"O\""]);
}
