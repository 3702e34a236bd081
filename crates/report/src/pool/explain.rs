//! What hugetlb pools are, for people who have none yet.

use std::fmt::Write;

use hugepilot_record::pool::{Pool, PoolReport};

const WHAT: &str = "\
WHAT IT IS
A hugetlb pool is memory set aside in huge pages of one size. Only programs that ask for such pages get them, and
they get nothing else: what is in a pool and unused is lost to everybody. In return a page from it is huge for sure,
never split, moved or swapped out, and there when it is touched. Transparent huge pages are the other way: no pool,
no promise, and no change to the program (`hugepilot tune`).

pages      all of a pool; of these are
  in use   touched by a program
  free     not touched; of these are
  reserved promised to a mapping that was made, but not touched yet
surplus    pages over the count that was set: made while `overcommit` allows it, or kept because a program still has
           them when the count was lowered. Each goes back to the system when it is freed.
";

const HOW: &str = "\
HOW A PROGRAM USES THEM
  mmap       mmap(0, length, …, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | SIZE, -1, 0), where length is a multiple
             of the page size; ENOMEM when the pool has too few free pages
  malloc     GLIBC_TUNABLES=glibc.malloc.hugetlb=2 PROGRAM, with glibc 2.35 or newer; another size by its bytes
             instead of 2
  files      a mounted hugetlbfs: mount -t hugetlbfs -o pagesize=SIZE none DIRECTORY; files in it hold pages until they
             are removed
  segments   shmget(…, SHM_HUGETLB | …), for the group in /proc/sys/vm/hugetlb_shm_group
A mapping reserves its pages when it is made, so a lack shows at once; with MAP_NORESERVE, and after fork(), it shows at the
first touch as SIGBUS. A cgroup may limit them besides (hugetlb.SIZE.max).

HOW TO HAVE SOME
  sudo hugepilot pool set --size 2MiB --count 512    1 GiB in pages of 2 MiB
  sudo hugepilot pool set --size 2MiB --count 0      and back
Pages need free memory in one aligned piece. After boot there is plenty; later memory is in pieces, and the kernel
must move pages to join them. For pages of 1 GiB ask at boot: hugepagesz=1G hugepages=N on the kernel command line.
";

/// In words: what the pools are, what is there, and what a program must do to use them.
pub fn pool_explained(report: &PoolReport) -> String {
    let mut text = format!("{WHAT}\nWHAT IS HERE\n");
    if report.pools.is_empty() {
        text.push_str(
            "This kernel has no hugetlb pools (it was built without CONFIG_HUGETLBFS).\n",
        );
    }
    for pool in &report.pools {
        let _ = writeln!(text, "{}", here(pool));
    }
    let processes = match report.processes.len() {
        0 => "No process uses them".to_owned(),
        1 => "1 process uses them".to_owned(),
        count => format!("{count} processes use them"),
    };
    let mounts: Vec<&str> = report.mounts.iter().map(|mount| mount.path.as_str()).collect();
    let mounted = if mounts.is_empty() {
        "no hugetlbfs is mounted".to_owned()
    } else {
        format!("hugetlbfs is mounted on {}", mounts.join(", "))
    };
    let _ = writeln!(text, "{processes}; {mounted}. `hugepilot pool show` has all of it.\n");
    text.push_str(HOW);
    text
}

fn here(pool: &Pool) -> String {
    let (size, pages) = (pool.page_bytes, &pool.pages);
    let flag = format!("MAP_HUGETLB | ({} << MAP_HUGE_SHIFT)", size.get().max(1).ilog2());
    let default = if pool.is_default { ", the size where none is named" } else { "" };
    let there = match pages.total {
        0 => "the pool is empty".to_owned(),
        total => format!("{total} pages ({}), {} of them free", size.times(total), pages.free),
    };
    let more = if pool.overcommit > 0 {
        format!(", up to {} more while programs ask", pool.overcommit)
    } else {
        String::new()
    };
    format!("{size}{default}: {there}{more}; in mmap: {flag}")
}
