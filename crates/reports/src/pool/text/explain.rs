//! Explanation of hugetlb pools, with those of this machine.

use std::fmt::Write;

use hugepilot_record::sentence::numbered;

use crate::pool::{Pool, PoolReport};

const WHAT: &str = "\
WHAT THEY ARE
A hugetlb pool is memory reserved in huge pages of one size. Only programs that request such pages
get them; unused pages of a pool serve nothing else. In return, a page of a pool is always huge: it
is never split, moved or swapped out. Transparent huge pages need no pool and no change to the
program, but the kernel guarantees none (`hugepilot tune`).

pages       all pages of a pool
  in use    touched by a program
  free      not touched
  reserved  free, but promised to a mapping
surplus     pages beyond the persistent count: allocated on demand within `overcommit`, or still in
            use when the count was lowered; each returns to the system when it is freed
";

const HOW: &str = "\
HOW A PROGRAM USES THEM
  mmap      mmap(0, length, …, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | SIZE, -1, 0), where
            length is a multiple of the page size; ENOMEM if the pool has too few free pages
  malloc    GLIBC_TUNABLES=glibc.malloc.hugetlb=2 PROGRAM, with glibc 2.35 or newer; for another
            size, its bytes instead of 2
  files     a mounted hugetlbfs: mount -t hugetlbfs -o pagesize=SIZE none DIRECTORY; files in it
            hold pages until they are removed
  segments  shmget(…, SHM_HUGETLB | …), for the group in /proc/sys/vm/hugetlb_shm_group
A mapping reserves its pages when it is created, so a lack shows at once. With MAP_NORESERVE and
after fork(), it shows at the first touch, as SIGBUS. A cgroup may limit them (hugetlb.SIZE.max).

HOW TO RESIZE A POOL
  sudo hugepilot pool set --size 2MiB --count 512  # 1 GiB in pages of 2 MiB
  sudo hugepilot pool set --size 2MiB --count 0    # return all pages
A page needs contiguous free memory. After boot there is plenty; later memory is fragmented, and the
kernel must move pages. Allocate pages of 1 GiB at boot: hugepagesz=1G hugepages=N on the kernel
command line.
";

/// Explains what pools are, which this machine has, and how a program uses them.
pub fn pool_explained(report: &PoolReport) -> String {
    let mut text = format!("{WHAT}\nPOOLS OF THIS MACHINE\n");
    if report.pools.is_empty() {
        text.push_str("This kernel has no hugetlb pools (built without CONFIG_HUGETLBFS).\n");
    }
    for pool in &report.pools {
        let _ = writeln!(text, "{}", pool_line(pool));
    }
    let processes = match report.processes.len() as u64 {
        0 => "No process uses them".to_owned(),
        count => numbered(count, "process uses", "processes use") + " them",
    };
    let mounts: Vec<&str> = report.mounts.iter().map(|mount| mount.path.as_str()).collect();
    let mounted = if mounts.is_empty() {
        "no hugetlbfs is mounted".to_owned()
    } else {
        format!("hugetlbfs is mounted on {}", mounts.join(", "))
    };
    let _ = writeln!(text, "{processes}; {mounted}. Details: hugepilot pool show\n");
    text.push_str(HOW);
    text
}

fn pool_line(pool: &Pool) -> String {
    let (size, pages) = (pool.page_bytes, &pool.pages);
    let flag = format!("MAP_HUGETLB | ({} << MAP_HUGE_SHIFT)", size.get().max(1).ilog2());
    let default = if pool.is_default { " (default size)" } else { "" };
    let state = match pages.total {
        0 => "empty".to_owned(),
        total => {
            let all = numbered(total, "page", "pages");
            format!("{all} ({}), {} free", size.times(total), pages.free)
        }
    };
    let overcommit = match pool.overcommit {
        0 => String::new(),
        pages => format!(", up to {} on demand", numbered(pages, "surplus page", "surplus pages")),
    };
    format!("{size}{default}: {state}{overcommit}; in mmap: {flag}")
}
