//! Libraries to preload: their search, and the options of mimalloc.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hugepilot_kernel::{Unsupported, file};
use hugepilot_record::{Mode, ModeUnsupported};
use hugepilot_units::Bytes;
use object::elf::{ET_DYN, FileHeader64};
use object::read::elf::FileHeader;
use object::{Endianness, ReadCache};

/// Largest library that is read.
const MAX_LIBRARY: Bytes = Bytes::mib(256);
const HUGEPILOT: &str = "libhugepilot_preload.so";
const MIMALLOC: &str = "libmimalloc.so";

/// Returns the library that `mode` preloads: the `named` one, or else the installed one.
///
/// # Errors
/// If there is none, or the loader cannot load it.
pub(super) fn find(mode: Mode, named: Option<&Path>) -> Result<PathBuf, Unsupported> {
    if let Some(path) = named {
        let name = path.display().to_string();
        let library = fs::canonicalize(path).map_err(|error| ModeUnsupported::LibraryMissing {
            path: name.clone(),
            error: error.to_string(),
        })?;
        return match load_error(&library) {
            None => Ok(library),
            Some(error) => Err(ModeUnsupported::LibraryNotLoadable { path: name, error }.into()),
        };
    }
    if mode.is_hugepilot() {
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| Some(fs::canonicalize(exe).ok()?.parent()?.to_owned()));
        return beside.and_then(|beside| installed(&beside)).ok_or_else(|| {
            ModeUnsupported::LibraryNotInstalled { name: HUGEPILOT.to_owned() }.into()
        });
    }
    // The path under which the maps of the program list it.
    newest_in(&folders())
        .and_then(|path| fs::canonicalize(path).ok())
        .ok_or_else(|| ModeUnsupported::NoMimalloc.into())
}

/// Returns hugepilot's library, if it is installed with the executable in the folder `beside`.
fn installed(beside: &Path) -> Option<PathBuf> {
    let folders = ["", "../lib", "../lib/hugepilot"].map(|folder| beside.join(folder));
    folders.iter().find_map(|folder| fs::canonicalize(folder.join(HUGEPILOT)).ok())
}

/// Returns why the loader would not load that file. The loader itself only prints an error, and
/// starts the program without it.
fn load_error(path: &Path) -> Option<String> {
    if !path.is_file() {
        return Some("is not a file".to_owned());
    }
    let kind = |path: &Path| {
        let file = file::open(path)?;
        let data = ReadCache::new(file);
        let header = FileHeader64::<Endianness>::parse(&data).map_err(std::io::Error::other)?;
        let endian = header.endian().map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>((header.e_type(endian), header.e_machine(endian)))
    };
    let own_machine = kind(Path::new("/proc/self/exe")).ok()?.1;
    match kind(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some(format!("cannot be read: {error}"))
        }
        Err(_) => Some("is not a 64-bit ELF file".to_owned()),
        Ok((_, machine)) if machine != own_machine => Some("is for another processor".to_owned()),
        Ok((kind, _)) if kind != ET_DYN => {
            Some("is an ELF file, but not a shared library".to_owned())
        }
        Ok(_) => None,
    }
}

/// Directories that the loader searches, in its order.
fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|path| path.is_absolute()).collect::<Vec<_>>();
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let usual = ["/usr/local/lib", "/usr/lib", "/lib"].map(PathBuf::from);
    let of_triple = usual.clone().map(|folder| folder.join(&triple));
    [
        named,
        of_triple.to_vec(),
        vec!["/usr/local/lib64".into(), "/usr/lib64".into()],
        usual.to_vec(),
    ]
    .concat()
}

/// Returns the mimalloc with the highest version in the first directory that has one.
fn newest_in(folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().find_map(|folder| {
        let entries = fs::read_dir(folder).ok()?.flatten();
        let versions =
            entries.filter_map(|entry| Some((version(&entry.file_name())?, entry.path())));
        versions.filter(|(_, path)| path.is_file()).max().map(|(_, path)| path)
    })
}

