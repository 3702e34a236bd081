//! Obstacles in the file of a program: a loader or a C library that ignores settings.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hugepilot_kernel::{file, find_program, privilege};
use hugepilot_reports::run::{Libc, ProgramKind};
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

use crate::effect::Obstacles;

/// Longest chain of scripts that run scripts.
const MAX_SCRIPTS: usize = 4;
/// Longest first line of a script that the kernel reads (`BINPRM_BUF_SIZE`).
const MAX_LINE: usize = 256;
const TUNABLE: &[u8] = b"glibc.malloc.hugetlb";
/// Text before the minor version in the loader of glibc.
const VERSION: &[u8] = b"stable release version 2.";
/// First minor version of glibc that reads the THP setting of the system correctly: "malloc: Assure
/// that THP mode is always null terminated", April 2023. Older ones compare the setting with
/// whatever is in their memory, so they advise in some runs only.
const FIXED_MINOR: u32 = 38;
/// Loaders are far smaller.
const MAX_LOADER: u64 = 64 << 20;

/// Names of libraries that define `malloc`.
const ALLOCATORS: [&str; 6] =
    ["jemalloc", "tcmalloc", "mimalloc", "snmalloc", "libhoard", "hugepilot_preload"];

/// Inspects the file of a program, or of the interpreter if it is a script. An unreadable file is
/// not an obstacle.
pub(super) fn obstacles(path: &Path) -> Obstacles {
    let path = interpreter_of_scripts(path.to_owned());
    let set_id = is_set_id(&path).then_some(ProgramKind::SetId);
    let mut obstacles = Obstacles { loader_bypassed: set_id, ..Obstacles::default() };
    match loader(&path) {
        Ok(loader) => _ = inspect_libc(&loader, &mut obstacles),
        Err(Some(kind)) => obstacles.loader_bypassed = Some(kind),
        Err(None) => {}
    }
    obstacles
}

/// Returns the file name of an allocator among `files`, except the `preloaded` one.
pub(super) fn allocator_in(files: &[String], preloaded: Option<&Path>) -> Option<String> {
    let preloaded = preloaded.and_then(Path::to_str);
    let others = files.iter().filter(|file| Some(file.as_str()) != preloaded);
    others.filter_map(|file| Path::new(file).file_name()?.to_str()).find_map(|name| {
        ALLOCATORS.iter().any(|allocator| name.contains(allocator)).then(|| name.to_owned())
    })
}

/// Follows `#!` lines to the program that runs a script. `env` stands for the program it starts.
fn interpreter_of_scripts(mut path: PathBuf) -> PathBuf {
    for _ in 0..MAX_SCRIPTS {
        let Some(next) = interpreter(&path) else { break };
        path = next;
    }
    path
}

fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    file::open(path).ok()?.take(MAX_LINE as u64).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let program = words.next()?;
    let started = words.find(|word| !word.starts_with('-'));
    match started.filter(|_| program.ends_with("/env")) {
        Some(name) => find_program(name.as_ref()).ok(),
        None => Some(program.into()),
    }
}

/// Whether the program runs as another user or group, so that its loader drops settings.
fn is_set_id(path: &Path) -> bool {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2010;
    let Ok(meta) = fs::metadata(path) else { return false };
    let (user, group) = privilege::own_ids();
    let other_user = meta.mode() & SETUID == SETUID && meta.uid() != user;
    let other_group = meta.mode() & SETGID == SETGID && meta.gid() != group;
    other_user || other_group
}

/// Returns the loader of a program; without one, the kind of the program if that is the cause.
fn loader(path: &Path) -> Result<PathBuf, Option<ProgramKind>> {
    let file = file::open(path).map_err(|_| None)?;
    let data = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&data).map_err(|_| other_kind(path))?;
    let endian = header.endian().map_err(|_| None)?;
    let headers = header.program_headers(endian, &data).map_err(|_| None)?;
    let interp = headers.iter().find(|header| header.p_type(endian) == PT_INTERP);
    let Some(interp) = interp else { return Err(Some(ProgramKind::Static)) };
    let name = interp.data(endian, &data).map_err(|()| None)?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    std::str::from_utf8(name).map(PathBuf::from).map_err(|_| None)
}

fn other_kind(path: &Path) -> Option<ProgramKind> {
    let mut start = [0; 5];
    file::open(path).ok()?.read_exact(&mut start).ok()?;
    (start == *b"\x7fELF\x01").then_some(ProgramKind::ThirtyTwoBit)
}

