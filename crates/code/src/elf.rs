//! Functions of an ELF file, and their bytes.

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

/// Size limit of symbol and frame tables; larger ones are invalid.
const MAX_TABLE_BYTES: u64 = 1 << 30;
/// Size limit of [`ElfCode::read`].
const MAX_READ_BYTES: u64 = 2 << 20;
/// Limit of program or section headers.
const MAX_HEADERS: usize = 1 << 20;
const EH_FRAME: &[u8] = b".eh_frame";

/// Reason why a file gives no code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The file cannot be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file has another format.
    #[error("{} is not a 64-bit x86-64 ELF file: {found}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The actual format.
        found: &'static str,
    },
    /// Its tables contradict each other or the length of the file.
    #[error("{} is damaged", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        source: Damage,
    },
    /// The file does not map the address.
    #[error("{} has no code at {address:#x}", path.display())]
    NotMapped {
        /// The file.
        path: PathBuf,
        /// The virtual address in the file.
        address: u64,
    },
}

type Damage = Box<dyn Error + Send + Sync>;

/// A part of the file that the loader maps.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    /// Bytes from the file; the memory after them is zero.
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

/// Functions of one ELF file, by the virtual addresses of its symbols.
///
/// Keeps the file open and 12 bytes per function; its tables are freed.
#[derive(Debug)]
pub struct ElfCode {
    path: PathBuf,
    file: File,
    segments: Vec<Segment>,
    functions: FunctionTable,
}

impl ElfCode {
    /// Reads the tables of the file. Functions come from `.symtab`, `.dynsym` and `.eh_frame`.
    ///
    /// # Errors
    /// If the file cannot be read, is not a 64-bit x86-64 ELF file, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CodeError> {
        let path = path.as_ref();
        let file =
            file::open(path).map_err(|source| CodeError::Read { path: path.to_owned(), source })?;
        Self::read_from(file, path)
    }

    /// Reads the tables of an open file; `path` is its name in errors.
    ///
    /// # Errors
    /// Those of [`ElfCode::open`].
    pub fn read_from(file: File, path: &Path) -> Result<Self, CodeError> {
        let path = path.to_owned();
        let cache = ReadCache::new(&file);
        if let Some(found) = other_format(&cache) {
            return Err(CodeError::Foreign { path, found });
        }
        match tables(&cache) {
            Ok((segments, functions)) => Ok(Self { path, file, segments, functions }),
            Err(source) => Err(CodeError::Malformed { path, source }),
        }
    }

    /// Returns the range of the function that contains the address. If functions are nested, it is
    /// the outermost, which may branch into the others. `None` if no table has it, or if it is too
    /// large for a function.
    pub fn function_at(&self, address: u64) -> Option<Range<u64>> {
        self.functions.containing(address)
    }

    /// Returns the functions, by ascending address.
    pub fn functions(&self) -> impl Iterator<Item = Range<u64>> {
        self.functions.iter()
    }

    /// Returns the virtual address of a byte of the file; the executable one if it is mapped
    /// several times.
    pub fn vaddr_of_file_offset(&self, offset: u64) -> Option<u64> {
        let segment = self.segment(|segment| segment.offsets().contains(&offset))?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Reads the bytes at these addresses into `bytes`, at most 2 MiB, as far as they are in the
    /// mapping of the first one (or, if that is unmapped, in the first mapping of the range).
    /// Returns the range that was read.
    ///
    /// # Errors
    /// If the file maps none of these addresses, or cannot be read.
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

    /// Returns the linker's name of the function at an address. Reads the symbol tables again,
    /// which takes milliseconds for a large file.
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

/// Returns the format of a file that is not 64-bit x86-64 ELF.
fn other_format<'d>(data: impl ReadRef<'d>) -> Option<&'static str> {
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
    // The length of a sparse file does not bound what its tables claim.
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

/// Returns the functions of the symbol tables. A symbol without size has an empty range.
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

/// Whether a section is too large to be valid.
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