/// Parses the version: `libmimalloc.so.2.0` is [2, 0]. A link without numbers sorts last.
fn version(name: &OsStr) -> Option<Vec<u32>> {
    let rest = name.to_str()?.strip_prefix(MIMALLOC)?;
    let numbers: Option<Vec<u32>> =
        rest.split('.').skip(1).map(|number| number.parse().ok()).collect();
    (rest.is_empty() || rest.starts_with('.')).then_some(numbers)?
}

/// Returns variables that set `mode` in this version of mimalloc. The names of its options are
/// texts in the library, each with a NUL at its end: `src/options.c` of v2.0.9, v2.1.2, v2.2.4,
/// v3.1.5, v3.2.6 and v3.4.3.
///
/// | option | in | meaning |
/// |---|---|---|
/// | `large_os_pages` | up to 2.0 | 2 MiB pages: hugetlb, otherwise advised transparent ones |
/// | `allow_large_os_pages` | from 2.1 | the new name; up to 3.1, no THP without it |
/// | `eager_commit_delay` | up to 3.1 | first segments of a thread on base pages; default 1 |
/// | `reserve_huge_os_pages` | all | 1 GiB hugetlb pages to reserve at the start |
pub(super) fn mimalloc_options(
    mode: Mode,
    library: &Path,
    free_gib: u64,
) -> Result<Vec<(&'static str, String)>, Unsupported> {
    let path = || library.display().to_string();
    let unreadable = |error: std::io::Error| ModeUnsupported::LibraryUnreadable {
        path: path(),
        error: error.to_string(),
    };
    let bytes = file::read(library, MAX_LIBRARY).map_err(unreadable)?;
    options(mode, &|option| knows(&bytes, option), free_gib)
        .ok_or_else(|| ModeUnsupported::NoMimallocOption { path: path() }.into())
}

fn options(
    mode: Mode,
    knows: &dyn Fn(&str) -> bool,
    free_gib: u64,
) -> Option<Vec<(&'static str, String)>> {
    if mode == Mode::Mimalloc {
        return Some(Vec::new());
    }
    let mut options = match mode {
        Mode::Mimalloc1g if knows("reserve_huge_os_pages") => {
            vec![("MIMALLOC_RESERVE_HUGE_OS_PAGES", free_gib.max(1).to_string())]
        }
        Mode::Mimalloc2m if knows("allow_large_os_pages") => {
            vec![("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1".to_owned())]
        }
        Mode::Mimalloc2m if knows("large_os_pages") => {
            vec![("MIMALLOC_LARGE_OS_PAGES", "1".to_owned())]
        }
        _ => return None,
    };
    if knows("eager_commit_delay") && !knows("deprecated_eager_commit_delay") {
        options.push(("MIMALLOC_EAGER_COMMIT_DELAY", "0".to_owned()));
    }
    Some(options)
}

