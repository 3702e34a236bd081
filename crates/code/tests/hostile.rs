//! Damaged and foreign input: an error or no address, never a panic. The code of a real program
//! gives addresses.

use std::fs;
use std::io::Write;
use std::sync::LazyLock;

use hugepilot_code::{Boundary, CodeError, ElfCode, Regs, analyse};
use hugepilot_record::{Provenance, ProvenanceCounts};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use proptest::prelude::*;

/// Bytes of this program.
static SELF: LazyLock<Vec<u8>> = LazyLock::new(|| fs::read("/proc/self/exe").unwrap());

fn open_bytes(bytes: &[u8]) -> Result<ElfCode, CodeError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    ElfCode::open(file.path())
}

/// Opens damaged bytes and uses all functions of the result.
fn use_all(bytes: &[u8]) {
    let Ok(elf) = open_bytes(bytes) else { return };
    let mut code = Vec::new();
    for function in elf.functions().take(20) {
        let _ = elf.function_at(function.start);
        let _ = elf.vaddr_of_file_offset(function.start);
        if let Ok(read) = elf.read(function.clone(), &mut code) {
            let ip = read.start + code.len() as u64 / 2;
            let recipe = analyse(&code, read.start, Boundary::Function, ip);
            let _ = recipe.address(&Regs::default());
        }
    }
    let _ = elf.name_at(elf.functions().next().map_or(0, |function| function.start));
}

/// Random cases that are not stored.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

