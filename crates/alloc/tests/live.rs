//! Live tests of regions: they change the machine's pools and settings, and restore them.
//!
//! `HUGEPILOT_LIVE=1 cargo test -p hugepilot-alloc --test live -- --test-threads=1`, as root. Each
//! test prints what it lacks and skips itself. One at a time, because all processes share the
//! settings.
//!
//! # Safety
//! After fork, the child reads and writes its memory, makes system calls, and ends without
//! destructors.
#![allow(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use hugepilot_alloc::{
    AllocError, Backing, Fork, Help, HugeRegion, HugeVec, NameStatus, Numa, Options, PageUsage,
};
use hugepilot_record::Errno;
use hugepilot_testkit::{Need, need, requires};
use hugepilot_units::Bytes;

const M2: Bytes = Bytes::mib(2);
const G1: Bytes = Bytes::gib(1);

/// Settings file, restored on drop.
struct Setting {
    path: PathBuf,
    before: String,
}

impl Setting {
    fn open(path: impl Into<PathBuf>) -> Result<Self, String> {
        let path = path.into();
        let before =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // Settings with a choice mark it with brackets.
        let chosen =
            before.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
        let before = chosen.unwrap_or(before.trim()).to_owned();
        Ok(Self { path, before })
    }
    fn set(&self, text: &str) -> Result<(), String> {
        fs::write(&self.path, text).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.set(&self.before).expect("a setting that was changed can be changed back");
    }
}

fn pool_number(page: Bytes, file: &str) -> Result<u64, String> {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/{file}", page.get() >> 10);
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{path}: {text:?}"))
}

/// Makes exactly `count` pages of this size free.
fn pool(page: Bytes, count: u64) -> Result<Setting, String> {
    let number = |file| pool_number(page, file);
    if number("nr_overcommit_hugepages")? > 0 {
        return Err(format!("the pool of {page} pages grows by itself"));
    }
    let spare = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
    let others = number("nr_hugepages")? - spare;
    let kib = page.get() >> 10;
    let setting =
        Setting::open(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"))?;
    setting.set(&(others + count).to_string())?;
    let usage = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
    if usage == count {
        Ok(setting)
    } else {
        Err(format!("no free hugetlb pages: {count} of {page}"))
    }
}

fn live() -> Need {
    need::all([need::live(), need::root()])
}

fn map(len: Bytes, chain: &str) -> hugepilot_alloc::Result<HugeRegion> {
    HugeRegion::map(len, &Options::new(chain.parse().expect("a chain")))
}

#[test]
fn a_pool_serves_its_pages_and_reports_a_shortage() {
    requires!(live());
    let pool = pool(M2, 4);
    requires!(pool.as_ref());
    let mut region = map(M2.times(3), "hugetlb-2m,thp,base").unwrap();
    assert_eq!((region.backing(), region.refused().count()), (Backing::Hugetlb2M, 0));
    // The pages are there before the first touch, which the limit of a cgroup could refuse.
    let usage = PageUsage { hugetlb_2m: M2.times(3), ..PageUsage::default() };
    assert_eq!(region.usage().unwrap(), usage);
    region.bytes_mut()[M2.as_usize() + 5] = 5;
    region.prefault(2).unwrap();
    assert_eq!(region.bytes()[M2.as_usize() + 5], 5);

    let error = map(M2.times(2), "hugetlb-2m").unwrap_err();
    match error {
        AllocError::PoolEmpty { page: M2, wanted: 2, pool, errno: Errno::ENOMEM } => {
            assert_eq!(pool.spare(), 1, "{error}");
        }
        error => panic!("{error}"),
    }
    let other = map(M2.times(2), "hugetlb-2m,base").unwrap();
    assert_eq!((other.backing(), other.refused().next()), (Backing::Base, Some(&error)));
    let last = map(M2, "hugetlb-2m").unwrap();
    drop((region, last));
    assert_eq!(map(M2.times(4), "hugetlb-2m").unwrap().backing(), Backing::Hugetlb2M);
    assert_eq!(pool_number(M2, "resv_hugepages").unwrap(), 0);
    drop(pool);
}

#[test]
fn the_help_for_an_empty_pool_is_enough() {
    requires!(live());
    let pool = pool(M2, 1);
    requires!(pool.as_ref());
    let help = map(M2.times(6), "hugetlb-2m").unwrap_err().help();
    let Some(Help::ResizePool { page: M2, count }) = help else { panic!("{help:?}") };
    pool.as_ref().unwrap().set(&count.to_string()).unwrap();
    requires!(map(M2.times(6), "hugetlb-2m"));
    assert!(map(M2.times(7), "hugetlb-2m").is_err());
}

#[test]
fn alignment_above_the_pages_of_a_pool_takes_no_page_more() {
    requires!(live());
    let pool = pool(M2, 2);
    requires!(pool.as_ref());
    for align in [Bytes::mib(4), Bytes::mib(64), G1] {
        let options = Options::only(Backing::Hugetlb2M).aligned(align);
        let region = HugeRegion::map(M2.times(2), &options).unwrap();
        assert_eq!(region.range().start.get() % align.get(), 0, "{align}");
        region.prefault(1).unwrap();
    }
}

#[test]
fn a_vector_grows_on_a_pool_and_beyond_it() {
    requires!(live());
    let pool = pool(M2, 6);
    requires!(pool.as_ref());
    let mut vec = HugeVec::new(Options::new("hugetlb-2m,base".parse().unwrap()));
    let mut seen = Vec::new();
    for i in 0..2 << 20_u64 {
        vec.push(i).unwrap();
        if seen.last() != Some(&vec.backing()) {
            seen.push(vec.backing());
        }
    }
    assert!(vec.iter().enumerate().all(|(i, &item)| i as u64 == item));
    assert_eq!(seen, [Some(Backing::Hugetlb2M), Some(Backing::Base)]);
    assert_eq!(pool_number(M2, "free_hugepages").unwrap(), 6);
}

#[test]
fn memory_on_a_pool_takes_no_name_and_can_be_bound() {
    requires!(live());
    let pool = pool(M2, 2);
    requires!(pool.as_ref());
    let options = Options::only(Backing::Hugetlb2M).named("live test").unwrap();
    let region = HugeRegion::map(M2, &options).unwrap();
    assert!(
        matches!(region.named(), NameStatus::Refused(Errno(libc::EBADF | libc::EINVAL))),
        "{:?}",
        region.named()
    );
    let bound = HugeRegion::map(M2, &options.on(Numa::Bind("0".parse().unwrap())));
    requires!(bound.as_ref());
    assert_eq!(bound.unwrap().usage().unwrap().hugetlb_2m, M2, "prefaulted at once");
}

/// Runs `before` in a child, `between` here, then `after` in the child. Returns its exit status, or
/// its negative signal.
fn child(before: impl FnOnce(), between: impl FnOnce(), after: impl FnOnce() -> u8) -> i32 {
    let ((told, tell), (hear, say)) =
        (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
    // SAFETY: see the module.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            before();
            let _ =
                rustix::io::write(&say, &[1]).and_then(|_| rustix::io::read(&told, &mut [0_u8]));
            let status = after();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(status)) }
        }
        pid => {
            drop(say);
            let _ = rustix::io::read(&hear, &mut [0_u8]);
            between();
            // A child that died in `before` reads nothing.
            let _ = rustix::io::write(&tell, &[1]);
            let mut status = 0;
            // SAFETY: this process's own child, awaited once; the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                -libc::WTERMSIG(status)
            }
        }
    }
}

