//! Where the functions of an ELF file begin and end, and their bytes.

use std::error::Error;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hugepilot_kernel::file;
use object::elf::{
    EM_X86_64, FileHeader64, PF_X, PT_LOAD, SHT_DYNSYM, SHT_NOBITS, SHT_NULL, SHT_SYMTAB, STT_FUNC,
    STT_GNU_IFUNC, SectionHeader64, Sym64,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{LittleEndian, ReadCache, ReadRef};

use super::functions::{FunctionTable, frame_spans};

/// Symbol and frame tables larger than this are no real ones.
const MAX_TABLE_BYTES: u64 = 1 << 30;
/// The most that [`ElfCode::read`] reads at once.
const MAX_READ_BYTES: u64 = 2 << 20;
/// Program or section headers that a file may have.
const MAX_HEADERS: usize = 1 << 20;
const EH_FRAME: &[u8] = b".eh_frame";

/// Why a file gives no code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// It could not be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no 64-bit x86-64 ELF file: {found}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: &'static str,
    },
    /// Its tables contradict themselves or the length of the file.
    #[error("{} is damaged", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Damage,
    },
    /// The address is not one of the file's.
    #[error("{} has no code at {address:#x}", path.display())]
    NotMapped {
        /// The file.
        path: PathBuf,
        /// The file's own virtual address.
        address: u64,
    },
}

type Damage = Box<dyn Error + Send + Sync>;

/// A stretch of the file that the loader maps.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    /// Bytes that come from the file; what lies beyond is zero.
    bytes: u64,
    executable: bool,
}

impl Segment {
    fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes)
    }
    fn offsets(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.bytes)
    }
}

/// The functions of one ELF file, by the file's own virtual addresses, which are those of its symbols.
///
/// Holds the file open and 12 bytes per function; the tables it was made from are let go.
#[derive(Debug)]
pub struct ElfCode {
    path: PathBuf,
    file: File,
    segments: Vec<Segment>,
    functions: FunctionTable,
}

impl ElfCode {
    /// Reads the tables of the file: functions come from `.symtab`, `.dynsym` and `.eh_frame`.
    ///
    /// # Errors
    /// When it cannot be read, is no 64-bit x86-64 ELF file, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CodeError> {
        let path = path.as_ref();
        let file =
            file::open(path).map_err(|source| CodeError::Read { path: path.to_owned(), source })?;
        Self::read_from(file, path)
    }

    /// Reads the tables of an open file, which errors call `path`.
    ///
    /// # Errors
    /// As [`ElfCode::open`].
    pub fn read_from(file: File, path: &Path) -> Result<Self, CodeError> {
        let path = path.to_owned();
        let cache = ReadCache::new(&file);
        if let Some(found) = foreign(&cache) {
            return Err(CodeError::Foreign { path, found });
        }
        match tables(&cache) {
            Ok((segments, functions)) => Ok(Self { path, file, segments, functions }),
            Err(source) => Err(CodeError::Malformed { path, source }),
        }
    }

    /// The function that contains the address, from its first instruction to its end. Of several, one in another,
    /// it is the outermost, because it may branch into the others. `None` when no table has it, and when it is too
    /// large to be one function.
    pub fn function_at(&self, address: u64) -> Option<Range<u64>> {
        self.functions.containing(address)
    }

    /// The functions, in the order of their addresses.
    pub fn functions(&self) -> impl Iterator<Item = Range<u64>> {
        self.functions.iter()
    }

    /// Where a byte of the file is in its address space; its executable mapping when there are several.
    pub fn vaddr_of_file_offset(&self, offset: u64) -> Option<u64> {
        let segment = self.segment(|segment| segment.offsets().contains(&offset))?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Reads the bytes at these addresses into `bytes`, as far as they lie in the mapping that has the first of
    /// them (or, when none has, in the one that the range runs into), at most 2 MiB. Returns what was read.
    ///
    /// # Errors
    /// When the file maps none of these addresses, or cannot be read.
    pub fn read(
        &self,
        addresses: Range<u64>,
        bytes: &mut Vec<u8>,
    ) -> Result<Range<u64>, CodeError> {
        bytes.clear();
        let wanted = |segment: &Segment| {
            let has = segment.addresses();
            addresses.start.max(has.start)..addresses.end.min(has.end)
        };
        let segment = self
            .segment(|segment| {
                segment.addresses().contains(&addresses.start) && !wanted(segment).is_empty()
            })
            .or_else(|| self.segment(|segment| !wanted(segment).is_empty()))
            .ok_or_else(|| CodeError::NotMapped {
                path: self.path.clone(),
                address: addresses.start,
            })?;
        let mut part = wanted(segment);
        part.end = part.end.min(part.start.saturating_add(MAX_READ_BYTES));
        bytes.resize(usize::try_from(part.end - part.start).unwrap_or(0), 0);
        let offset = segment.offset.saturating_add(part.start - segment.address);
        match self.file.read_exact_at(bytes, offset) {
            Ok(()) => Ok(part),
            Err(source) => {
                bytes.clear();
                Err(CodeError::Read { path: self.path.clone(), source })
            }
        }
    }

    /// The name of the function at an address, as the linker knows it. Reads the symbol tables again, which takes
    /// milliseconds for a large file.
    pub fn name_at(&self, address: u64) -> Option<String> {
        let cache = ReadCache::new(&self.file);
        let header = FileHeader64::<LittleEndian>::parse(&cache).ok()?;
        let sections = header.sections(LittleEndian, &cache).ok()?;
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let symbols = sections.symbols(LittleEndian, &cache, kind).ok()?;
            let at =
                |symbol: &&_| function_span(symbol).is_some_and(|span| span.contains(&address));
            if let Some(symbol) = symbols.iter().find(at) {
                let name = symbols.symbol_name(LittleEndian, symbol).ok()?;
                return Some(String::from_utf8_lossy(name).into_owned());
            }
        }
        None
    }

    fn segment(&self, suits: impl Fn(&Segment) -> bool) -> Option<&Segment> {
        let find = |executable| {
            self.segments.iter().find(|seg| seg.executable == executable && suits(seg))
        };
        find(true).or_else(|| find(false))
    }
}

