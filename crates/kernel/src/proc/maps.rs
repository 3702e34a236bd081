//! Parser of `/proc/PID/maps` and `/proc/PID/smaps`, line by line, so that 100,000 mappings need no
//! 100 MB of text.

use std::io::BufRead;
use std::path::Path;

use hugepilot_record::{Mapping, MappingKind, Protection, VmFlags};
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use super::printable;
use crate::{KernelError, Result};

/// Parses smaps, or maps, with all sizes 0. `path` is for errors only. Lines with unknown labels
/// are skipped, because kernels add new ones.
///
/// # Errors
/// [`KernelError::Parse`] for a line that is neither a mapping nor `Label: value`;
/// [`KernelError::Read`].
pub fn parse_smaps(mut text: impl BufRead, path: &Path) -> Result<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut line = Vec::with_capacity(256);
    for number in 1.. {
        line.clear();
        match text.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            // The process ended during the read, so the list is incomplete.
            Err(source) => return Err(KernelError::read(path, source)),
        }
        let bytes = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some((label, value)) = labelled(bytes) {
            if let Some(mapping) = mappings.last_mut() {
                apply(mapping, label, value);
            }
        } else if let Some(mapping) = parse_map_line(bytes) {
            if let Some(previous) = mappings.last_mut() {
                finish(previous);
            }
            mappings.push(mapping);
        } else {
            return Err(KernelError::parse(path, number, "a mapping or `Label: value`", bytes));
        }
    }
    if let Some(last) = mappings.last_mut() {
        finish(last);
    }
    Ok(mappings)
}