/// Checks the documentation of [`Fork`] on pool memory.
#[test]
fn after_fork_a_used_up_pool_harms_the_child_and_never_the_parent() {
    requires!(live());
    let pool = pool(M2, 1);
    requires!(pool.as_ref());
    let region = HugeRegion::map(M2, &Options::only(Backing::Hugetlb2M)).unwrap();
    region.prefault(1).unwrap();
    let byte = region.as_ptr();
    // SAFETY: the region lives to the end of the test, and these run one at a time.
    let (read, write) =
        (|| unsafe { byte.read_volatile() }, |value| unsafe { byte.write_volatile(value) });
    write(41);
    assert_eq!(child(|| (), || (), read), 41, "the child reads the parent's page");
    let child_writes = child(
        || (),
        || (),
        || {
            write(1);
            read()
        },
    );
    assert_eq!((child_writes, read()), (-libc::SIGBUS, 41), "no page is left for the child's copy");
    assert_eq!(
        child(|| (), || write(42), read),
        -libc::SIGBUS,
        "the parent's write takes the page from the child"
    );
    assert_eq!(read(), 42);

    let absent = Options::only(Backing::Hugetlb2M).forked(Fork::Absent);
    drop(region);
    let mut region = HugeRegion::map(M2, &absent).unwrap();
    region.bytes_mut()[0] = 7;
    assert_eq!(child(|| (), || (), || region.bytes()[0]), -libc::SIGSEGV);
    assert_eq!(region.bytes()[0], 7);
}

/// A cgroup of version 2 that limits pool pages, removed on drop.
struct PoolGroup {
    directory: PathBuf,
    /// File that turns the controller off again; `None` if the controller was on.
    turned_on: Option<PathBuf>,
}

