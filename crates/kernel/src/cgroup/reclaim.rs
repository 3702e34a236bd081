//! Reclaim of a cgroup's memory, and its use before and after.

use std::path::PathBuf;

use hugepilot_units::Bytes;

use super::{MemoryCgroup, Version, children};
use crate::{KernelError, Result, Root, Unsupported, memory};

/// Memory use of a cgroup and its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMemory {
    /// All memory that the cgroup accounts.
    pub used: Bytes,
    /// Page cache; `None` if `memory.stat` lacks it.
    pub cache: Option<Bytes>,
    /// Anonymous memory on huge pages; `None` if `memory.stat` lacks it.
    pub anon_huge: Option<Bytes>,
}

/// Request for reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Version 1, `memory.force_empty`: as much as the kernel can.
    ForceEmpty,
    /// Version 2, `memory.reclaim`: an amount, page cache included.
    Amount {
        /// Amount.
        bytes: Bytes,
        /// Whether swapping is forbidden (`swappiness=0`). Set only if there is swap: kernels
        /// before 6.9 do not know the option.
        unswapped: bool,
    },
}

impl Reclaim {
    /// Returns the file that takes the request.
    pub const fn file(self) -> &'static str {
        match self {
            Self::ForceEmpty => "memory.force_empty",
            Self::Amount { .. } => "memory.reclaim",
        }
    }
    /// Returns the text of the request.
    pub fn text(self) -> String {
        match self {
            Self::ForceEmpty => "0".to_owned(),
            Self::Amount { bytes, unswapped: false } => bytes.get().to_string(),
            Self::Amount { bytes, unswapped: true } => format!("{} swappiness=0", bytes.get()),
        }
    }
}

impl MemoryCgroup {
    /// Returns its directory, below a [`Root`]; `None` if the mount shows another part of the
    /// hierarchy.
    pub fn directory(&self) -> Option<PathBuf> {
        Some(self.mount.join(self.inside.as_ref()?))
    }

    /// Reads its memory use.
    ///
    /// # Errors
    /// [`KernelError::Read`] if it is gone or not visible here.
    pub fn memory(&self, root: &Root) -> Result<GroupMemory> {
        let directory = self.visible()?;
        let (usage, cache, huge) = match self.version {
            Version::V1 => ("memory.usage_in_bytes", "total_cache ", "total_rss_huge "),
            Version::V2 => ("memory.current", "file ", "anon_thp "),
        };
        let path = directory.join(usage);
        let text = root.read_text(&path)?;
        let used = text
            .parse()
            .map_err(|_| KernelError::parse(&root.join(&path), 1, "bytes", text.as_bytes()))?;
        let stat = root.read_text(directory.join("memory.stat")).unwrap_or_default();
        let of = |key: &str| {
            stat.lines()
                .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
                .map(Bytes::new)
        };
        Ok(GroupMemory { used: Bytes::new(used), cache: of(cache), anon_huge: of(huge) })
    }

    /// Returns the request that reclaims `amount`, or all, without swapping.
    ///
    /// # Errors
    /// [`Unsupported`], with help.
    pub fn reclaim_by(
        &self,
        root: &Root,
        amount: Option<Bytes>,
    ) -> std::result::Result<Reclaim, Unsupported> {
        let directory = self.visible().map_err(|error| Unsupported::because(&error))?;
        let swap = memory::has_swap(root).unwrap_or(true);
        let reclaim = match self.version {
            Version::V1 if self.path == "/" => {
                return Err(Unsupported::RootCgroup);
            }
            Version::V1 if amount.is_some() => return Err(Unsupported::ReclaimAmount),
            Version::V1 => {
                if let Some(group) = self.swapping(root).filter(|_| swap) {
                    let file = root.join(group).join("memory.swappiness");
                    return Err(Unsupported::ReclaimSwaps { file: file.display().to_string() });
                }
                Reclaim::ForceEmpty
            }
            Version::V2 => {
                // Beyond what the kernel can reclaim, it returns EAGAIN.
                let all = self.memory(root).map_or(Bytes::ZERO, |memory| memory.used);
                Reclaim::Amount { bytes: amount.unwrap_or(all), unswapped: swap }
            }
        };
        if !root.join(&directory).join(reclaim.file()).exists() {
            let file = reclaim.file().to_owned();
            return Err(Unsupported::NoReclaimFile { cgroup: self.path(), file });
        }
        Ok(reclaim)
    }

    /// Requests the reclaim and waits until the kernel ends it.
    ///
    /// # Errors
    /// [`KernelError::Write`]: EAGAIN if the kernel reclaimed less, EINTR after a signal, EINVAL if
    /// it does not know `swappiness=0`.
    pub fn reclaim(&self, root: &Root, reclaim: Reclaim) -> Result<()> {
        root.write(self.visible()?.join(reclaim.file()), &reclaim.text())
    }

