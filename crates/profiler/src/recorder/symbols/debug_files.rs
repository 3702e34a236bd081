//! Debug information in a file of its own, as distributions ship it.
//!
//! GDB's manual, "Debugging Information in Separate Files", has the places. Files are those of the
//! host. They need not be those of the program: another version, or one of a container, may have
//! the same path. So a file must have the program's build ID, or, if the program has none, the
//! checksum that it names.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use hugepilot_kernel::file;
use object::{Object, ReadCache};

use super::{Elf, MAX_DEBUG_BYTES};

/// Folder of debug information.
pub(super) const FOLDER: &str = "/usr/lib/debug";

/// Opens the file with the debug information of `elf`, which is at `path`.
pub(super) fn find(elf: &Elf<'_>, path: &Path, folder: &Path) -> Option<File> {
    let id = elf.build_id().ok().flatten();
    let link = elf.gnu_debuglink().ok().flatten();
    let mut places: Vec<PathBuf> = id.and_then(|id| place_of_id(id, folder)).into_iter().collect();
    places.extend(link.map(|(name, _)| places_of_link(name, path, folder)).unwrap_or_default());
    places.into_iter().find_map(|place| {
        let file = file::open(place).ok()?;
        let is_same = match (id, link) {
            (Some(id), _) => has_id(&file, id),
            (None, Some((_, sum))) => checksum(&file).ok()? == sum,
            (None, None) => false,
        };
        is_same.then_some(file)
    })
}

fn place_of_id(id: &[u8], folder: &Path) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(folder.join(format!(".build-id/{first:02x}/{rest}.debug")))
}

/// Places of the file that a program names. With a directory in it, it is not a name.
fn places_of_link(name: &[u8], path: &Path, folder: &Path) -> Vec<PathBuf> {
    let name = std::str::from_utf8(name).ok().filter(|name| !name.contains('/'));
    let (Some(name), Some(directory)) = (name, path.parent()) else { return Vec::new() };
    let below = directory.strip_prefix("/").unwrap_or(directory);
    let places = [directory.to_owned(), directory.join(".debug"), folder.join(below)];
    places.map(|place| place.join(name)).to_vec()
}

fn has_id(file: &File, id: &[u8]) -> bool {
    let data = ReadCache::new(file);
    Elf::parse(&data).is_ok_and(|elf| elf.build_id().ok().flatten() == Some(id))
}

/// CRC of the whole file, as `objcopy --add-gnu-debuglink` computes it.
fn checksum(file: &File) -> io::Result<u32> {
    if file.metadata()?.len() > MAX_DEBUG_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = flate2::CrcReader::new(file);
    io::copy(&mut bytes, &mut io::sink())?;
    Ok(bytes.crc().sum())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use hugepilot_testkit::{need, requires};

    use super::super::ObjectNames;
    use super::*;

    const SOURCE: &str = "static __attribute__((noinline)) int marked(int x) {\n\
                          \treturn x + 1;\n}\nint main(void) {\n\treturn marked(0);\n}\n";

    /// A program `prog` without symbols, whose debug information is in `prog.debug`.
    struct Split {
        folder: tempfile::TempDir,
        /// Address of the function `marked`.
        address: u64,
    }

    impl Split {
        fn new(flag: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("prog.c"), SOURCE).unwrap();
            let mut split = Self { folder, address: 0 };
            split.run("cc", &["-g", "-O0", flag, "-o", "prog", "prog.c"]);
            let names = split.names();
            let is_marked = |function: &&(u64, u64, String)| function.2 == "marked";
            split.address = names.tables().functions.iter().find(is_marked).unwrap().0;
            split.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
            split.run("objcopy", &["--strip-all", "--add-gnu-debuglink=prog.debug", "prog"]);
            split
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn run(&self, program: &str, arguments: &[&str]) {
            let mut command = Command::new(program);
            let status = command.args(arguments).current_dir(self.folder.path()).status();
            assert!(status.unwrap().success(), "{program} {arguments:?}");
        }

        /// Moves the debug information.
        fn put(&self, from: &str, to: &str) {
            let to = self.path(to);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::rename(self.path(from), to).unwrap();
        }

        fn names(&self) -> ObjectNames {
            let path = self.path("prog");
            let mut names = ObjectNames::open(File::open(&path).unwrap(), &path).unwrap();
            names.debug_folder = self.path("debug");
            names
        }

        /// Whether the function has its name and its line; if not, it must have neither.
        fn has_names(&self) -> bool {
            let names = self.names();
            let (function, source) = (names.function(self.address), names.source(self.address));
            let Some((file, line)) = source else {
                assert_eq!(function, None);
                return false;
            };
            assert!(file.ends_with("prog.c"), "{file}");
            assert_eq!((function.as_deref(), line), (Some("marked"), 1));
            true
        }
    }

    #[test]
    fn debug_information_is_found_where_distributions_put_it() {
        requires!(need::all([need::c_compiler(), need::program("objcopy")]));
        let split = Split::new("-Wl,--build-id=0xabcdef0123");
        assert!(split.has_names(), "beside the program");
        let below = split.folder.path().strip_prefix("/").unwrap().to_str().unwrap();
        let mut from = "prog.debug".to_owned();
        for to in [
            "elsewhere",
            ".debug/prog.debug",
            &format!("debug/{below}/prog.debug"),
            "debug/.build-id/ab/cdef0123.debug",
        ] {
            split.put(&from, to);
            assert_eq!(split.has_names(), to != "elsewhere", "{to}");
            to.clone_into(&mut from);
        }
    }

    #[test]
    fn the_debug_information_of_another_program_is_not_read() {
        requires!(need::all([need::c_compiler(), need::program("objcopy")]));
        let split = Split::new("-Wl,--build-id=0xabcdef0123");
        let other = Split::new("-Wl,--build-id=0xabcdef0124");
        fs::copy(other.path("prog.debug"), split.path("prog.debug")).unwrap();
        assert!(!split.has_names());
        assert!(other.has_names());
    }

    #[test]
    fn without_a_build_id_the_checksum_decides() {
        requires!(need::all([need::c_compiler(), need::program("objcopy")]));
        let split = Split::new("-Wl,--build-id=none");
        assert!(split.has_names());
        let mut debug = fs::read(split.path("prog.debug")).unwrap();
        debug.push(0);
        fs::write(split.path("prog.debug"), debug).unwrap();
        assert!(!split.has_names());
    }

    #[test]
    fn a_link_with_a_directory_is_not_followed() {
        let places = |name: &[u8]| places_of_link(name, Path::new("/bin/prog"), Path::new("/d"));
        let found = ["/bin/x", "/bin/.debug/x", "/d/bin/x"].map(PathBuf::from);
        assert_eq!(places(b"x"), found);
        for name in [&b"../x"[..], b"/etc/x", b"\xff"] {
            assert!(places(name).is_empty(), "{name:?}");
        }
    }
}
