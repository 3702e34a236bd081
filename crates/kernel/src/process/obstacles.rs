//! Obstacles to huge pages that concern a whole process.

use std::path::{Path, PathBuf};

use hugepilot_record::{Obstacle, Pid};
use hugepilot_units::Bytes;

use super::Process;
use crate::proc::parse_stat;

/// Ancestors that are read at most, so that a changing tree ends.
const MAX_ANCESTORS: u32 = 64;
/// File descriptors that are read at most: a virtual machine opens its own early.
const MAX_DESCRIPTORS: usize = 4096;

impl Process {
    /// Finds the obstacles. What may not be read is none. Costs a read of `status` for the process
    /// and each ancestor, and of a link for each open file, at most 4096.
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let status = self.text("status").unwrap_or_default();
        let pinned = field(&status, "VmPin:").map(kib).filter(|&pinned| pinned >= self.sizes.huge);
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

    fn is_virtual_machine(&self) -> bool {
        let files = std::fs::read_dir(self.own_folder().join("fd"));
        let links = files.into_iter().flatten().flatten().take(MAX_DESCRIPTORS);
        links
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|link| link == Path::new("anon_inode:kvm-vm"))
    }

    fn own_folder(&self) -> PathBuf {
        self.root.join("proc").join(self.id.pid.to_string())
    }
}

/// Whether a `status` shows that huge pages are disabled.
pub(super) fn is_disabled(status: &str) -> bool {
    field(status, "THP_enabled:") == Some("0")
}

/// The value of a line of `status`.
fn field<'a>(status: &'a str, label: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(label)).map(str::trim)
}

fn parent(status: &str) -> Option<Pid> {
    field(status, "PPid:")?.parse().ok().filter(|&pid: &i32| pid > 0).map(Pid)
}

/// The bytes of a value such as `12 kB`.
fn kib(value: &str) -> Bytes {
    Bytes::kib(value.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    const HUGE: (&str, &str) = ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");

    /// A process of a captured tree with this `status`, below these ancestors.
    fn obstacles(status: &str, ancestors: &[(&str, &str)]) -> Vec<Obstacle> {
        const STAT: &str = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 100 0 0 0 0 0 0 0 0 0 0";
        let stat = format!("7 (job) S {STAT}");
        let mut files = vec![("proc/7/stat", stat.as_str()), ("proc/7/status", status), HUGE];
        files.extend(ancestors);
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
        let by = |ancestors: &[(&str, &str)]| obstacles("PPid:\t5\nTHP_enabled:\t0\n", ancestors);
        let shell = ("proc/5/stat", "5 (sh) S 4 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9 0 0 0 0");
        let off = ("proc/5/status", "PPid:\t4\nTHP_enabled:\t0\n");
        let above = ("proc/4/stat", "4 (ide) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9 0 0 0 0");
        let named =
            |pid, name: &str| [Obstacle::ThpDisabledBy { pid: Pid(pid), command: name.to_owned() }];
        assert_eq!(by(&[shell, ("proc/5/status", "PPid:\t4\nTHP_enabled:\t1\n")]), []);
        let on = ("proc/4/status", "PPid:\t1\nTHP_enabled:\t1\n");
        assert_eq!(by(&[shell, off, above, on]), named(5, "sh"));
        let off_above = ("proc/4/status", "PPid:\t0\nTHP_enabled:\t0\n");
        assert_eq!(by(&[shell, off, above, off_above]), named(4, "ide"));
    }

    #[test]
    fn a_process_with_a_virtual_machine_is_one() {
        let own = Pid(std::process::id().cast_signed());
        assert_eq!(Process::open(&crate::Root::live(), own).unwrap().obstacles(), []);
        let (folder, root) =
            fixture(&[("proc/7/stat", "7 (qemu) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9 0 0 0 0")]);
        let files = folder.path().join("proc/7/fd");
        std::fs::create_dir(&files).unwrap();
        std::os::unix::fs::symlink("anon_inode:kvm-vm", files.join("9")).unwrap();
        assert_eq!(Process::open(&root, Pid(7)).unwrap().obstacles(), [Obstacle::KvmGuest]);
    }
}
