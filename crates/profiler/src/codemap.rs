//! Code of one process: the bytes around an instruction pointer, and the recipe of a sample there.

use std::path::Path;
use std::rc::Rc;

use hashbrown::HashMap;
use hugepilot_code::{Boundary, ElfCode, NoAddress, Recipe, analyse, is_frameless};
use hugepilot_kernel::{Process, Root, Target};
use hugepilot_record::{Mapping, MappingKind, Pid};
use hugepilot_units::{AddrRange, Bytes, Nanos, VirtAddr};

/// Limit of stored recipes; above it, all are dropped.
const MAX_RECIPES: usize = 16_384;
/// Bytes of run-time code that are read before the instruction pointer.
const WINDOW_BEFORE: u64 = 1024;
const WINDOW_AFTER: u64 = 384;
/// Time after which run-time code is read again, because it may have been replaced.
const MAX_RECIPE_AGE: Nanos = Nanos::seconds(5);
/// Shortest time between two reads of the mappings.
const LAYOUT_INTERVAL: Nanos = Nanos::seconds(1);

/// Executable memory of a process.
struct CodeRange {
    range: AddrRange,
    offset: Bytes,
    inode: u64,
    name: Rc<str>,
    kind: MappingKind,
}

/// Recipes of one process, found once per instruction pointer.
pub(crate) struct CodeMap {
    process: Option<Process>,
    ranges: Vec<CodeRange>,
    files: HashMap<Rc<str>, Option<Rc<ElfCode>>>,
    recipes: HashMap<u64, Rc<Recipe>>,
    layout_read: Option<Nanos>,
    layout_stale: bool,
    recipes_made: Nanos,
    has_runtime_code: bool,
    bytes: Vec<u8>,
}

impl CodeMap {
    /// Creates the map of process `pid`. If it cannot be opened, no sample has an address.
    pub(crate) fn new(root: &Root, pid: Pid) -> Self {
        Self {
            process: Process::open(root, pid).ok(),
            ranges: Vec::new(),
            files: HashMap::new(),
            recipes: HashMap::new(),
            layout_read: None,
            layout_stale: true,
            recipes_made: Nanos::ZERO,
            has_runtime_code: false,
            bytes: Vec::new(),
        }
    }

    /// Marks the mappings as outdated: new executable memory appeared, or code was replaced.
    pub(crate) fn invalidate(&mut self) {
        self.layout_stale = true;
    }

    /// Returns the recipe of a sample at `ip`.
    pub(crate) fn recipe(&mut self, ip: VirtAddr, now: Nanos) -> Rc<Recipe> {
        let stale = self.has_runtime_code && now > self.recipes_made + MAX_RECIPE_AGE;
        if stale || self.recipes.len() >= MAX_RECIPES {
            self.recipes.clear();
            self.recipes_made = now;
            self.has_runtime_code = false;
        }
        if let Some(recipe) = self.recipes.get(&ip.get()) {
            return recipe.clone();
        }
        let recipe = Rc::new(self.analyse(ip, now));
        // The next read of the mappings may find code here.
        if self.position(ip).is_some() {
            self.recipes.insert(ip.get(), recipe.clone());
        }
        recipe
    }

    fn analyse(&mut self, ip: VirtAddr, now: Nanos) -> Recipe {
        let nothing = || analyse(&[], 0, Boundary::Unknown, ip.get());
        let Some(at) = self.find(ip, now) else { return nothing() };
        let (kind, name) = (self.ranges[at].kind, self.ranges[at].name.clone());
        if kind == MappingKind::File
            && let Some(recipe) = self.analyse_file(at, &name, ip)
        {
            return recipe;
        }
        self.has_runtime_code |= kind != MappingKind::File;
        let range = self.ranges[at].range;
        let window = range.intersect(AddrRange::new(
            VirtAddr::new(ip.get().saturating_sub(WINDOW_BEFORE)),
            ip.plus(Bytes::new(WINDOW_AFTER)),
        ));
        let mut bytes = std::mem::take(&mut self.bytes);
        let read = if &*name == "[vdso]" {
            read_vdso(window, range, &mut bytes)
        } else {
            self.read_memory(window, &mut bytes)
        };
        let recipe = read.map_or_else(nothing, |()| {
            analyse(&bytes, window.start.get(), Boundary::Unknown, ip.get())
        });
        self.bytes = bytes;
        recipe
    }

