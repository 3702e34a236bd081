//! Whether a page of the hugetlb pools is free.

use hugepilot_record::Errno;
use hugepilot_record::doctor::Probe;
use hugepilot_units::Bytes;

use crate::Root;
use crate::sys::hugetlb::reserve_one;

/// Tries both sizes.
pub(super) fn probes(root: &Root) -> Vec<Probe> {
    vec![
        probe(Probe::HUGETLB_2M, Bytes::mib(2), root, reserve_one(Bytes::mib(2))),
        probe(Probe::HUGETLB_1G, Bytes::gib(1), root, reserve_one(Bytes::gib(1))),
    ]
}

/// Puts into words what came of reserving a page of `size`.
fn probe(name: &str, size: Bytes, root: &Root, reserved: Result<(), Errno>) -> Probe {
    let directory = format!("sys/kernel/mm/hugepages/hugepages-{}kB", size.get() >> 10);
    let number =
        |file: &str| root.read_text(format!("{directory}/{file}")).ok()?.parse::<u64>().ok();
    let (Some(total), Some(free)) = (number("nr_hugepages"), number("free_hugepages")) else {
        return Probe::no(
            name,
            format!("the processor or the kernel has no hugetlb pages of {size}"),
            None,
        );
    };
    let reserved_by_others = number("resv_hugepages").unwrap_or(0);
    let pool = format!("pool of {total}: {free} free, {reserved_by_others} of them reserved");
    let mut fix = format!("sudo hugepilot pool set --size {size} --count N");
    if size > Bytes::mib(512) {
        fix += &format!(
            ", soon after boot; surest with hugepagesz={}G hugepages=N at boot",
            size.get() >> 30
        );
    }
    match reserved {
        Ok(()) => Probe::yes(name, format!("a page of {size} was free")).with_detail(pool),
        Err(Errno::ENOMEM) if total == 0 => {
            Probe::no(name, format!("no pages of {size} are set aside"), Some(fix))
                .with_detail(pool)
        }
        Err(Errno::ENOMEM) => {
            Probe::no(name, format!("no page of {size} is free"), Some(fix)).with_detail(pool)
        }
        Err(errno) => Probe::no(name, format!("mmap of a {size} page failed: {errno}"), None)
            .with_detail(pool),
    }
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
    fn an_empty_pool_a_used_up_one_and_none_are_told_apart() {
        let size = Bytes::gib(1);
        let (_dir, root) = pool(0, 0);
        let empty = probe(Probe::HUGETLB_1G, size, &root, Err(Errno::ENOMEM));
        assert_eq!(empty.why, "no pages of 1GiB are set aside");
        let fix = empty.fix.unwrap();
        assert!(
            fix.starts_with("sudo hugepilot pool set --size 1GiB --count N")
                && fix.contains("hugepagesz=1G"),
            "{fix}"
        );
        let (_dir, root) = pool(3, 0);
        assert_eq!(
            probe(Probe::HUGETLB_1G, size, &root, Err(Errno::ENOMEM)).why,
            "no page of 1GiB is free"
        );
        assert!(probe(Probe::HUGETLB_1G, size, &root, Ok(())).supported);
        let absent = probe(Probe::HUGETLB_2M, Bytes::mib(2), &root, Err(Errno::EINVAL));
        assert!(!absent.supported && absent.why.contains("2MiB") && absent.fix.is_none());
    }
}