    /// Returns the directory of a cgroup, this one or a descendant, whose memory reclaim may swap
    /// out. Version 1 only.
    fn swapping(&self, root: &Root) -> Option<PathBuf> {
        fn first(root: &Root, directory: PathBuf) -> Option<PathBuf> {
            if root.read_text(directory.join("memory.swappiness")).is_ok_and(|text| text != "0") {
                return Some(directory);
            }
            children(root, &directory).find_map(|child| first(root, child))
        }
        first(root, self.directory()?)
    }

    fn visible(&self) -> Result<PathBuf> {
        let invisible = || KernelError::read(self.path.as_ref(), std::io::ErrorKind::NotFound);
        self.directory().ok_or_else(invisible)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::root::fixture;

    const NO_SWAP: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nSwapTotal:       0 kB\n");
    const SWAP: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nSwapTotal:       8 kB\n");

    fn v1(
        swap: (&'static str, &'static str),
        below: &'static str,
    ) -> [(&'static str, &'static str); 9] {
        [
            swap,
            ("sys/fs/cgroup/memory/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9\n"),
            ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "700\n"),
            ("sys/fs/cgroup/memory/a/memory.force_empty", ""),
            ("sys/fs/cgroup/memory/a/memory.swappiness", "0\n"),
            ("sys/fs/cgroup/memory/a/b/memory.swappiness", below),
        ]
    }

    fn group(root: &Root, path: &str) -> MemoryCgroup {
        MemoryCgroup::of_directory(root, Path::new(path)).unwrap()
    }

    #[test]
    fn version_1_is_emptied_and_takes_no_amount() {
        let (_dir, root) = fixture(&v1(NO_SWAP, "60\n"));
        let a = group(&root, "/sys/fs/cgroup/memory/a");
        assert_eq!(a.reclaim_by(&root, None).unwrap(), Reclaim::ForceEmpty);
        let amount = Some(Bytes::new(9));
        assert_eq!(a.reclaim_by(&root, amount).unwrap_err(), Unsupported::ReclaimAmount);
        let top = group(&root, "/sys/fs/cgroup/memory");
        assert_eq!(top.reclaim_by(&root, None).unwrap_err(), Unsupported::RootCgroup);
        a.reclaim(&root, Reclaim::ForceEmpty).unwrap();
        assert_eq!(root.read_text("sys/fs/cgroup/memory/a/memory.force_empty").unwrap(), "0");
    }

    #[test]
    fn no_request_swaps() {
        let (_dir, root) = fixture(&v1(SWAP, "60\n"));
        let error = group(&root, "/sys/fs/cgroup/memory/a").reclaim_by(&root, None).unwrap_err();
        let Unsupported::ReclaimSwaps { file } = error else { panic!("{error}") };
        assert!(file.ends_with("a/b/memory.swappiness"), "{file}: a cgroup below would swap");
        let (_dir, root) = fixture(&v1(SWAP, "0\n"));
        assert!(group(&root, "/sys/fs/cgroup/memory/a").reclaim_by(&root, None).is_ok());
    }

    #[test]
    fn version_2_gets_an_amount_without_swapping() {
        for (swap, amount, text) in [
            (NO_SWAP, None, "8000"),
            (NO_SWAP, Some(Bytes::new(5)), "5"),
            (SWAP, None, "8000 swappiness=0"),
        ] {
            let (_dir, root) = fixture(&[
                swap,
                ("sys/fs/cgroup/cgroup.procs", ""),
                ("sys/fs/cgroup/a/cgroup.procs", ""),
                ("sys/fs/cgroup/a/memory.current", "8000\n"),
                ("sys/fs/cgroup/a/memory.reclaim", ""),
                ("sys/fs/cgroup/a/memory.stat", "anon 6\nfile 1000\nanon_thp 4096\n"),
            ]);
            let a = group(&root, "/sys/fs/cgroup/a");
            assert_eq!(a.reclaim_by(&root, amount).unwrap().text(), text);
            let expected = GroupMemory {
                used: Bytes::new(8000),
                cache: Some(Bytes::new(1000)),
                anon_huge: Some(Bytes::new(4096)),
            };
            assert_eq!(a.memory(&root).unwrap(), expected);
        }
    }

    #[test]
    fn a_kernel_without_the_file_is_unsupported() {
        let (_dir, root) = fixture(&[
            NO_SWAP,
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/a/cgroup.procs", ""),
            ("sys/fs/cgroup/a/memory.current", "8000\n"),
        ]);
        let error = group(&root, "/sys/fs/cgroup/a").reclaim_by(&root, None).unwrap_err();
        let is_it =
            matches!(&error, Unsupported::NoReclaimFile { file, .. } if file == "memory.reclaim");
        assert!(is_it, "{error}");
    }
}