    /// Analyses code of a file: needs no permission to read the process's memory, and knows
    /// functions.
    fn analyse_file(&mut self, at: usize, name: &Rc<str>, ip: VirtAddr) -> Option<Recipe> {
        let CodeRange { range, offset, inode, .. } = self.ranges[at];
        let elf = self.file(name, inode)?;
        let file_offset = ip.since(range.start) + offset;
        let ip_in_file = elf.vaddr_of_file_offset(file_offset.get())?;
        let bias = ip.get().wrapping_sub(ip_in_file);
        if elf.function_at(ip_in_file).is_some_and(|function| function.start == ip_in_file) {
            return Some(Recipe::without_address(ip.get(), NoAddress::AfterTransfer));
        }
        // The IP follows the stalled instruction, which must be in the function.
        let (window, boundary) = match elf.function_at(ip_in_file.checked_sub(1)?) {
            Some(function) => (function, Boundary::Function),
            None => (
                ip_in_file.saturating_sub(WINDOW_BEFORE)..ip_in_file.saturating_add(WINDOW_AFTER),
                Boundary::Unknown,
            ),
        };
        let mut bytes = std::mem::take(&mut self.bytes);
        let recipe = elf.read(window, &mut bytes).ok().map(|read| {
            let start = read.start.wrapping_add(bias);
            let mut recipe = analyse(&bytes, start, boundary, ip.get());
            let is_start = |address: u64| {
                let address = address.wrapping_sub(bias);
                elf.function_at(address).is_some_and(|function| function.start == address)
            };
            recipe.frameless =
                boundary == Boundary::Function && is_frameless(&bytes, start, &is_start);
            recipe
        });
        self.bytes = bytes;
        recipe
    }

    fn file(&mut self, name: &Rc<str>, inode: u64) -> Option<Rc<ElfCode>> {
        if let Some(known) = self.files.get(name) {
            return known.clone();
        }
        let file = self.process.as_ref()?.mapped_file(name, inode);
        let elf =
            file.and_then(|file| ElfCode::read_from(file, Path::new(&**name)).ok()).map(Rc::new);
        self.files.insert(name.clone(), elf.clone());
        elf
    }

    fn read_memory(&self, window: AddrRange, bytes: &mut Vec<u8>) -> Option<()> {
        bytes.clear();
        bytes.resize(window.len().as_usize(), 0);
        let read = self.process.as_ref()?.read_memory(&[window], bytes).ok()?;
        bytes.truncate(read);
        Some(())
    }

    fn find(&mut self, ip: VirtAddr, now: Nanos) -> Option<usize> {
        let known = self.position(ip);
        if known.is_some() && !self.layout_stale {
            return known;
        }
        if self.layout_read.is_none_or(|read| now > read + LAYOUT_INTERVAL) {
            self.layout_read = Some(now);
            self.layout_stale = false;
            let layout =
                self.process.as_ref().and_then(|process| process.layout().ok()).unwrap_or_default();
            self.ranges =
                layout.into_iter().filter(|m| m.protection.execute).map(CodeRange::from).collect();
        }
        self.position(ip)
    }

    fn position(&self, ip: VirtAddr) -> Option<usize> {
        let at = self.ranges.partition_point(|code| code.range.end <= ip);
        self.ranges.get(at).filter(|code| code.range.contains(ip)).map(|_| at)
    }
}

impl From<Mapping> for CodeRange {
    fn from(mapping: Mapping) -> Self {
        Self {
            range: mapping.range,
            offset: mapping.offset,
            inode: mapping.inode,
            name: mapping.name.into(),
            kind: mapping.kind,
        }
    }
}

/// Reads the vdso. It is the kernel's, and the same in every 64-bit process, so that of this
/// process needs no permission.
fn read_vdso(window: AddrRange, target: AddrRange, bytes: &mut Vec<u8>) -> Option<()> {
    let own = Process::open(&Root::live(), Pid(std::process::id().cast_signed())).ok()?;
    let vdso = own.layout().ok()?.into_iter().find(|mapping| mapping.name == "[vdso]")?;
    bytes.clear();
    bytes.resize(window.len().as_usize(), 0);
    let at = AddrRange::at(vdso.range.start.plus(window.start.since(target.start)), window.len());
    (own.read_memory(&[at], bytes).ok()? == bytes.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_was_not_mapped_yet_is_analysed_once_it_is() {
        let mut code = CodeMap::new(&Root::live(), Pid(std::process::id().cast_signed()));
        let ip = VirtAddr::new(read_vdso as *const () as u64 + 16);
        let begin = Nanos::seconds(1);
        // The mappings were read before the code was mapped.
        (code.layout_read, code.layout_stale) = (Some(begin), false);
        for (millis, known) in [(900, 0), (1100, 1)] {
            code.recipe(ip, begin + Nanos::millis(millis));
            assert_eq!(code.recipes.len(), known, "after {millis} ms");
        }
    }
}
