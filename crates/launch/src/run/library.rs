//! Allocators to be preloaded: where they are, and what they want to be told.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hugepilot_kernel::{Unsupported, file};
use hugepilot_record::run::Mode;
use hugepilot_units::Bytes;
use object::elf::{ET_DYN, FileHeader64};
use object::read::elf::FileHeader;
use object::{Endianness, ReadCache};

/// The largest library that is looked into.
const MAX_LIBRARY: Bytes = Bytes::mib(256);
const OURS: &str = "libhugepilot_preload.so";
const MIMALLOC: &str = "libmimalloc.so";

/// The library that `mode` preloads: the one that is named, or else one that is found.
///
/// # Errors
/// Where there is none, with what brings it.
pub(super) fn find(mode: Mode, named: Option<&Path>) -> Result<PathBuf, Unsupported> {
    if let Some(path) = named {
        let found = fs::canonicalize(path).map_err(|error| {
            Unsupported::because(format!("no library {}: {error}", path.display()))
        })?;
        return match why_not_loaded(&found) {
            None => Ok(found),
            Some(why) => Err(Unsupported::because(format!("{} {why}", path.display()))
                .fixed_by("name the shared library itself, such as libmimalloc.so.2")),
        };
    }
    if mode.is_hugepilot() {
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| Some(fs::canonicalize(exe).ok()?.parent()?.to_owned()));
        let folders = beside
            .map(|beside| [beside.clone(), beside.join("../lib/hugepilot")])
            .into_iter()
            .flatten();
        return folders
            .filter_map(|folder| fs::canonicalize(folder.join(OURS)).ok())
            .next()
            .ok_or_else(|| {
                Unsupported::because(format!(
                    "no {OURS} beside this program or in ../lib/hugepilot"
                ))
                .fixed_by("cargo build --release -p hugepilot-preload, or name it with --library")
            });
    }
    // As it stands in the program's map of memory, where it is looked for later.
    newest_in(&folders()).and_then(|path| fs::canonicalize(path).ok()).ok_or_else(|| {
        Unsupported::because("no mimalloc is installed where libraries are looked for").fixed_by(
            "sudo apt install libmimalloc2.0 (libmimalloc3 on newer systems), or name it with --library",
        )
    })
}

/// Why the loader would not take that file: it only says so on standard error, and starts the program all the same.
fn why_not_loaded(path: &Path) -> Option<String> {
    if !path.is_file() {
        return Some("is no file".to_owned());
    }
    let kind = |path: &Path| {
        let file = file::open(path)?;
        let data = ReadCache::new(file);
        let header = FileHeader64::<Endianness>::parse(&data).map_err(std::io::Error::other)?;
        let endian = header.endian().map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>((header.e_type(endian), header.e_machine(endian)))
    };
    let ours = kind(Path::new("/proc/self/exe")).ok()?.1;
    match kind(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some(format!("cannot be read: {error}"))
        }
        Err(_) => Some("is no 64-bit ELF file".to_owned()),
        Ok((_, machine)) if machine != ours => Some("is for another processor".to_owned()),
        Ok((kind, _)) if kind != ET_DYN => Some("is an ELF file, but no shared library".to_owned()),
        Ok(_) => None,
    }
}

/// Where the loader looks, in its order.
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

/// The mimalloc with the highest version in the first folder that has one.
fn newest_in(folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().find_map(|folder| {
        let entries = fs::read_dir(folder).ok()?.flatten();
        let versions =
            entries.filter_map(|entry| Some((version(&entry.file_name())?, entry.path())));
        versions.filter(|(_, path)| path.is_file()).max().map(|(_, path)| path)
    })
}

/// `libmimalloc.so.2.0` is [2, 0]; without numbers it is whatever the link says, and comes last.
fn version(name: &OsStr) -> Option<Vec<u32>> {
    let rest = name.to_str()?.strip_prefix(MIMALLOC)?;
    let numbers: Option<Vec<u32>> =
        rest.split('.').skip(1).map(|number| number.parse().ok()).collect();
    (rest.is_empty() || rest.starts_with('.')).then_some(numbers)?
}

