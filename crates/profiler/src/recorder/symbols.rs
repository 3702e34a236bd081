//! Names of code in an ELF file: the function of an address, and its source line.
//!
//! Opening reads the program headers only. Symbols and debug information are read at the first
//! name, and need nothing of the process, so names are found after it ended, too. If the file has
//! no debug information, that of a file beside it is read ([`debug_files`]).

mod debug_files;

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gimli::{Dwarf, EndianRcSlice, LittleEndian};
use hugepilot_kernel::OwnMemory;
use hugepilot_kernel::proc::printable;
use object::LittleEndian as ObjectEndian;
use object::elf::{FileHeader64, PF_X, PT_LOAD, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader, Sym, SymbolTable};
use object::{Object, ObjectSection, ReadCache};

/// Size limit of the debug information of a file. Larger files have functions without lines.
const MAX_DEBUG_BYTES: u64 = 512 << 20;
/// Memory for each byte of symbols or debug information, in tables and copies.
const MEMORY_PER_BYTE: u64 = 4;
/// Size limit of names that are read as one block.
const MAX_NAME_BLOCK: u64 = 64 << 20;
/// Limit of functions of a file.
const MAX_FUNCTIONS: usize = 1 << 22;
/// Longest name that is shown.
const MAX_NAME: usize = 512;

type Slice = EndianRcSlice<LittleEndian>;
type Lines = addr2line::Context<Slice>;

/// An ELF file whose code has names.
pub(crate) struct ObjectNames {
    file: File,
    /// Its path.
    path: PathBuf,
    /// Folder of debug information.
    debug_folder: PathBuf,
    /// Executable parts: offset in the file, length, address.
    segments: Vec<(u64, u64, u64)>,
    tables: OnceCell<Tables>,
}

impl std::fmt::Debug for ObjectNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectNames").field("file", &self.file).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Tables {
    /// Functions by start address: start, length (0 if unknown), name.
    functions: Vec<(u64, u64, String)>,
    lines: Option<Lines>,
}

impl ObjectNames {
    /// Reads the program headers of the file at `path`; `None` if it is not a 64-bit little-endian
    /// ELF file.
    pub(crate) fn open(file: File, path: &Path) -> Option<Self> {
        let segments = {
            let data = ReadCache::new(&file);
            let header = FileHeader64::<ObjectEndian>::parse(&data).ok()?;
            let endian = header.endian().ok()?;
            let headers = header.program_headers(endian, &data).ok()?.iter();
            let code = headers
                .filter(|part| part.p_type(endian) == PT_LOAD && part.p_flags(endian) & PF_X != 0);
            code.map(|part| (part.p_offset(endian), part.p_filesz(endian), part.p_vaddr(endian)))
                .collect()
        };
        let (path, debug_folder) = (path.to_owned(), debug_files::FOLDER.into());
        Some(Self { file, path, debug_folder, segments, tables: OnceCell::new() })
    }