/// Detects a C library without the tunable, or with the THP defect. Its tunables and its version
/// are texts in the loader.
fn inspect_libc(loader: &Path, obstacles: &mut Obstacles) -> Option<()> {
    let file = file::open(loader).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_LOADER).read_to_end(&mut bytes).ok()?;
    let name = loader.file_name()?.to_string_lossy();
    if name.contains("musl") {
        obstacles.libc_lacks_tunable = Some(Libc::Musl);
    } else if after(&bytes, TUNABLE).is_none() {
        obstacles.libc_lacks_tunable = Some(Libc::OldGlibc);
    } else {
        let minor = after(&bytes, VERSION).and_then(minor);
        obstacles.libc_thp_bug = minor.is_some_and(|minor| minor < FIXED_MINOR);
    }
    Some(())
}

/// Returns the bytes after the first occurrence of `text`.
fn after<'a>(bytes: &'a [u8], text: &[u8]) -> Option<&'a [u8]> {
    let at = bytes.windows(text.len()).position(|window| window == text)?;
    bytes.get(at + text.len()..)
}

/// Parses the number that starts the text.
fn minor(text: &[u8]) -> Option<u32> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A 64-bit ELF file with one program header of that type, which names a text at the end.
    fn elf(kind: u32, text: &[u8]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        for word in [0_u64, 64, 0] {
            file.extend(word.to_le_bytes());
        }
        // Flags, size of this header, of a program header, their number; no sections.
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        file.extend(kind.to_le_bytes());
        file.extend(4_u32.to_le_bytes());
        let length = text.len() as u64;
        for word in [120, 0, 0, length, length, 1] {
            file.extend(word.to_le_bytes());
        }
        file.extend(text);
        file
    }

    struct Files(tempfile::TempDir);

    impl Files {
        fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }
        /// A program with a loader of these bytes.
        fn program(&self, loader: &str, bytes: &[u8]) -> PathBuf {
            let loader = self.put(loader, bytes);
            let name = [loader.to_str().unwrap().as_bytes(), b"\0"].concat();
            self.put("program", &elf(PT_INTERP, &name))
        }
    }

    #[test]
    fn static_programs_and_old_libraries_are_detected() {
        let files = Files(tempfile::tempdir().unwrap());
        let static_program = files.put("static", &elf(1, b""));
        assert_eq!(obstacles(&static_program).loader_bypassed, Some(ProgramKind::Static));
        let new = files.program("ld-linux.so.2", b"x\0glibc.malloc.hugetlb\0");
        assert_eq!(obstacles(&new), Obstacles::default());
        for (version, has_bug) in [("2.36.", true), ("2.38.", false), ("2.", false)] {
            let text = format!("glibc.malloc.hugetlb\0 stable release version {version}");
            let program = files.program("ld-linux.so.2", text.as_bytes());
            assert_eq!(obstacles(&program).libc_thp_bug, has_bug, "{version}");
        }
        let old = files.program("ld-linux.so.2", b"glibc.malloc.check");
        assert_eq!(obstacles(&old).libc_lacks_tunable, Some(Libc::OldGlibc));
        let musl = files.program("ld-musl-x86_64.so.1", b"");
        assert_eq!(obstacles(&musl).libc_lacks_tunable, Some(Libc::Musl));
        let narrow = files.put("narrow", b"\x7fELF\x01\x01");
        assert_eq!(obstacles(&narrow).loader_bypassed, Some(ProgramKind::ThirtyTwoBit));
        for bytes in [&b""[..], b"\x7fELF", b"hello", &elf(PT_INTERP, b"")[..100]] {
            let _ = obstacles(&files.put("damaged", bytes));
        }
    }

    #[test]
    fn a_script_has_the_obstacles_of_its_interpreter() {
        let files = Files(tempfile::tempdir().unwrap());
        let program = files.put("static", &elf(1, b""));
        let line = |words: &str| format!("#!{words}\necho\n").into_bytes();
        let script = files.put("script", &line(&format!(" {} -x", program.display())));
        assert_eq!(obstacles(&script).loader_bypassed, Some(ProgramKind::Static));
        let second = files.put("second", &line(script.to_str().unwrap()));
        assert_eq!(obstacles(&second).loader_bypassed, Some(ProgramKind::Static));
        let by_env = files.put("by-env", &line("/usr/bin/env -S sh -e"));
        assert_eq!(interpreter_of_scripts(by_env), find_program("sh".as_ref()).unwrap());
        let endless = files.put("endless", b"");
        fs::write(&endless, line(endless.to_str().unwrap())).unwrap();
        let _ = obstacles(&endless);
    }

    #[test]
    fn allocators_are_known_by_their_libraries() {
        let files = ["/usr/lib/libc.so.6", "/l/libmimalloc.so.2.0", "/x/libjemalloc.so.2"]
            .map(str::to_owned);
        assert_eq!(allocator_in(&files, None).unwrap(), "libmimalloc.so.2.0");
        assert_eq!(
            allocator_in(&files, Some(Path::new("/l/libmimalloc.so.2.0"))).unwrap(),
            "libjemalloc.so.2"
        );
        assert_eq!(allocator_in(&files[..1], None), None);
    }
}