impl PoolGroup {
    fn new() -> Result<Self, String> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let controllers = |root: &PathBuf| fs::read_to_string(root.join("cgroup.controllers"));
        let has = |root: &&PathBuf| controllers(root).is_ok_and(|text| text.contains("hugetlb"));
        let root = roots.iter().find(has).ok_or("no hugetlb controller of version 2")?;
        let directory = root.join(format!("hugepilot-test-{}", std::process::id()));
        let failed = |error: std::io::Error| error.to_string();
        let control = root.join("cgroup.subtree_control");
        let before = fs::read_to_string(&control).map_err(failed)?;
        fs::write(&control, "+hugetlb").map_err(failed)?;
        let turned_on = (!before.contains("hugetlb")).then_some(control);
        fs::create_dir(&directory).map_err(failed)?;
        Ok(Self { directory, turned_on })
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.directory.join(format!("hugetlb.2MB.{file}")), value).unwrap();
    }

    fn enter(&self) {
        let pid = std::process::id().to_string();
        fs::write(self.directory.join("cgroup.procs"), pid).unwrap();
    }
}

impl Drop for PoolGroup {
    fn drop(&mut self) {
        let removed = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            fs::remove_dir(&self.directory).is_ok()
        });
        let restored = self.turned_on.as_ref().map(|control| fs::write(control, "-hugetlb"));
        let is_done = removed && restored.is_none_or(|restored| restored.is_ok());
        assert!(is_done || std::thread::panicking(), "{}", self.directory.display());
    }
}

/// Writes 16 objects of 1 MiB of a heap on a pool, and then in a child by fork. Returns how many
/// regions of a pool the first region of its own lacks.
fn use_pool() -> u8 {
    let options = Options::new("hugetlb-2m,base".parse().unwrap());
    let heap = hugepilot_alloc::Heap::new(options);
    let fill = || {
        let layout = std::alloc::Layout::from_size_align(1 << 20, 16).unwrap();
        for _ in 0..16 {
            let object = heap.allocate(layout).unwrap();
            // SAFETY: memory of this length, without other users.
            unsafe { object.write_bytes(1, 1 << 20) };
        }
        0
    };
    fill();
    assert_eq!(child(|| (), || (), fill), 0, "after fork");
    let mut region = map(M2.times(8), "hugetlb-2m,base").unwrap();
    region.bytes_mut().fill(1);
    let is_limit = |error: &AllocError| matches!(error, AllocError::PoolLimit { .. });
    u8::from(region.backing() == Backing::Base && region.refused().all(is_limit))
}

#[test]
fn pages_that_a_cgroup_does_not_grant_come_from_the_next_backing() {
    requires!(live());
    let group = PoolGroup::new();
    requires!(group.as_ref());
    let pool = pool(M2, 64);
    requires!(pool.as_ref());
    let group = group.unwrap();
    for (file, value) in [("max", "0"), ("max", "8M"), ("rsvd.max", "0"), ("rsvd.max", "4M")] {
        group.set(file, value);
        let status = child(|| group.enter(), || (), use_pool);
        assert_eq!(status, 1, "{file} {value}");
        group.set(file, "max");
    }
    assert_eq!(child(|| group.enter(), || (), use_pool), 0, "without a limit");
}

#[test]
fn a_page_of_a_gigabyte_is_seen_as_one() {
    requires!(live());
    requires!(need::memory(Bytes::gib(3)));
    let pool = pool(G1, 1);
    requires!(pool.as_ref());
    let region = map(Bytes::mib(5), "hugetlb-1g").unwrap();
    assert_eq!(region.len(), G1);
    region.prefault(2).unwrap();
    assert_eq!(region.usage().unwrap(), PageUsage { hugetlb_1g: G1, ..PageUsage::default() });
    assert!(matches!(
        map(G1, "hugetlb-1g").unwrap_err(),
        AllocError::PoolEmpty { page: G1, wanted: 1, .. }
    ));
}

#[test]
fn thp_set_to_never_is_refused_and_collapse_does_without() {
    requires!(live());
    let enabled = Setting::open("/sys/kernel/mm/transparent_hugepage/enabled");
    requires!(enabled.as_ref());
    enabled.as_ref().unwrap().set("never").unwrap();
    // A setting of the page size overrides the global one.
    let inherits =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled");
    requires!(Need::from(inherits.map_err(|error| error.to_string()).and_then(|text| {
        if text.contains("[inherit]") {
            Ok(())
        } else {
            Err("pages of 2MiB are set apart".to_owned())
        }
    })));
    let never = AllocError::ThpNever(hugepilot_alloc::Setting::ThpEnabled);
    assert_eq!(map(M2, "thp").unwrap_err(), never);
    let region = map(M2.times(4), "thp,base").unwrap();
    assert_eq!((region.backing(), region.refused().next()), (Backing::Base, Some(&never)));
    let region = map(M2.times(4), "collapse");
    requires!(region.as_ref());
    let region = region.unwrap();
    region.prefault(1).unwrap();
    let usage = region.usage().unwrap();
    assert!(usage.thp > Bytes::ZERO, "{usage:?}, {:?}", region.collapse());
}