    /// Returns the address that the file gives to the code at an offset.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = |&&(start, length, _): &&(u64, u64, u64)| {
            (start..start.saturating_add(length)).contains(&offset)
        };
        let &(start, _, address) = self.segments.iter().find(inside)?;
        address.checked_add(offset - start)
    }

    /// Returns the function of an address, demangled, without control characters.
    pub(crate) fn function(&self, address: u64) -> Option<String> {
        let functions = &self.tables().functions;
        let after = functions.partition_point(|&(start, ..)| start <= address);
        let (start, length, name) = functions.get(after.checked_sub(1)?)?;
        let is_inside = *length == 0 || address - start < *length;
        is_inside.then(|| shown(&demangled(name)))
    }

    /// Returns the source file and line of an address: in its function, not in one that the
    /// compiler inlined there.
    pub(crate) fn source(&self, address: u64) -> Option<(String, u32)> {
        let lines = self.tables().lines.as_ref()?;
        let mut frames = lines.find_frames(address).skip_all_loads().ok()?;
        let mut found = None;
        while let Ok(Some(frame)) = frames.next() {
            found = frame.location;
        }
        let found = found?;
        Some((shown(found.file?), found.line?))
    }

    fn tables(&self) -> &Tables {
        self.tables.get_or_init(|| self.read_tables().unwrap_or_default())
    }

    fn read_tables(&self) -> Option<Tables> {
        let data = ReadCache::new(&self.file);
        let elf = Elf::parse(&data).ok()?;
        let (mut functions, mut lines) = (functions(&elf), debug_lines(&elf));
        if lines.is_none()
            && let Some(file) = debug_files::find(&elf, &self.path, &self.debug_folder)
        {
            let data = ReadCache::new(&file);
            if let Ok(elf) = Elf::parse(&data) {
                // It also has the symbols that were stripped.
                functions.extend(self::functions(&elf));
                lines = debug_lines(&elf);
            }
        }
        // Of several names for an address, the longest span, then the first in the alphabet.
        functions.sort_unstable_by(|a, b| (a.0, b.1, &a.2).cmp(&(b.0, a.1, &b.2)));
        functions.dedup_by_key(|function| function.0);
        Some(Tables { functions, lines })
    }
}

type Elf<'a> = ElfFile64<'a, ObjectEndian, &'a ReadCache<&'a File>>;

/// Uncompressed size of the sections whose names begin with `prefix`.
fn size_of(elf: &Elf<'_>, prefix: &[u8]) -> u64 {
    let named = elf
        .sections()
        .filter(|section| section.name_bytes().is_ok_and(|name| name.starts_with(prefix)));
    let sizes = named.filter_map(|section| section.compressed_file_range().ok());
    sizes.map(|range| range.uncompressed_size).fold(0, u64::saturating_add)
}

/// Reads the functions of both symbol tables; none if their names would take too much memory.
fn functions(elf: &Elf<'_>) -> Vec<(u64, u64, String)> {
    let prefixes: [&[u8]; 3] = [b".symtab", b".strtab", b".dyn"];
    let bytes =
        prefixes.map(|prefix| size_of(elf, prefix)).into_iter().fold(0, u64::saturating_add);
    if !OwnMemory::fits(bytes, MEMORY_PER_BYTE) {
        return Vec::new();
    }
    let tables = [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()];
    let functions = tables.into_iter().flat_map(|table| functions_of(elf, table, MAX_NAME_BLOCK));
    functions.take(MAX_FUNCTIONS).collect()
}

/// Reads the functions of a symbol table. Up to `max_block` bytes of names are read as one block:
/// each name alone takes two system calls, and a large program has ten thousands.
fn functions_of<'a>(
    elf: &Elf<'a>,
    table: &SymbolTable<'a, FileHeader64<ObjectEndian>, &'a ReadCache<&'a File>>,
    max_block: u64,
) -> impl Iterator<Item = (u64, u64, String)> {
    let (endian, strings) = (elf.endian(), table.strings());
    let section = elf.elf_section_table().section(table.string_section()).ok();
    let block = section
        .filter(|section| section.sh_size(endian) <= max_block)
        .and_then(|section| section.data(endian, elf.data()).ok());
    let is_function = |kind: u8| matches!(kind, STT_FUNC | STT_GNU_IFUNC);
    let defined = table.iter().filter(move |symbol| symbol.is_definition(endian));
    defined.filter(move |symbol| is_function(symbol.st_type())).filter_map(move |symbol| {
        let name = match block {
            Some(block) => {
                block.get(symbol.st_name(endian) as usize..)?.split(|&byte| byte == 0).next()?
            }
            None => symbol.name(endian, strings).ok()?,
        };
        let name = String::from_utf8_lossy(name).into_owned();
        Some((symbol.st_value(endian), symbol.st_size(endian), name))
    })
}

