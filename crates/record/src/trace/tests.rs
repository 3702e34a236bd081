use hugepilot_units::{AddrRange, VirtAddr};
use proptest::prelude::*;

use super::*;

fn write(pieces: &[TracePiece], warnings: &[TraceWarning]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    pieces.iter().for_each(|piece| writer.piece(piece).unwrap());
    writer.finish(0, warnings).unwrap()
}

/// Reads all pieces. Returns the warnings if the trace is complete, `None` if it is cut, or the
/// error.
fn read(bytes: &[u8]) -> (Vec<TracePiece>, Result<Option<Vec<TraceWarning>>, TraceError>) {
    let mut pieces = Vec::new();
    let mut reader = match TraceReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (pieces, Err(error)),
    };
    loop {
        match reader.piece() {
            Ok(Some(piece)) => pieces.push(piece),
            Ok(None) => {
                assert!(reader.is_complete() || reader.warnings().is_empty());
                return (pieces, Ok(reader.is_complete().then(|| reader.warnings().to_vec())));
            }
            Err(error) => return (pieces, Err(error)),
        }
    }
}

/// Returns the contents of all blocks.
fn blocks(mut bytes: &[u8]) -> Vec<(block::Kind, Vec<u8>)> {
    let mut blocks = Vec::new();
    bytes = &bytes[8..];
    while let Some((head, rest)) = bytes.split_first_chunk() {
        let head = block::Head::parse(*head).unwrap();
        blocks.push((head.kind, head.unpack(&rest[..head.stored]).unwrap()));
        bytes = &rest[head.stored..];
    }
    blocks
}

fn piece() -> impl Strategy<Value = TracePiece> {
    let address = prop_oneof![0u64..1 << 57, 0x7f00_0000_0000u64..0x7f00_0001_0000];
    let access = (address, prop::bool::ANY);
    let access = access.prop_map(|(address, store)| TraceAccess { address, store });
    let accesses = prop::collection::vec(access, 1..200);
    let mapping = (0u64..1 << 47, 0u64..1 << 30, "[a-z\u{e9}\u{4e2d}/]{0,20}").prop_map(
        |(start, length, name)| {
            let (start, end) = (VirtAddr::new(start), VirtAddr::new(start + length));
            TraceMapping { range: AddrRange { start, end }, name }
        },
    );
    prop_oneof![
        4 => (0u16..9, accesses)
            .prop_map(|(thread, accesses)| TracePiece::Accesses { thread, accesses }),
        1 => prop::collection::vec(mapping, 0..9).prop_map(TracePiece::Mappings),
        1 => "[ -~]{0,30}".prop_map(TracePiece::Phase),
        1 => any::<u16>().prop_map(TracePiece::ThreadEnd),
    ]
}

fn warning() -> impl Strategy<Value = TraceWarning> {
    let facts = (1..u64::MAX, 1..=u64::MAX, 1..=64);
    (0..12, facts).prop_map(|(kind, (accesses, more, code))| match kind {
        0 => TraceWarning::Forked { children: accesses },
        1 => TraceWarning::Lost { accesses },
        2 => TraceWarning::Replaced,
        3 => TraceWarning::Failed { status: 4 * code - 1 },
        4 => TraceWarning::Killed { signal: code },
        5 => TraceWarning::Cut,
        6 => TraceWarning::Skipped { accesses },
        7 => TraceWarning::Windowed { accesses, of_accesses: accesses.saturating_add(more) },
        8 => TraceWarning::MaxAccesses,
        9 => TraceWarning::MaxBytes,
        10 => TraceWarning::Interrupted,
        _ => TraceWarning::Phases,
    })
}

