//! Sums over all memory of a process.

use std::os::fd::AsFd;

use hugepilot_units::{AddrRange, Bytes, VirtAddr};
use rustix::fs::OFlags;

use super::Process;
use crate::proc::kib;
use crate::sys::pagemap;
use crate::{KernelError, Result};

/// Memory of a process on huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeSums {
    /// Transparent huge pages: anonymous, of shared memory, of files.
    pub thp: Bytes,
    /// hugetlb pages.
    pub hugetlb: Bytes,
}

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

    /// Reads its memory on huge pages by `PAGEMAP_SCAN` and `HugetlbPages` of `status`, in 0.8 ms
    /// for each GiB on base pages; `smaps` takes 15 ms. Mappings above the stack are not counted:
    /// without a hint, the kernel puts none there but its own.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7; EACCES or EPERM without permission to read its pagemap;
    /// [`KernelError::NoProcess`].
    pub fn huge_sums(&self) -> Result<HugeSums> {
        self.huge_runs(&mut |_| {})
    }

    /// Reads the same as [`Self::huge_sums`], and calls `each` for every run of huge pages, in
    /// address order.
    ///
    /// # Errors
    /// As for [`Self::huge_sums`].
    pub fn huge_runs(&self, each: &mut dyn FnMut(AddrRange)) -> Result<HugeSums> {
        let range = AddrRange::new(VirtAddr::new(0), self.top()?);
        let file = self.open_file("pagemap", OFlags::empty())?;
        let mut huge = Bytes::ZERO;
        pagemap::scan_huge(file.as_fd(), range, &mut |run| {
            if run.present && !run.zero {
                huge += run.range.len();
                each(run.range);
            }
        })
        .map_err(|errno| self.or_gone(KernelError::syscall("PAGEMAP_SCAN", self.id.pid, errno)))?;
        let hugetlb = self.hugetlb()?;
        Ok(HugeSums { thp: huge - hugetlb, hugetlb })
    }

    /// Reads its memory on hugetlb pages (`HugetlbPages` of `status`). Requires no permission.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`].
    pub fn hugetlb(&self) -> Result<Bytes> {
        Ok(kib(&self.text("status")?, "HugetlbPages:").unwrap_or(Bytes::ZERO))
    }

    /// Returns the bottom of the stack, which grows downwards, or, if only a tracer may see that,
    /// the end of the last mapping.
    fn top(&self) -> Result<VirtAddr> {
        let stack = self.stat()?.start_stack;
        if stack != 0 {
            return Ok(VirtAddr::new(stack).align_down(self.sizes.base));
        }
        let ends = self.layout()?.into_iter().map(|mapping| mapping.range.end);
        // The vsyscall page is an address of the kernel.
        let of_process = ends.filter(|end| end.get() <= i64::MAX.unsigned_abs());
        of_process.max().ok_or(KernelError::NoProcess { pid: self.id.pid })
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_testkit::requires;

    use super::*;
    use crate::root::fixture;
    use crate::thp::ThpSettings;
    use crate::{AnonMap, Pages, Root, memory};

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

    #[test]
    fn a_scan_finds_the_huge_pages_that_smaps_shows() {
        let root = Root::live();
        let process = Process::open(&root, Pid(std::process::id().cast_signed())).unwrap();
        let sizes = memory::page_sizes(&root).unwrap();
        let map_size = |regions| sizes.huge.times(regions);
        // Other tests of this process map huge pages, too, so some reads may differ.
        let agrees = |pages, regions: u64| {
            let mut map = AnonMap::new(map_size(regions), pages, sizes).unwrap();
            map.words_mut().fill(1);
            (0..100).any(|_| {
                let (before, scanned) = (process.huge().unwrap(), process.huge_sums().unwrap());
                let least =
                    if matches!(pages, Pages::Huge) { map_size(regions) } else { Bytes::ZERO };
                scanned.thp + scanned.hugetlb == before && before >= least
            })
        };
        requires!(process.huge_sums());
        let thp = ThpSettings::read(&root).chosen("enabled").map(str::to_owned);
        requires!(if thp.as_deref() == Some("never") {
            Err("THP are switched off")
        } else {
            Ok(())
        });
        assert!(agrees(Pages::Base, 3) && agrees(Pages::Huge, 5));
    }
}
