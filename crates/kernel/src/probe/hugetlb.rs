//! Probes of the hugetlb pools.

use hugepilot_record::Errno;
use hugepilot_reports::doctor::{Detail, Evidence, Probe};
use hugepilot_units::Bytes;

use crate::hugetlb::limit;
use crate::sys::hugetlb::reserve_one;
use crate::{Root, Unsupported};

/// Reserves a page of each size.
pub(super) fn probes(root: &Root) -> Vec<Probe> {
    vec![
        probe(Probe::HUGETLB_2M, Bytes::mib(2), root, reserve_one(Bytes::mib(2))),
        probe(Probe::HUGETLB_1G, Bytes::gib(1), root, reserve_one(Bytes::gib(1))),
    ]
}

/// Returns the probe for the result of reserving a page of `size`.
fn probe(name: &str, size: Bytes, root: &Root, reserved: Result<(), Errno>) -> Probe {
    let directory = format!("sys/kernel/mm/hugepages/hugepages-{}kB", size.get() >> 10);
    let number =
        |file: &str| root.read_text(format!("{directory}/{file}")).ok()?.parse::<u64>().ok();
    let (Some(total_pages), Some(free_pages)) = (number("nr_hugepages"), number("free_hugepages"))
    else {
        return Probe::no(name, Unsupported::NoHugetlb { size_bytes: size });
    };
    let reserved_pages = number("resv_hugepages").unwrap_or(0);
    let forbids = limit(root, size).filter(|limit| limit.left < size && total_pages > 0);
    let probe = match reserved {
        _ if let Some(limit) = forbids => Probe::no(name, limit.cause(size)),
        Ok(()) => Probe::yes(name, Evidence::PageFree { size_bytes: size }),
        Err(Errno::ENOMEM) if total_pages == 0 => {
            Probe::no(name, Unsupported::PoolEmpty { size_bytes: size })
        }
        Err(Errno::ENOMEM) => Probe::no(name, Unsupported::PoolExhausted { size_bytes: size }),
        Err(errno) => Probe::no(name, Unsupported::PoolMmap { size_bytes: size, errno }),
    };
    probe.with_details([Detail::Pool { total_pages, free_pages, reserved_pages }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(total: u64, free: u64) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let pool = dir.path().join("sys/kernel/mm/hugepages/hugepages-1048576kB");
        std::fs::create_dir_all(&pool).unwrap();
        for (file, number) in
            [("nr_hugepages", total), ("free_hugepages", free), ("resv_hugepages", 0)]
        {
            std::fs::write(pool.join(file), format!("{number}\n")).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn an_empty_pool_an_exhausted_one_and_none_have_their_own_reasons() {
        let size = Bytes::gib(1);
        let (_dir, root) = pool(0, 0);
        let empty = probe(Probe::HUGETLB_1G, size, &root, Err(Errno::ENOMEM));
        assert_eq!(empty.reason(), Some(&Unsupported::PoolEmpty { size_bytes: size }));
        let (dir, root) = pool(3, 0);
        let exhausted = probe(Probe::HUGETLB_1G, size, &root, Err(Errno::ENOMEM));
        assert_eq!(exhausted.reason(), Some(&Unsupported::PoolExhausted { size_bytes: size }));
        assert!(probe(Probe::HUGETLB_1G, size, &root, Ok(())).supported);
        for (file, text) in [("hugetlb.1GB.max", "0\n"), ("hugetlb.1GB.current", "0\n")] {
            let group = dir.path().join("sys/fs/cgroup/a");
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join(file), text).unwrap();
        }
        std::fs::write(dir.path().join("sys/fs/cgroup/cgroup.controllers"), "").unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        std::fs::write(dir.path().join("proc/self/cgroup"), "0::/a\n").unwrap();
        let limited = probe(Probe::HUGETLB_1G, size, &root, Ok(()));
        let reason = limited.reason().unwrap();
        let Unsupported::PoolNotGranted { file, .. } = reason else { panic!("{reason}") };
        assert!(file.ends_with("hugetlb.1GB.max"), "{file}");
        let size = Bytes::mib(2);
        let absent = probe(Probe::HUGETLB_2M, size, &root, Err(Errno::EINVAL));
        assert_eq!(absent.reason(), Some(&Unsupported::NoHugetlb { size_bytes: size }));
    }
}