fn warnings() -> impl Strategy<Value = Vec<TraceWarning>> {
    prop::collection::vec(warning(), 0..6)
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        pieces in prop::collection::vec(piece(), 0..20),
        warnings in warnings(),
    ) {
        let (found, end) = read(&write(&pieces, &warnings));
        prop_assert_eq!(found, pieces);
        prop_assert_eq!(end.unwrap(), Some(warnings));
    }

    /// A file cut anywhere reads up to the cut.
    #[test]
    fn a_cut_file_has_the_pieces_before(
        pieces in prop::collection::vec(piece(), 1..12),
        warnings in warnings(),
        share in 0.0f64..1.0,
    ) {
        let bytes = write(&pieces, &warnings);
        let cut = (bytes.len() as f64 * share) as usize;
        let (found, end) = read(&bytes[..cut]);
        prop_assert!(pieces.starts_with(&found));
        match end {
            Ok(warnings) => prop_assert!(warnings.is_none() && cut >= 8),
            Err(error) => prop_assert!(cut < 8, "{error}"),
        }
    }

    /// A changed byte is an error with its place, and no piece behind the damage is returned.
    #[test]
    fn a_changed_byte_is_found(
        pieces in prop::collection::vec(piece(), 1..12),
        warnings in warnings(),
        share in 0.0f64..1.0,
        change in 1u8..,
    ) {
        let mut bytes = write(&pieces, &warnings);
        let at = (bytes.len() as f64 * share) as usize;
        bytes[at] ^= change;
        let (found, end) = read(&bytes);
        prop_assert!(pieces.starts_with(&found));
        match end {
            // The version says how to read the end.
            _ if at == 7 => {}
            // A longer length looks like a cut.
            Ok(warnings) => prop_assert!(warnings.is_none(), "{warnings:?}"),
            Err(TraceError::Block { at: block, .. }) => prop_assert!(block <= at as u64),
            Err(TraceError::Header(_)) => prop_assert!(at < 8),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    /// Changed contents of blocks whose checksums are right, as a hostile writer makes them: what
    /// is read can be written, and an error has the place of a block.
    #[test]
    fn changed_contents_are_read_or_refused(
        pieces in prop::collection::vec(piece(), 1..6),
        warnings in warnings(),
        version in 1u8..=5,
        changes in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0, any::<u8>()), 0..4),
        cut in 0.5f64..2.0,
    ) {
        let mut blocks = blocks(&write(&pieces, &warnings));
        for (block, place, with) in changes {
            let block = (blocks.len() as f64 * block) as usize;
            let raw = &mut blocks[block].1;
            let at = (raw.len() as f64 * place) as usize;
            raw[at] = with;
            let length = (raw.len() as f64 * cut).ceil() as usize;
            raw.truncate(length);
        }
        let mut bytes = [&block::MAGIC[..], &[version]].concat();
        let mut places = Vec::new();
        for (kind, raw) in blocks {
            places.push(bytes.len() as u64);
            bytes.extend(block::pack(kind, &raw).unwrap());
        }
        let (mut found, end) = read(&bytes);
        let is_empty = |piece: &TracePiece| {
            matches!(piece, TracePiece::Accesses { accesses, .. } if accesses.is_empty())
        };
        found.retain(|piece| !is_empty(piece));
        prop_assert_eq!(read(&write(&found, &[])).0, found);
        match end {
            Ok(warnings) => prop_assert!(warnings.is_some()),
            Err(TraceError::Block { at, .. }) => prop_assert!(places.contains(&at), "{at}"),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn random_bytes_are_an_error_or_empty(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut file = b"HPTRACE\x01".to_vec();
        file.extend(bytes);
        let (found, _) = read(&file);
        prop_assert!(found.is_empty());
    }
}

/// Stored by each version: they must be readable for ever.
#[test]
fn former_versions_are_readable() {
    let (pieces, end) = read(include_bytes!("tests/version-1.trace"));
    assert_eq!((pieces, end.unwrap()), (sample(), Some(Vec::new())));
    let (pieces, end) = read(include_bytes!("tests/version-2.trace"));
    let threads = [sample(), vec![TracePiece::ThreadEnd(3)]].concat();
    assert_eq!((&pieces, end.unwrap()), (&threads, Some(Vec::new())));
    let (pieces, end) = read(include_bytes!("tests/version-3.trace"));
    assert_eq!((&pieces, end.unwrap()), (&threads, Some(part())));
    let phases = [part(), vec![TraceWarning::Phases]].concat();
    let stored =
        [&include_bytes!("tests/version-4.trace")[..], include_bytes!("tests/version-5.trace")];
    for (bytes, warnings) in stored.into_iter().zip([part(), phases]) {
        let mut reader = TraceReader::new(bytes).unwrap();
        let pieces = std::iter::from_fn(|| reader.piece().unwrap()).collect::<Vec<_>>();
        assert_eq!((&pieces, reader.warnings(), reader.folded()), (&threads, &*warnings, 12_345));
    }
}

#[test]
fn the_number_of_folded_accesses_is_stored() {
    let bytes = TraceWriter::new(Vec::new()).unwrap().finish(12_345, &part()).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    assert_eq!((reader.folded(), reader.piece().unwrap()), (0, None));
    assert_eq!((reader.folded(), reader.warnings()), (12_345, &*part()));
}

/// Part of a program that a signal killed.
fn part() -> Vec<TraceWarning> {
    vec![
        TraceWarning::Skipped { accesses: 200_000 },
        TraceWarning::Windowed { accesses: 1_000_000, of_accesses: 100_000_000 },
        TraceWarning::Killed { signal: 9 },
    ]
}

#[test]
fn warnings_that_no_writer_makes_are_refused() {
    let end = |numbers: &[u64]| {
        let mut raw = Vec::new();
        numbers.iter().for_each(|&number| block::put(&mut raw, number));
        let bytes = [b"HPTRACE\x03".to_vec(), block::pack(block::Kind::End, &raw).unwrap()];
        read(&bytes.concat()).1.map_err(|error| error.to_string())
    };
    assert_eq!(end(&[0, 1, 4, 9, 0]), Ok(Some(vec![TraceWarning::Killed { signal: 9 }])));
    for (numbers, problem) in [
        (&[0, 1, 12, 0, 0][..], "unknown warning 12 0 0"),
        (&[0, 1, 4, 1 << 32, 0], "unknown warning 4 4294967296 0"),
        (&[0, 1, 2, 0, 7], "unknown warning 2 0 7"),
        (&[0, 1, 0, 0, 0], "unknown warning 0 0 0"),
        (&[0, 1, 1, 0, 0], "unknown warning 1 0 0"),
        (&[0, 1, 3, 0, 0], "unknown warning 3 0 0"),
        (&[0, 1, 3, 256, 0], "unknown warning 3 256 0"),
        (&[0, 1, 4, 0, 0], "unknown warning 4 0 0"),
        (&[0, 1, 4, 65, 0], "unknown warning 4 65 0"),
        (&[0, 1, 4, u64::from(u32::MAX), 0], "unknown warning 4 4294967295 0"),
        (&[0, 1, 6, 0, 0], "unknown warning 6 0 0"),
        (&[0, 1, 7, 0, 0], "unknown warning 7 0 0"),
        (&[0, 1, 7, 0, 5], "unknown warning 7 0 5"),
        (&[0, 1, 7, 5, 1], "unknown warning 7 5 1"),
        (&[0, 1, 7, 5, 5], "unknown warning 7 5 5"),
        (&[0, 65], "the number of warnings is 65; at most 64"),
        (&[0, 2, 8, 0, 0], "it ends within a warning"),
        (&[0], "it ends within the number of warnings"),
        (&[0, 0, 0], "bytes behind its data"),
    ] {
        assert_eq!(end(numbers), Err(format!("block at byte 8: {problem}")), "{numbers:?}");
    }
}

/// The writer keeps 57 bits, so other addresses are of no program.
#[test]
fn an_address_beyond_all_page_tables_is_refused() {
    let accesses = |address: u64| {
        let mut raw = Vec::new();
        [0, 1, address << 2].iter().for_each(|&number| block::put(&mut raw, number));
        let bytes = [b"HPTRACE\x04".to_vec(), block::pack(block::Kind::Accesses, &raw).unwrap()];
        read(&bytes.concat())
    };
    let most = (1 << ADDRESS_BITS) - 1;
    let (pieces, end) = accesses(most);
    let access = TraceAccess { address: most, store: false };
    assert_eq!(pieces, [TracePiece::Accesses { thread: 0, accesses: vec![access] }]);
    assert_eq!(end.unwrap(), None);
    let (pieces, end) = accesses(most + 1);
    let expected = "block at byte 8: an address is 0x200000000000000; at most 57 bits";
    assert_eq!((pieces, end.unwrap_err().to_string().as_str()), (vec![], expected));
}

/// Two traces in one file, by `cat a.trace b.trace`.
#[test]
fn bytes_behind_the_end_are_refused() {
    let first = write(&sample(), &[]);
    for behind in [write(&sample(), &[]), vec![0]] {
        let (pieces, end) = read(&[first.clone(), behind].concat());
        assert_eq!(pieces, sample());
        let expected = format!("block at byte {}: bytes behind the end of the trace", first.len());
        assert_eq!(end.unwrap_err().to_string(), expected);
    }
}

fn sample() -> Vec<TracePiece> {
    let access = |address, store| TraceAccess { address, store };
    let (start, end) = (VirtAddr::new(0x7f00_0000_0000), VirtAddr::new(0x7f00_0020_0000));
    vec![
        TracePiece::Mappings(vec![TraceMapping {
            range: AddrRange { start, end },
            name: "[heap]".to_owned(),
        }]),
        TracePiece::Phase("build".to_owned()),
        TracePiece::Accesses {
            thread: 3,
            accesses: vec![access(0x7f00_0000_1000, false), access(0x7f00_0000_0ff8, true)],
        },
    ]
}

#[test]
fn a_later_version_and_another_file_are_refused() {
    let mut bytes = write(&sample(), &[]);
    bytes[7] = 6;
    assert_eq!(read(&bytes).1.unwrap_err().to_string(), "version 6; this hugepilot reads up to 5");
    for other in [&b""[..], b"HPTR", b"\x7fELF\x02\x01\x01\0\0\0"] {
        assert_eq!(read(other).1.unwrap_err().to_string(), "not a trace of hugepilot");
    }
}

/// A block of 12 MiB that claims to be small or large takes no memory beyond its length.
#[test]
fn a_block_that_claims_too_much_is_refused() {
    let mut bytes = write(&[], &[]);
    bytes[9..13].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = read(&bytes).1.unwrap_err().to_string();
    assert_eq!(error, "block at byte 8: 4294967295 bytes; at most 12582912");
}

/// Sequential access takes less than a byte each.
#[test]
fn a_sequential_trace_is_small() {
    let accesses =
        (0..100_000).map(|n| TraceAccess { address: 0x7f00_0000_0000 + n * 8, store: false });
    let bytes = write(&[TracePiece::Accesses { thread: 0, accesses: accesses.collect() }], &[]);
    assert!(bytes.len() < 10_000, "{} bytes", bytes.len());
}
