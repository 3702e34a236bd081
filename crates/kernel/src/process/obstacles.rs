//! Obstacles to huge pages that concern a whole process.

use std::path::Path;

use hugepilot_record::{Obstacle, Pid};
use rustix::fs::{Dir, DirEntry, Mode, OFlags, readlinkat};

use super::Process;
use crate::proc::{field, kib, parse_stat};

/// Ancestors that are read at most, so that a changing tree ends.
const MAX_ANCESTORS: u32 = 64;
/// File descriptors that are read at most: a virtual machine opens its own early.
const MAX_DESCRIPTORS: usize = 4096;

impl Process {
    /// Finds the obstacles. What may not be read is none. Costs a read of `status` for the process
    /// and each ancestor, and of a link for each open file, at most 4096.
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let status = self.text("status").unwrap_or_default();
        let pinned = kib(&status, "VmPin:").filter(|&pinned| pinned >= self.sizes.huge);
        let pinned = pinned.map(|pinned_bytes| Obstacle::PinnedMemory { pinned_bytes });
        let disabled = is_disabled(&status).then(|| self.disabled_by(&status)).flatten();
        let guest = self.is_virtual_machine().then_some(Obstacle::KvmGuest);
        pinned.into_iter().chain(disabled).chain(guest).collect()
    }

    /// The first of the ancestors, without a gap, that disabled huge pages for itself.
    fn disabled_by(&self, status: &str) -> Option<Obstacle> {
        let mut first = None;
        let mut parent = self::parent(status)?;
        for _ in 0..MAX_ANCESTORS {
            let folder = Path::new("proc").join(parent.to_string());
            let status = self.root.read_text(folder.join("status")).ok();
            let Some(status) = status.filter(|status| is_disabled(status)) else { break };
            let stat = self.root.read(folder.join("stat")).ok();
            let Some(stat) = stat.and_then(|stat| parse_stat(&stat)) else { break };
            first = Some(Obstacle::ThpDisabledBy { pid: parent, command: stat.command });
            let Some(next) = self::parent(&status) else { break };
            parent = next;
        }
        first
    }

    /// Whether it has a virtual machine open. Reads by its handle, not by its pid, and with the
    /// permissions of the user.
    fn is_virtual_machine(&self) -> bool {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.directory, "fd", flags, Mode::empty());
        let Ok(folder) = folder else { return false };
        let Ok(files) = Dir::read_from(&folder) else { return false };
        let link = |file: DirEntry| readlinkat(&folder, file.file_name(), Vec::new()).ok();
        let mut links = files.flatten().take(MAX_DESCRIPTORS).filter_map(link);
        links.any(|link| link.as_bytes() == b"anon_inode:kvm-vm")
    }
}

/// Whether a `status` shows that huge pages are disabled.
pub(super) fn is_disabled(status: &str) -> bool {
    field(status, "THP_enabled:") == Some("0")
}

fn parent(status: &str) -> Option<Pid> {
    field(status, "PPid:")?.parse().ok().filter(|&pid: &i32| pid > 0).map(Pid)
}

#[cfg(test)]
mod tests {
    use hugepilot_units::Bytes;

    use super::*;
    use crate::root::fixture;

    const HUGE: (&str, &str) = ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");

    /// The line of `stat` of a process with this number and name.
    fn stat(pid: i32, name: &str) -> String {
        format!("{pid} ({name}) S 1 {}", ["9"; 48].join(" "))
    }

    /// A process of a captured tree with this `status`, below these ancestors: number, name and
    /// `status`.
    fn obstacles(status: &str, ancestors: &[(i32, &str, &str)]) -> Vec<Obstacle> {
        let mut files = vec![(HUGE.0.to_owned(), HUGE.1.to_owned())];
        for &(pid, name, status) in ancestors.iter().chain(&[(7, "job", status)]) {
            files.push((format!("proc/{pid}/stat"), stat(pid, name)));
            files.push((format!("proc/{pid}/status"), status.to_owned()));
        }
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_folder, root) = fixture(&files);
        Process::open(&root, Pid(7)).unwrap().obstacles()
    }

    #[test]
    fn pinned_memory_counts_from_a_huge_page() {
        let of = |kib: u64| obstacles(&format!("PPid:\t1\nVmPin:\t{kib} kB\n"), &[]);
        assert_eq!(of(2047), []);
        assert_eq!(of(2048), [Obstacle::PinnedMemory { pinned_bytes: Bytes::mib(2) }]);
    }

    #[test]
    fn the_first_ancestor_in_a_row_with_the_flag_is_named() {
        let by = |ancestors: &[_]| obstacles("PPid:\t5\nTHP_enabled:\t0\n", ancestors);
        let named =
            |pid, name: &str| [Obstacle::ThpDisabledBy { pid: Pid(pid), command: name.to_owned() }];
        assert_eq!(by(&[(5, "sh", "PPid:\t4\nTHP_enabled:\t1\n")]), []);
        let shell = (5, "sh", "PPid:\t4\nTHP_enabled:\t0\n");
        assert_eq!(by(&[shell, (4, "ide", "PPid:\t1\nTHP_enabled:\t1\n")]), named(5, "sh"));
        assert_eq!(by(&[shell, (4, "ide", "PPid:\t0\nTHP_enabled:\t0\n")]), named(4, "ide"));
    }

    #[test]
    fn a_process_with_a_virtual_machine_is_one() {
        let (folder, root) = fixture(&[("proc/7/stat", &stat(7, "qemu")), HUGE]);
        let files = folder.path().join("proc/7/fd");
        std::fs::create_dir(&files).unwrap();
        let found = || Process::open(&root, Pid(7)).unwrap().obstacles();
        std::os::unix::fs::symlink("socket:[7]", files.join("3")).unwrap();
        assert_eq!(found(), []);
        std::os::unix::fs::symlink("anon_inode:kvm-vm", files.join("9")).unwrap();
        assert_eq!(found(), [Obstacle::KvmGuest]);
    }
}