/// Whether the library contains the name of the option.
fn knows(library: &[u8], option: &str) -> bool {
    let name = [option.as_bytes(), b"\0"].concat();
    library.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_options() {
        const V2_0: &[u8] = b"\0large_os_pages\0reserve_huge_os_pages\0eager_commit_delay\0";
        const V2_2: &[u8] = b"\0allow_large_os_pages\0reserve_huge_os_pages\0eager_commit_delay\0";
        const V3_2: &[u8] = b"allow_large_os_pages\0reserve_huge_os_pages\0\
                              deprecated_eager_commit_delay\0allow_thp\0";
        let variables = |library: &[u8], mode| {
            let options = options(mode, &|option| knows(library, option), 3)?;
            Some(
                options
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        let delay = "MIMALLOC_EAGER_COMMIT_DELAY=0";
        let table = [
            (
                V2_0,
                format!("MIMALLOC_LARGE_OS_PAGES=1 {delay}"),
                format!("MIMALLOC_RESERVE_HUGE_OS_PAGES=3 {delay}"),
            ),
            (
                V2_2,
                format!("MIMALLOC_ALLOW_LARGE_OS_PAGES=1 {delay}"),
                format!("MIMALLOC_RESERVE_HUGE_OS_PAGES=3 {delay}"),
            ),
            (
                V3_2,
                "MIMALLOC_ALLOW_LARGE_OS_PAGES=1".to_owned(),
                "MIMALLOC_RESERVE_HUGE_OS_PAGES=3".to_owned(),
            ),
        ];
        for (library, large, huge) in table {
            assert_eq!(variables(library, Mode::Mimalloc2m), Some(large));
            assert_eq!(variables(library, Mode::Mimalloc1g), Some(huge));
            assert_eq!(variables(library, Mode::Mimalloc), Some(String::new()));
        }
        assert_eq!(variables(b"large_os_pages_x\0", Mode::Mimalloc2m), None);
    }

    #[test]
    fn the_newest_mimalloc_is_found_and_its_variants_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "libmimalloc.so.2.0",
            "libmimalloc.so.2",
            "libmimalloc.so.10.1",
            "libmimalloc-secure.so.11",
            "libmimalloc.so.x",
        ];
        names.iter().for_each(|name| fs::write(folder.path().join(name), b"").unwrap());
        let folders = [folder.path().join("none"), folder.path().to_owned()];
        assert_eq!(newest_in(&folders).unwrap().file_name().unwrap(), "libmimalloc.so.10.1");
        assert_eq!(newest_in(&folders[..1]), None);
    }

    #[test]
    fn a_file_that_the_loader_cannot_load_is_an_error_before_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let own = fs::read("/proc/self/exe").unwrap();
        // The head of the test executable: type at 16, machine at 18.
        let file = |kind: u8, machine: u8| {
            let mut head = own[..64].to_vec();
            (head[16], head[18]) = (kind, machine);
            head
        };
        let table = [
            (b"root:x:0:0\n".to_vec(), Some("not a 64-bit ELF")),
            (own[..20].to_vec(), Some("not a 64-bit ELF")),
            (file(2, own[18]), Some("not a shared library")),
            (file(3, own[18] ^ 1), Some("another processor")),
            (file(3, own[18]), None),
        ];
        for (bytes, says) in table {
            let path = folder.path().join("library");
            fs::write(&path, &bytes).unwrap();
            match (find(Mode::Mimalloc, Some(&path)), says) {
                (Ok(_), None) => {}
                (Err(error), Some(says)) => {
                    let has_help = !error.help().is_empty();
                    assert!(error.to_string().contains(says) && has_help, "{error}");
                }
                (other, says) => panic!("{other:?} and {says:?}"),
            }
        }
        let directory = find(Mode::Hugepilot, Some(folder.path())).unwrap_err();
        assert!(directory.to_string().contains("is not a file"), "{directory}");
    }

    #[test]
    fn a_missing_library_is_an_error_with_help() {
        let named = find(Mode::Mimalloc, Some(Path::new("/no/such.so"))).unwrap_err();
        assert!(named.to_string().contains("/no/such.so"), "{named}");
        let own = find(Mode::Hugepilot, None);
        assert!(own.is_ok() || own.unwrap_err().help()[0].contains("cargo xtask install"));
    }

    #[test]
    fn the_library_of_an_installation_is_found() {
        for folder in ["bin", "lib", "lib/hugepilot"] {
            let prefix = tempfile::tempdir().unwrap();
            let bin = prefix.path().join("bin");
            fs::create_dir_all(&bin).unwrap();
            assert_eq!(installed(&bin), None);
            let library = prefix.path().join(folder).join(HUGEPILOT);
            fs::create_dir_all(library.parent().unwrap()).unwrap();
            fs::write(&library, b"").unwrap();
            assert_eq!(installed(&bin), Some(fs::canonicalize(library).unwrap()), "{folder}");
        }
    }
}