/// What mimalloc is told, by the options that it knows. Which those are is looked up in the library itself, where each name
/// ends with a NUL: `src/options.c` of v2.0.9, v2.1.2, v2.2.4, v3.1.5, v3.2.6 and v3.4.3.
///
/// | option | in | what |
/// |---|---|---|
/// | `large_os_pages` | up to 2.0 | memory on 2 MiB pages of a pool, or else advised for transparent ones |
/// | `allow_large_os_pages` | from 2.1 | the same under a new name; up to 3.1 THP is off for the process where it is not set |
/// | `eager_commit_delay` | up to 3.1 | how many pieces of a thread's memory come on base pages first: 1 by default |
/// | `reserve_huge_os_pages` | all | 1 GiB pages of a pool to take at the start |
pub(super) fn mimalloc(
    mode: Mode,
    library: &Path,
    free_gib: u64,
) -> Result<Vec<(&'static str, String)>, Unsupported> {
    let unreadable =
        |error| Unsupported::because(format!("cannot read {}: {error}", library.display()));
    let bytes = file::read(library, MAX_LIBRARY).map_err(unreadable)?;
    told(mode, &|option| knows(&bytes, option), free_gib).ok_or_else(|| {
        Unsupported::because(format!(
            "{} knows no option for such pages: is it mimalloc?",
            library.display()
        ))
    })
}

fn told(
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

/// Whether the library has the option's name as text.
fn knows(library: &[u8], option: &str) -> bool {
    let name = [option.as_bytes(), b"\0"].concat();
    library.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_told_in_its_own_words() {
        const V2_0: &[u8] = b"\0large_os_pages\0reserve_huge_os_pages\0eager_commit_delay\0";
        const V2_2: &[u8] = b"\0allow_large_os_pages\0reserve_huge_os_pages\0eager_commit_delay\0";
        const V3_2: &[u8] =
            b"allow_large_os_pages\0reserve_huge_os_pages\0deprecated_eager_commit_delay\0allow_thp\0";
        let words = |library: &[u8], mode| {
            let told = told(mode, &|option| knows(library, option), 3)?;
            Some(
                told.iter()
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
            assert_eq!(words(library, Mode::Mimalloc2m), Some(large));
            assert_eq!(words(library, Mode::Mimalloc1g), Some(huge));
            assert_eq!(words(library, Mode::Mimalloc), Some(String::new()));
        }
        assert_eq!(words(b"large_os_pages_x\0", Mode::Mimalloc2m), None);
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
    fn what_the_loader_would_not_take_is_refused_before_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let own = fs::read("/proc/self/exe").unwrap();
        // The head of our own file: type at 16, machine at 18.
        let file = |kind: u8, machine: u8| {
            let mut head = own[..64].to_vec();
            (head[16], head[18]) = (kind, machine);
            head
        };
        let table = [
            (b"root:x:0:0\n".to_vec(), Some("no 64-bit ELF")),
            (own[..20].to_vec(), Some("no 64-bit ELF")),
            (file(2, own[18]), Some("no shared library")),
            (file(3, own[18] ^ 1), Some("another processor")),
            (file(3, own[18]), None),
        ];
        for (bytes, says) in table {
            let path = folder.path().join("library");
            fs::write(&path, &bytes).unwrap();
            match (find(Mode::Mimalloc, Some(&path)), says) {
                (Ok(_), None) => {}
                (Err(refusal), Some(says)) => {
                    let has_help = !refusal.help().is_empty();
                    assert!(refusal.to_string().contains(says) && has_help, "{refusal}");
                }
                (other, says) => panic!("{other:?} and {says:?}"),
            }
        }
        assert!(
            find(Mode::Hugepilot, Some(folder.path()))
                .unwrap_err()
                .to_string()
                .contains("is no file")
        );
    }

    #[test]
    fn a_library_that_is_not_there_is_refused_with_a_fix() {
        let named = find(Mode::Mimalloc, Some(Path::new("/no/such.so"))).unwrap_err();
        assert!(named.to_string().contains("/no/such.so"), "{named}");
        let ours = find(Mode::Hugepilot, None);
        assert!(ours.is_ok() || ours.unwrap_err().help()[0].contains("hugepilot-preload"));
    }
}