/// Parses the first line of a mapping: `start-end perms offset dev inode name`.
pub fn parse_map_line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let trimmed = rest.trim_ascii_start();
        let end = trimmed.iter().position(u8::is_ascii_whitespace).unwrap_or(trimmed.len());
        let (field, after) = trimmed.split_at(end);
        rest = after;
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?.as_bytes();
    let offset = hex(field()?)?;
    let _device = field()?;
    let inode = field()?.parse().ok()?;
    let has = |i: usize, letter: u8| permissions.get(i) == Some(&letter);
    let name = rest.trim_ascii_start();
    Some(Mapping {
        range: AddrRange::new(VirtAddr::new(hex(start)?), VirtAddr::new(hex(end)?)),
        protection: Protection {
            read: has(0, b'r'),
            write: has(1, b'w'),
            execute: has(2, b'x'),
            shared: has(3, b's'),
        },
        kind: kind_of(name, has(3, b's')),
        offset: Bytes::new(offset),
        inode,
        name: printable(name),
        resident: Bytes::ZERO,
        proportional: Bytes::ZERO,
        shared: Bytes::ZERO,
        huge: Bytes::ZERO,
        swapped: Bytes::ZERO,
        locked: Bytes::ZERO,
        lazily_freed: Bytes::ZERO,
        merged: Bytes::ZERO,
        thp_eligible: false,
        flags: VmFlags::default(),
        unmapped: false,
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn kind_of(name: &[u8], shared: bool) -> MappingKind {
    const SHARED_MEMORY: [&[u8]; 4] = [b"/memfd:", b"/SYSV", b"/dev/shm/", b"/dev/zero"];
    match name {
        b"" if shared => MappingKind::SharedMemory,
        b"" | b"[heap]" => MappingKind::Anonymous,
        name if name.starts_with(b"[stack") => MappingKind::Stack,
        name if name.starts_with(b"[anon_shmem") => MappingKind::SharedMemory,
        name if name.starts_with(b"[anon") => MappingKind::Anonymous,
        name if SHARED_MEMORY.iter().any(|prefix| name.starts_with(prefix)) => {
            MappingKind::SharedMemory
        }
        name if name.starts_with(b"/") => MappingKind::File,
        _ => MappingKind::Special,
    }
}

/// Parses `Label: value`, as in smaps. The first line of a mapping has its first colon after a
/// blank, in the device number.
fn labelled(line: &[u8]) -> Option<(&str, &str)> {
    let colon = line.iter().position(|&b| b == b':')?;
    let label = std::str::from_utf8(&line[..colon]).ok()?;
    if label.is_empty() || !label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    Some((label, std::str::from_utf8(&line[colon + 1..]).ok()?.trim()))
}

fn apply(mapping: &mut Mapping, label: &str, value: &str) {
    if label == "VmFlags" {
        mapping.flags = VmFlags::parse(value);
        return;
    }
    let number = value.split(' ').next().and_then(|digits| digits.parse::<u64>().ok()).unwrap_or(0);
    let size = Bytes::kib(number);
    match label {
        "Rss" => mapping.resident = size,
        "Pss" => mapping.proportional = size,
        "Shared_Clean" | "Shared_Dirty" => mapping.shared += size,
        "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => mapping.huge += size,
        "Shared_Hugetlb" | "Private_Hugetlb" => {
            mapping.huge += size;
            // Rss does not include hugetlb pages.
            mapping.resident += size;
        }
        "Swap" => mapping.swapped = size,
        "Locked" => mapping.locked = size,
        "LazyFree" => mapping.lazily_freed = size,
        "KSM" => mapping.merged = size,
        "THPeligible" => mapping.thp_eligible = number != 0,
        _ => {}
    }
}

/// Sets the kind if only the flags show it, which come last.
fn finish(mapping: &mut Mapping) {
    if mapping.flags.has("ht") {
        mapping.kind = MappingKind::Hugetlb;
    } else if mapping.flags.has("pf") || mapping.flags.has("io") {
        mapping.kind = MappingKind::Special;
    } else if mapping.kind == MappingKind::Anonymous && mapping.flags.has("gd") {
        mapping.kind = MappingKind::Stack;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &[u8]) -> Result<Vec<Mapping>> {
        parse_smaps(text, Path::new("smaps"))
    }

    const TWO: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
Rss:                2052 kB
Pss:                2050 kB
Shared_Clean:          0 kB
Shared_Dirty:          4 kB
AnonHugePages:      2048 kB
LazyFree:             16 kB
KSM:                  12 kB
NewIn2030:             1 kB
Swap:                  8 kB
Locked:                0 kB
THPeligible:           1
ProtectionKey:         0
VmFlags: rd wr mr mw me ac hg 
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  12 kB
VmFlags: rd wr mr mw me gd ac 
";

    #[test]
    fn reads_what_the_kernel_prints() {
        let found = parse(TWO.as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        let heap = &found[0];
        assert_eq!(heap.range.len(), Bytes::mib(4));
        assert_eq!(heap.kind, MappingKind::Anonymous);
        assert_eq!((heap.resident, heap.huge), (Bytes::kib(2052), Bytes::mib(2)));
        assert_eq!((heap.shared, heap.swapped), (Bytes::kib(4), Bytes::kib(8)));
        assert_eq!((heap.lazily_freed, found[1].lazily_freed), (Bytes::kib(16), Bytes::ZERO));
        assert_eq!((heap.merged, found[1].merged), (Bytes::kib(12), Bytes::ZERO));
        assert!(heap.thp_eligible && heap.flags.has("hg") && !heap.flags.has("nh"));
        assert!(found[1].is_stack());
    }

    #[test]
    fn names_decide_the_kind() {
        let table: [(&str, MappingKind); 9] = [
            ("rw-p 00000000 00:00 0 [heap]", MappingKind::Anonymous),
            ("rw-p 00000000 00:00 0 [anon:arena 7]", MappingKind::Anonymous),
            ("rw-s 00000000 00:01 9 /dev/zero (deleted)", MappingKind::SharedMemory),
            (
                "rw-s 00000000 00:01 9 /memfd:x</script>\\012\u{1b}[31mred (deleted)",
                MappingKind::SharedMemory,
            ),
            ("rw-s 00000000 00:01 9 /SYSV00000000 (deleted)", MappingKind::SharedMemory),
            ("r-xp 00001000 fe:00 247026 /opt/my program/bin", MappingKind::File),
            ("r-xp 00000000 00:00 0 [vdso]", MappingKind::Special),
            ("--xp 00000000 00:00 0 [vsyscall]", MappingKind::Special),
            ("r-xp 00000000 fe:00 1 /lib/x.so (deleted)", MappingKind::File),
        ];
        for (line, kind) in table {
            let found = parse_map_line(format!("1000-2000 {line}").as_bytes()).unwrap();
            assert_eq!(found.kind, kind, "{line}");
            assert!(!found.name.contains('\u{1b}'));
        }
    }

    #[test]
    fn a_name_with_a_colon_is_not_a_label() {
        let text = b"1000-2000 r--p 00000000 fe:00 7 /a:b\nRss: 4 kB\n";
        let found = parse(text).unwrap();
        assert_eq!(
            (found.len(), found[0].name.as_str(), found[0].resident),
            (1, "/a:b", Bytes::kib(4))
        );
    }

    #[test]
    fn a_bad_line_is_quoted_with_its_number() {
        let error = parse(b"1000-2000 r--p 0 fe:00 7\nhello world\n").unwrap_err().to_string();
        assert_eq!(error, "smaps:2: expected a mapping or `Label: value`, found \"hello world\"");
        assert!(parse(b"").unwrap().is_empty(), "a kernel thread has an empty map");
    }

    #[test]
    fn the_maps_of_this_process_are_parsed() {
        let file = std::io::BufReader::new(std::fs::File::open("/proc/self/smaps").unwrap());
        let found = parse_smaps(file, Path::new("/proc/self/smaps")).unwrap();
        let here = VirtAddr::new(file_marker as fn() as usize as u64);
        assert!(found.iter().any(|m| m.range.contains(here) && m.kind == MappingKind::File));
        assert!(found.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
    }
    fn file_marker() {}

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail_but_never_panic(
            junk in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = parse(&junk);
        }

        #[test]
        fn a_cut_file_loses_only_its_end(cut in 0_usize..700) {
            let text = &TWO.as_bytes()[..cut.min(TWO.len())];
            if let Ok(found) = parse(text) {
                prop_assert!(found.len() <= 2);
            }
        }
    }
}