type Sections<'d> = SectionTable<'d, FileHeader64<LittleEndian>, &'d ReadCache<&'d File>>;

/// What the file is, when it is not what we read.
fn foreign<'d>(data: impl ReadRef<'d>) -> Option<&'static str> {
    const CLASS_64: u8 = 2;
    const LITTLE: u8 = 1;
    let Ok(ident) = data.read_bytes_at(0, 20) else {
        return Some("too short");
    };
    let machine = u16::from_le_bytes([ident[18], ident[19]]);
    match ident {
        [0x7f, b'E', b'L', b'F', CLASS_64, LITTLE, ..] if machine == EM_X86_64 => None,
        [0x7f, b'E', b'L', b'F', CLASS_64, LITTLE, ..] => Some("for another processor"),
        [0x7f, b'E', b'L', b'F', CLASS_64, ..] => Some("big-endian"),
        [0x7f, b'E', b'L', b'F', ..] => Some("32-bit"),
        _ => Some("no ELF header"),
    }
}

fn tables<'d>(data: &'d ReadCache<&'d File>) -> Result<(Vec<Segment>, FunctionTable), Damage> {
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(data)?;
    // A sparse file can be of any length, so its length alone does not bound what its tables claim.
    if header.phnum(endian, data)?.max(header.shnum(endian, data)?) > MAX_HEADERS {
        return Err("more than a million headers".into());
    }
    let loads =
        header.program_headers(endian, data)?.iter().filter(|part| part.p_type(endian) == PT_LOAD);
    let segments: Vec<Segment> = loads
        .map(|part| Segment {
            address: part.p_vaddr(endian),
            offset: part.p_offset(endian),
            bytes: part.p_filesz(endian),
            executable: part.p_flags(endian) & PF_X != 0,
        })
        .collect();
    let sections = header.sections(endian, data)?;
    if oversized(&sections) {
        return Err("a table of more than 1 GiB".into());
    }
    let mut spans = symbol_spans(&sections, data)?;
    if let Some((_, section)) = sections.section_by_name(endian, EH_FRAME) {
        spans.extend(frame_spans(section.data(endian, data)?, section.sh_addr(endian)));
    }
    let code: Vec<_> =
        segments.iter().filter(|seg| seg.executable).map(Segment::addresses).collect();
    Ok((segments, FunctionTable::new(spans, &code)))
}

/// What the symbol tables call functions. A span without length is one whose end is not said.
fn symbol_spans<'d>(
    sections: &Sections<'d>,
    data: &'d ReadCache<&'d File>,
) -> object::Result<Vec<Range<u64>>> {
    let mut spans = Vec::new();
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        let symbols = sections.symbols(LittleEndian, data, kind)?;
        spans.extend(symbols.iter().filter_map(function_span));
    }
    Ok(spans)
}

fn function_span(symbol: &Sym64<LittleEndian>) -> Option<Range<u64>> {
    let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
    let start = symbol.st_value(LittleEndian);
    (is_function && !symbol.is_undefined(LittleEndian))
        .then(|| start..start.saturating_add(symbol.st_size(LittleEndian)))
}

/// Whether a section that would be read is too large to be a real one.
fn oversized(sections: &Sections<'_>) -> bool {
    let read = |kind| !matches!(kind, SHT_NULL | SHT_NOBITS);
    let size = |section: &SectionHeader64<LittleEndian>| section.sh_size(LittleEndian);
    let is_table = |section: &&SectionHeader64<LittleEndian>| {
        let kind = section.sh_type(LittleEndian);
        matches!(kind, SHT_SYMTAB | SHT_DYNSYM)
            || read(kind) && sections.section_name(LittleEndian, section) == Ok(EH_FRAME)
    };
    sections.iter().filter(is_table).any(|section| size(section) > MAX_TABLE_BYTES)
}