/// Offsets where an inverted bit has an effect: the file header, the program and section headers.
fn header_offset() -> impl Strategy<Value = usize> {
    let number = |at: usize| u64::from_le_bytes(SELF[at..at + 8].try_into().unwrap()) as usize;
    let (programs, sections) = (number(0x20), number(0x28));
    let end = SELF.len();
    prop_oneof![
        0..64_usize,
        programs..(programs + 14 * 56).min(end),
        sections..end.min(sections + 40 * 64),
        0..end
    ]
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn any_bytes_at_any_ip_are_survived(
        code in prop::collection::vec(any::<u8>(), 0..600),
        start in prop_oneof![Just(0_u64), Just(u64::MAX - 300), any::<u64>()],
        offset in 0..700_u64,
        function in any::<bool>(),
    ) {
        let boundary = if function { Boundary::Function } else { Boundary::Unknown };
        let recipe = analyse(&code, start, boundary, start.wrapping_add(offset));
        let address = recipe.address(&Regs::default());
        prop_assert_eq!(address.is_none(), recipe.provenance == Provenance::None);
        prop_assert_eq!(address.is_none(), recipe.no_address.is_some());
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn a_truncated_file_is_survived(len in prop_oneof![0..5000_usize, 0..SELF.len()]) {
        use_all(&SELF[..len]);
        prop_assert!(len > 0x40 || open_bytes(&SELF[..len]).is_err());
    }

    #[test]
    fn inverted_bits_are_survived(
        bits in prop::collection::vec((header_offset(), 0..8_u32), 1..4),
    ) {
        let mut bytes = SELF.clone();
        for (at, bit) in bits {
            bytes[at] ^= 1 << bit;
        }
        use_all(&bytes);
    }

    #[test]
    fn an_extreme_header_field_is_survived(
        at in header_offset(),
        value in prop_oneof![Just(u64::MAX), any::<u64>()],
    ) {
        let mut bytes = SELF.clone();
        let at = (at & !7).min(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        use_all(&bytes);
    }
}

#[test]
fn the_format_of_other_files_is_named() {
    let found = |bytes: &[u8]| match open_bytes(bytes) {
        Err(CodeError::Foreign { found, .. }) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(found(b""), "too short");
    assert_eq!(found(b"#!/bin/sh\necho nothing here\n"), "no ELF header");
    let with = |at: usize, byte| {
        let mut bytes = SELF[..4096].to_vec();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(found(&with(4, 1)), "32-bit");
    assert_eq!(found(&with(5, 2)), "big-endian");
    assert_eq!(found(&with(18, 183)), "for another processor");
    // A header without tables.
    assert!(matches!(open_bytes(&SELF[..4096]), Err(CodeError::Malformed { .. })));
    assert!(matches!(ElfCode::open("/proc/self"), Err(CodeError::Read { .. })));
    assert!(matches!(ElfCode::open("/nonexistent"), Err(CodeError::Read { .. })));
}

/// Returns the error of a sparse file of a terabyte that starts with these bytes.
fn error_of_sparse(bytes: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file.as_file().set_len(1 << 40).unwrap();
    match ElfCode::open(file.path()) {
        Err(CodeError::Malformed { source, .. }) => source.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tables_without_end_are_not_read() {
    let number = |at: usize| u64::from_le_bytes(SELF[at..at + 8].try_into().unwrap()) as usize;
    let (sections, count) = (number(0x28), number(0x3c) & 0xffff);
    let mut large = SELF.clone();
    for section in 0..count {
        let size = sections + section * 64 + 0x20;
        large[size..size + 8].copy_from_slice(&(2_u64 << 30).to_le_bytes());
    }
    assert_eq!(error_of_sparse(&large), "a table of more than 1 GiB");
    // If the header has zero sections, the size of the first one is their number.
    let mut many = SELF.clone();
    many[0x3c..0x3e].fill(0);
    many[sections + 0x20..sections + 0x28].copy_from_slice(&(1_u64 << 24).to_le_bytes());
    assert_eq!(error_of_sparse(&many), "more than a million headers");
}

#[inline(never)]
fn known_function(values: &[u64]) -> u64 {
    values.iter().rev().fold(7, |sum, value| sum.rotate_left(3) ^ value)
}

#[test]
fn this_program_knows_its_own_functions() {
    assert_ne!(known_function(&[1, 2, 3]), 0);
    let address = known_function as *const () as u64;
    // The offset in the file comes from the mapping that contains it.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let (start, offset) = maps
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            let (start, end, offset) = (hex(start)?, hex(end)?, hex(fields.nth(1)?)?);
            (start <= address && address < end).then_some((start, offset))
        })
        .next()
        .unwrap();
    let elf = ElfCode::open("/proc/self/exe").unwrap();
    let vaddr = elf.vaddr_of_file_offset(address - start + offset).unwrap();
    let function = elf.function_at(vaddr + 1).unwrap();
    assert_eq!(function.start, vaddr);
    assert!(elf.name_at(vaddr + 1).unwrap().contains("known_function"));
    let mut code = Vec::new();
    assert_eq!(elf.read(function.clone(), &mut code).unwrap(), function);
    let at = usize::try_from(address - start + offset).unwrap();
    assert_eq!(code, SELF[at..at + code.len()]);
    // A window is truncated at the end of its mapping.
    let window = elf.read(vaddr..vaddr + (1 << 40), &mut code).unwrap();
    assert!(
        window.start == vaddr && window.end - vaddr == code.len() as u64 && code.len() <= 2 << 20
    );
    assert!(matches!(
        elf.read(1 << 60..(1 << 60) + 1, &mut code),
        Err(CodeError::NotMapped { .. })
    ));
}

/// Analyses the IP after every `step`th instruction with a memory operand, and counts.
fn count_provenance(elf: &ElfCode, functions: usize, step: usize) -> ProvenanceCounts {
    let mut counts = ProvenanceCounts::default();
    let mut largest: Vec<_> =
        elf.functions().filter(|span| span.end - span.start < 1 << 20).collect();
    largest.sort_by_key(|span| std::cmp::Reverse(span.end - span.start));
    let mut info = InstructionInfoFactory::new();
    for function in largest.into_iter().take(functions) {
        let mut code = Vec::new();
        elf.read(function.clone(), &mut code).unwrap();
        let decoder = Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE);
        let instructions: Vec<Instruction> = decoder.into_iter().collect();
        let memory = instructions.iter().filter(|one| !info.info(one).used_memory().is_empty());
        for instruction in memory.step_by(step) {
            let ip = instruction.next_ip();
            let recipe = analyse(&code, function.start, Boundary::Function, ip);
            let is_boundary =
                |ip| instructions.iter().any(|one| one.ip() == ip) || ip == function.end;
            assert!(is_boundary(recipe.accessing_ip), "{:#x} {recipe:?}", function.start);
            counts.count(recipe.provenance);
        }
    }
    counts
}

#[test]
fn a_real_program_gives_addresses() {
    let elf = ElfCode::open("/proc/self/exe").unwrap();
    let counts = count_provenance(&elf, 30, 50);
    assert!(counts.total() > 200, "{counts:?}");
    assert!(counts.ratio(counts.exact + counts.recomputed) > Some(0.6), "{counts:?}");
}

/// Voting on bytes with known boundaries may give no result, but no wrong one.
#[test]
fn voting_agrees_with_known_boundaries() {
    let elf = ElfCode::open("/proc/self/exe").unwrap();
    let (mut same, mut refused, mut wrong) = (0, 0, 0);
    for function in elf.functions().filter(|span| span.end - span.start > 2000).take(40) {
        let mut code = Vec::new();
        elf.read(function.clone(), &mut code).unwrap();
        let decoder = Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE);
        for instruction in decoder.into_iter().skip(60).step_by(37) {
            let ip = instruction.ip();
            let known = analyse(&code, function.start, Boundary::Function, ip);
            let voted = analyse(&code, function.start, Boundary::Unknown, ip);
            match (known.provenance, voted.provenance) {
                _ if known.accessing_ip == voted.accessing_ip => same += 1,
                (_, Provenance::None) => refused += 1,
                _ => wrong += 1,
            }
        }
    }
    assert!(
        same > 200 && wrong == 0 && refused * 4 < same,
        "{same} same, {refused} refused, {wrong} wrong"
    );
}
