//! Files of a process: those in its `/proc` directory, and those that it has mapped.

use std::fs::{self, File};
use std::io::{BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hugepilot_record::Mapping;
use rustix::fs::{Mode, OFlags};

use super::Process;
use crate::privilege::{Purpose, raised};
use crate::proc::parse_smaps;
use crate::{KernelError, Mounts, Result, file};

impl Process {
    /// Opens a file that the process has mapped as `name`, with the permissions of the user. Opens
    /// it below the root directory of the process, so that containers work. If that may not be
    /// entered, opens the same path on the host, unless its inode differs. `None` if the user may
    /// not read the file, or if it was replaced.
    pub fn mapped_file(&self, name: &str, inode: u64) -> Option<File> {
        let same = |file: &File| file.metadata().is_ok_and(|about| about.ino() == inode);
        self.in_root(name).or_else(|| file::open(Path::new(name)).ok().filter(same))
    }

    /// Opens the file `name` below the root directory of the process.
    fn in_root(&self, name: &str) -> Option<File> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let enter = || rustix::fs::openat(&self.directory, "root", flags, Mode::empty());
        let root = raised(Purpose::EnterRoot, enter).ok()?;
        file::open_below(&root, Path::new(name)).ok()
    }

    /// Reads the mounts that the process sees; none if they cannot be read.
    pub fn mounts(&self) -> Mounts {
        let mounts = self.bytes("mountinfo").map(|text| Mounts::parse(&text)).unwrap_or_default();
        let namespace = |of: &str| fs::read_link(self.root.join(format!("proc/{of}/ns/mnt"))).ok();
        match namespace(&self.id.pid.to_string()) {
            Some(own) if namespace("self").is_some_and(|ours| ours != own) => {
                mounts.of_namespace(self.id.pid)
            }
            _ => mounts,
        }
    }

    pub(super) fn parse_mappings(&self, name: &str) -> Result<Vec<Mapping>> {
        let file = File::from(self.open_file(name, OFlags::empty())?);
        parse_smaps(BufReader::with_capacity(64 << 10, file), &self.path.join(name))
            .map_err(|error| self.or_gone(error))
    }

    pub(super) fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.directory, name, flags, Mode::empty());
        raised(purpose_of(name), open)
            .map_err(|errno| self.or_gone(KernelError::read(&self.path.join(name), errno)))
    }

    pub(super) fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        // Without room, the first read has 32 bytes.
        let mut bytes = Vec::with_capacity(4096);
        File::from(self.open_file(name, OFlags::empty())?)
            .read_to_end(&mut bytes)
            .map_err(|source| self.or_gone(KernelError::read(&self.path.join(name), source)))?;
        Ok(bytes)
    }

    pub(super) fn text(&self, name: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes(name)?).into_owned())
    }

    /// Returns the error, or [`KernelError::NoProcess`] if the read failed because the process
    /// ended.
    pub(super) fn or_gone(&self, error: KernelError) -> KernelError {
        if error.is_gone() { KernelError::NoProcess { pid: self.id.pid } } else { error }
    }
}

/// Returns the purpose of opening a file of `/proc/PID`.
fn purpose_of(name: &str) -> Purpose {
    match name {
        "pagemap" => Purpose::OpenPageMap,
        "maps" | "smaps" | "smaps_rollup" => Purpose::OpenMappings,
        _ => Purpose::OpenProcess,
    }
}