/// Reads the debug information; `None` without any, or with too much.
fn debug_lines(elf: &Elf<'_>) -> Option<Lines> {
    let bytes = size_of(elf, b".debug_");
    // Rust's programs have a section for debuggers without any.
    if elf.section_by_name(".debug_info").is_none()
        || bytes > MAX_DEBUG_BYTES
        || !OwnMemory::fits(bytes, MEMORY_PER_BYTE)
    {
        return None;
    }
    let load = |id: gimli::SectionId| -> Result<Slice, gimli::Error> {
        let section = elf.section_by_name(id.name());
        let data = section.and_then(|section| section.uncompressed_data().ok()).unwrap_or_default();
        Ok(Slice::new(Rc::from(&*data), LittleEndian))
    };
    addr2line::Context::from_dwarf(Dwarf::load(load).ok()?).ok()
}

/// Returns the name that the source code has for a symbol.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let mut text = String::new();
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(plain) = symbol.demangle(&cpp_demangle::DemangleOptions::default())
        && write!(text, "{plain}").is_ok()
    {
        return text;
    }
    name.to_owned()
}

/// Returns a name without control characters, shortened.
fn shown(name: &str) -> String {
    let text = printable(name.as_bytes());
    match text.char_indices().nth(MAX_NAME) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function at a known line of this file.
    #[inline(never)]
    fn marked() -> u32 {
        std::hint::black_box(line!())
    }

    fn own() -> ObjectNames {
        let path = Path::new("/proc/self/exe");
        ObjectNames::open(File::open(path).unwrap(), path).unwrap()
    }

    /// Address of [`marked`] in the file of this program.
    fn address_of_marked(own: &ObjectNames) -> u64 {
        let pid = hugepilot_record::Pid(std::process::id().cast_signed());
        let process =
            hugepilot_kernel::Process::open(&hugepilot_kernel::Root::live(), pid).unwrap();
        let at = marked as fn() -> u32 as usize as u64;
        let layout = process.layout().unwrap();
        let at = hugepilot_units::VirtAddr::new(at);
        let code = layout.iter().find(|mapping| mapping.range.contains(at)).unwrap();
        own.address_of(at.since(code.range.start).get() + code.offset.get()).unwrap()
    }

    /// Whether this program was built with lines. The continuous integration builds without.
    fn has_lines() -> bool {
        option_env!("CARGO_PROFILE_DEV_DEBUG") != Some("0")
    }

    #[test]
    fn an_address_of_this_program_has_its_function_and_line() {
        let own = own();
        let address = address_of_marked(&own);
        let function = own.function(address).unwrap();
        assert!(function.ends_with("symbols::tests::marked"), "{function}");
        let source = own.source(address);
        // Without debug information, the test program has functions only.
        assert_eq!(source.is_some(), has_lines());
        if let Some((file, line)) = source {
            assert!(file.ends_with("symbols.rs"), "{file}");
            assert!(line.abs_diff(marked()) <= 1, "{line}");
        }
        assert_eq!(own.function(0), None);
        assert_eq!(own.address_of(u64::MAX), None);
    }

    #[test]
    fn names_above_the_limit_of_a_block_are_read_one_by_one() {
        let own = own();
        let functions = |max_block| {
            let data = ReadCache::new(&own.file);
            let elf = Elf::parse(&data).unwrap();
            functions_of(&elf, elf.elf_symbol_table(), max_block).collect::<Vec<_>>()
        };
        let (block, one_by_one) = (functions(MAX_NAME_BLOCK), functions(1 << 10));
        assert!(block.len() > 1000 && block == one_by_one);
    }

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(demangled("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangled("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangled("main"), "main");
        assert_eq!(demangled("_Zx"), "_Zx");
        assert_eq!(shown("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(600)).chars().count(), MAX_NAME + 1);
    }

    #[test]
    fn other_files_have_no_names() {
        let file = tempfile::tempfile().unwrap();
        assert!(ObjectNames::open(file, Path::new("none")).is_none());
    }
}
