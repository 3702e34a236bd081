//! Markers: phases that a program itself writes to a file.
//!
//! The environment variable [`MARKERS`](hugepilot_alloc::MARKERS) names a file. Each line that is
//! appended to it begins a phase. A file never blocks the program, and any language can append to
//! one; [`begin_phase`](hugepilot_alloc::begin_phase) does.
//!
//! Its owner holds a lock on the file, which the kernel drops with the owner. The next recording
//! removes files without a lock, so a killed hugepilot leaves none for long.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hugepilot_recording::Phase;
use hugepilot_units::Nanos;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::output::phase_name;

/// Start of the name of each file.
const PREFIX: &str = "hugepilot-markers-";
/// Most bytes that are read at a time.
const MAX_READ: u64 = 64 << 10;

/// File of markers. Removed on drop.
pub(super) struct Markers {
    name: NamedTempFile,
    file: File,
    line: Vec<u8>,
}

impl Markers {
    /// Creates the file, and removes those of owners that were killed.
    pub(super) fn new() -> io::Result<Self> {
        let folder = std::env::temp_dir();
        remove_stale(&folder);
        Self::new_in(&folder)
    }

    fn new_in(folder: &Path) -> io::Result<Self> {
        loop {
            let name = NamedTempFile::with_prefix_in(PREFIX, folder)?;
            let file = name.reopen()?;
            // Another hugepilot may take it for a stale one before it is locked. Without locks, it
            // takes none.
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            if locked != Err(Errno::WOULDBLOCK) && has_name(&file) {
                return Ok(Self { name, file, line: Vec::new() });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.name.path()
    }

    /// Returns the phases that began since the last call. They get the time of this call.
    pub(super) fn phases(&mut self, time: Nanos) -> Vec<Phase> {
        let mut bytes = Vec::new();
        if Read::by_ref(&mut self.file).take(MAX_READ).read_to_end(&mut bytes).is_err() {
            return Vec::new();
        }
        let mut phases = Vec::new();
        for byte in bytes {
            if byte == b'\n' {
                let name = phase_name(&std::mem::take(&mut self.line));
                phases.push(Phase { time, name });
            } else if (self.line.len() as u64) < MAX_READ {
                self.line.push(byte);
            }
        }
        phases
    }
}

fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.nlink() > 0)
}

/// Removes the files of this user in `folder` that have no lock.
fn remove_stale(folder: &Path) {
    let user = rustix::process::geteuid().as_raw();
    let is_markers = |entry: &fs::DirEntry| {
        let is_file = entry.metadata().is_ok_and(|about| about.is_file() && about.uid() == user);
        is_file && entry.file_name().to_string_lossy().starts_with(PREFIX)
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten().filter(is_markers) {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = flags.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(entry.path());
        let Ok(file) = opened else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Before the lock ends. Another user may not remove it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_files_whose_owner_is_gone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [stale, other] =
            ["hugepilot-markers-x", "markers"].map(|name| folder.path().join(name));
        for path in [&stale, &other] {
            fs::write(path, "load\n").unwrap();
        }
        let link = folder.path().join("hugepilot-markers-link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let markers = Markers::new_in(folder.path()).unwrap();
        remove_stale(folder.path());
        assert!(!stale.exists() && other.exists() && link.exists() && markers.path().exists());
        let path = markers.path().to_owned();
        drop(markers);
        assert!(!path.exists());
    }

    #[test]
    fn each_appended_line_begins_a_phase_once() {
        let mut markers = Markers::new().unwrap();
        let mut program = File::options().append(true).open(markers.path()).unwrap();
        assert_eq!(markers.phases(Nanos::seconds(1)), []);
        program.write_all(b"load\nsol").unwrap();
        let phase = |time, name: &str| Phase { time: Nanos::seconds(time), name: name.to_owned() };
        assert_eq!(markers.phases(Nanos::seconds(2)), [phase(2, "load")]);
        program.write_all(b"ve\x1b\n").unwrap();
        assert_eq!(markers.phases(Nanos::seconds(3)), [phase(3, "solve\\u{1b}")]);
        assert_eq!(markers.phases(Nanos::seconds(4)), []);
    }
}
