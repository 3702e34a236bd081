//! Limits of cgroups on the pages of a hugetlb pool, version 1 and 2.
//!
//! A limit on pages in use refuses at a touch, by SIGBUS; one on reservations at `mmap`, by ENOMEM
//! (Documentation/admin-guide/cgroup-v2.rst, HugeTLB).

use std::path::{Path, PathBuf};

use hugepilot_units::Bytes;

use crate::cgroup::place;
use crate::{Root, Unsupported};

/// The tightest limit of the cgroups of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLimit {
    /// File of the limit.
    pub file: PathBuf,
    /// Limit less usage.
    pub left: Bytes,
}

impl PoolLimit {
    /// Returns the cause why this limit forbids a page of `size`.
    pub fn cause(self, size: Bytes) -> Unsupported {
        let file = self.file.display().to_string();
        Unsupported::PoolNotGranted { size_bytes: size, file, left_bytes: self.left }
    }
}

/// Files of a limit and of the usage, after `hugetlb.SIZE.`.
const FILES: [(&str, &str); 4] = [
    ("max", "current"),
    ("rsvd.max", "rsvd.current"),
    ("limit_in_bytes", "usage_in_bytes"),
    ("rsvd.limit_in_bytes", "rsvd.usage_in_bytes"),
];

/// Reads the tightest limit of this process on pages of `size`; `None` without a limit.
pub fn limit(root: &Root, size: Bytes) -> Option<PoolLimit> {
    let place = place(root, &root.read_text("proc/self/cgroup").ok()?, "hugetlb")?;
    let mount = place.mount;
    let unit = match size.get() {
        size if size >= 1 << 30 => format!("{}GB", size >> 30),
        size if size >= 1 << 20 => format!("{}MB", size >> 20),
        size => format!("{}KB", size >> 10),
    };
    let number = |path: &Path| root.read_text(path).ok()?.trim().parse::<u64>().ok();
    let of_directory = |directory: &Path| {
        FILES.map(|(limit, usage)| {
            let file = |name: &str| directory.join(format!("hugetlb.{unit}.{name}"));
            // `max` is not a number.
            let (most, used) = (number(&file(limit))?, number(&file(usage))?);
            let left = Bytes::new(most.saturating_sub(used));
            // Version 1 states no limit by the largest number of pages.
            (most < i64::MAX as u64 >> 1).then(|| (root.join(file(limit)), left))
        })
    };
    let own = mount.join(place.inside?);
    let directories = own.ancestors().take_while(|directory| directory.starts_with(&mount));
    let limits = directories.flat_map(of_directory).flatten();
    let tightest = limits.min_by_key(|(_, left)| *left);
    tightest.map(|(file, left)| PoolLimit { file, left })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    fn found(files: &[(&str, &str)]) -> Option<(String, u64)> {
        let (dir, root) = fixture(files);
        let limit = limit(&root, Bytes::mib(2))?;
        let file = limit.file.strip_prefix(dir.path()).unwrap().display().to_string();
        Some((file, limit.left.get() >> 20))
    }

    #[test]
    fn the_tightest_of_all_ancestors_counts() {
        let v2 = "sys/fs/cgroup/a/hugetlb.2MB";
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/cgroup.controllers", "hugetlb memory\n"),
            (&format!("{v2}.max"), "8388608\n"),
            (&format!("{v2}.current"), "2097152\n"),
            (&format!("{v2}.rsvd.max"), "4194304\n"),
            (&format!("{v2}.rsvd.current"), "0\n"),
            ("sys/fs/cgroup/a/b/hugetlb.2MB.max", "max\n"),
            ("sys/fs/cgroup/a/b/hugetlb.2MB.current", "2097152\n"),
        ];
        assert_eq!(found(&files), Some((format!("{v2}.rsvd.max"), 4)));
        assert_eq!(found(&files[..4]), Some((format!("{v2}.max"), 6)));
        assert_eq!(found(&files[..2]), None);
    }

    #[test]
    fn version_1_has_a_mount_of_its_own_and_a_number_for_no_limit() {
        let v1 = "sys/fs/cgroup/hugetlb/a/hugetlb.2MB";
        let most = (i64::MAX as u64 / (2 << 20) * (2 << 20)).to_string();
        for (most, expected) in [("4194304", Some(2)), (&most[..], None)] {
            let files = [
                ("proc/self/cgroup", "5:hugetlb,pids:/a\n0::/\n"),
                ("sys/fs/cgroup/unified/cgroup.controllers", ""),
                (&format!("{v1}.limit_in_bytes"), most),
                (&format!("{v1}.usage_in_bytes"), "2097152"),
            ];
            assert_eq!(found(&files).map(|(_, left)| left), expected);
        }
    }
}
