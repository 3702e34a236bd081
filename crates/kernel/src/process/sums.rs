//! Sums over all memory of a process.

use hugepilot_units::Bytes;

use super::Process;
use crate::proc::kib;
use crate::{KernelError, Result};

impl Process {
    /// Reads its resident anonymous memory (`RssAnon` of `status`). Requires no permission.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it is gone or has freed its memory.
    pub fn anonymous(&self) -> Result<Bytes> {
        kib(&self.text("status")?, "RssAnon:").ok_or(KernelError::NoProcess { pid: self.id.pid })
    }

    /// Reads its anonymous memory on huge pages (`AnonHugePages` of `smaps_rollup`).
    ///
    /// # Errors
    /// EACCES or EPERM without permission to read it; [`KernelError::NoProcess`].
    pub fn anonymous_huge(&self) -> Result<Bytes> {
        kib(&self.text("smaps_rollup")?, "AnonHugePages:")
            .ok_or(KernelError::NoProcess { pid: self.id.pid })
    }

    /// Reads its memory on huge pages of all kinds: anonymous, of shared memory, of files, and
    /// hugetlb (`smaps_rollup`). The kernel walks its page tables: some milliseconds for each GiB
    /// on base pages.
    ///
    /// # Errors
    /// As for [`Self::anonymous_huge`].
    pub fn huge(&self) -> Result<Bytes> {
        let text = self.text("smaps_rollup")?;
        let anonymous =
            kib(&text, "AnonHugePages:").ok_or(KernelError::NoProcess { pid: self.id.pid })?;
        let others = ["ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"];
        Ok(anonymous + others.into_iter().filter_map(|label| kib(&text, label)).sum())
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::*;
    use crate::root::fixture;

    #[test]
    fn huge_pages_of_all_kinds_are_summed() {
        let rollup = "00-ff ---p 0 00:00 0 [rollup]\nRss: 9999 kB\nAnonHugePages: 2048 kB\n\
                      ShmemPmdMapped: 4096 kB\nFilePmdMapped: 8192 kB\nShared_Hugetlb: 16384 kB\n\
                      Private_Hugetlb: 32768 kB\n";
        let thp = ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");
        let stat = format!("7 (db) S {}", "1 ".repeat(49));
        let (_dir, root) = fixture(&[thp, ("proc/7/stat", &stat), ("proc/7/smaps_rollup", rollup)]);
        let process = Process::open(&root, Pid(7)).unwrap();
        assert_eq!(process.huge().unwrap(), Bytes::mib(62));
        std::fs::write(root.join("proc/7/smaps_rollup"), "").unwrap();
        assert!(process.huge().unwrap_err().is_gone(), "it freed its memory");
    }
}
