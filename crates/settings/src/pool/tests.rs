use std::fs;

use hugepilot_render::Width;
use hugepilot_reports::pool::{PoolNote, PoolPages, PoolShortfall};
use hugepilot_reports::{pool_change_text, pool_explained, pool_text};
use hugepilot_testkit::assert_golden;
use hugepilot_units::Share;

use super::*;

const M2: Bytes = Bytes::mib(2);
const G1: Bytes = Bytes::gib(1);
const ROOMY: &str = "Node 0, zone   Normal 100 50 20 10 5 5 5 5 5 100 2000\n";
const FRAGMENTED: &str = "Node 0, zone   Normal 900000 400000 100000 20000 500 90 8 1 0 0 0\n";

/// A captured machine, and a kernel that behaves as Linux does when its pools are written.
struct Fake {
    root: Root,
    _dir: tempfile::TempDir,
    /// Pages that it can still allocate on each node.
    room: Vec<u64>,
    /// Paths and texts of all writes.
    written: Vec<(String, String)>,
    /// Error of a write of a count.
    errno: Option<i32>,
}

impl Fake {
    /// A machine of 16 GiB with these NUMA nodes and free blocks, and empty pools of these sizes.
    fn new(nodes: u32, sizes: &[Bytes], blocks: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let room = vec![u64::MAX; nodes as usize];
        let fake =
            Self { root: Root::at(dir.path()), _dir: dir, room, written: Vec::new(), errno: None };
        let meminfo = "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nMemAvailable: 12582912 kB\n\
                       Hugepagesize: 2048 kB\n";
        fake.file("proc/meminfo", meminfo);
        fake.file("proc/buddyinfo", blocks);
        for node in 0..nodes {
            let part = |kib: u64| kib / u64::from(nodes);
            let text = format!(
                "Node {node} MemTotal: {} kB\nNode {node} MemFree: {} kB\n\
                 Node {node} Inactive(file): {} kB\n",
                part(16 << 20),
                part(8 << 20),
                part(4 << 20)
            );
            fake.file(&format!("sys/devices/system/node/node{node}/meminfo"), &text);
        }
        for &size in sizes {
            fake.file(&format!("{}/nr_overcommit_hugepages", hugetlb::directory(size, None)), "0");
            for node in (0..nodes).map(Some).chain([None]) {
                fake.pool(size, node, PoolPages { reserved: Some(0), ..PoolPages::default() });
            }
        }
        fake
    }
    fn file(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn pool(&self, size: Bytes, node: Option<u32>, pages: PoolPages) {
        let directory = hugetlb::directory(size, node);
        let counts = [
            ("nr", Some(pages.total)),
            ("free", Some(pages.free)),
            ("surplus", Some(pages.surplus)),
        ];
        for (name, count) in
            counts.into_iter().chain([("resv", pages.reserved.filter(|_| node.is_none()))])
        {
            if let Some(count) = count {
                self.file(&format!("{directory}/{name}_hugepages"), &format!("{count}\n"));
            }
        }
    }
    fn pages(&self, size: Bytes, node: Option<u32>) -> PoolPages {
        hugetlb::pages(&self.root, size, node).unwrap()
    }
    fn set(&mut self, request: PoolRequest) -> PoolChange {
        set(self, &request, &|| false).unwrap()
    }
    fn cause(&mut self, request: PoolRequest) -> PoolUnsupported {
        match set(self, &request, &|| false) {
            Err(SettingsError::Refused(Unsupported::Pool(cause))) => cause,
            other => panic!("{other:?}"),
        }
    }
    fn counts_written(&self) -> Vec<&str> {
        let counts = self.written.iter().filter(|(path, _)| path.ends_with("nr_hugepages"));
        counts.map(|(_, text)| text.as_str()).collect()
    }
    /// Sets the part of one node; held pages stay, as surplus.
    fn set_part(&mut self, size: Bytes, node: u32, count: u64, held: u64) {
        let (pages, room) = (self.pages(size, Some(node)), &mut self.room[node as usize]);
        let made = count.saturating_sub(pages.total).min(*room);
        *room -= made;
        let total =
            if count > pages.total { pages.total + made } else { count.max(held.min(pages.total)) };
        let free = (pages.free + total).saturating_sub(pages.total);
        let now = PoolPages { total, free, reserved: None, surplus: total.saturating_sub(count) };
        self.pool(size, Some(node), now);
    }
}

impl PoolKernel for Fake {
    fn root(&self) -> &Root {
        &self.root
    }
    fn write(&mut self, path: &str, text: &str) -> std::result::Result<(), KernelError> {
        self.written.push((path.to_owned(), text.to_owned()));
        if !path.ends_with("nr_hugepages") {
            return Ok(());
        }
        if let Some(errno) = self.errno {
            return Err(KernelError::write(
                &self.root.join(path),
                std::io::Error::from_raw_os_error(errno),
            ));
        }
        let size = if path.contains("hugepages-2048kB") { M2 } else { G1 };
        let count: u64 = text.parse().unwrap();
        let nodes = hugetlb::nodes(&self.root);
        let all = self.pages(size, None);
        let chosen = nodes.iter().copied().find(|node| path.contains(&format!("node{node}/")));
        let others = nodes.len() as u64;
        for &node in nodes.iter().filter(|&&node| chosen.is_none_or(|chosen| chosen == node)) {
            let (share, held) =
                if chosen.is_some() { (count, 0) } else { (count / others, all.held()) };
            let first = u64::from(chosen.is_none() && node == 0) * (count % others);
            self.set_part(size, node, share + first, held);
        }
        let parts: Vec<PoolPages> =
            nodes.iter().map(|&node| self.pages(size, Some(node))).collect();
        let sum = |count: fn(&PoolPages) -> u64| parts.iter().map(count).sum();
        let (total, free, surplus) = (sum(|p| p.total), sum(|p| p.free), sum(|p| p.surplus));
        self.pool(size, None, PoolPages { total, free, surplus, reserved: all.reserved });
        Ok(())
    }
}

fn ask(size: Bytes, count: u64) -> PoolRequest {
    let floor = Amount::Share(Share::percent(10.0));
    PoolRequest { size, count, node: None, floor, force: false, compact: false, dry_run: false }
}

fn golden(name: &str, text: &str) {
    assert_golden(format!("{}/testdata/pool-{name}.txt", env!("CARGO_MANIFEST_DIR")), text);
}

fn golden_change(name: &str, change: &PoolChange) {
    // The time differs in each run.
    let change = PoolChange { seconds: change.seconds.and(Some(0.25)), ..change.clone() };
    golden(name, &pool_change_text(&change, Width::UNLIMITED));
}

#[test]
fn two_nodes_and_both_sizes_are_shown_with_their_users() {
    let blocks = "Node 0, zone    DMA32 3 3 2 2 5 5 4 3 4 10 16\n\
                  Node 0, zone   Normal 100 50 20 10 5 5 5 5 5 100 200\n\
                  Node 1, zone   Normal 7 50 20 10 5 5 5 5 5 0 1\n";
    let fake = Fake::new(2, &[M2, G1], blocks);
    fake.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", "64\n");
    fake.pool(M2, None, PoolPages { total: 40, free: 24, reserved: Some(4), surplus: 8 });
    fake.pool(M2, Some(0), PoolPages { total: 30, free: 14, reserved: None, surplus: 8 });
    fake.pool(M2, Some(1), PoolPages { total: 10, free: 10, reserved: None, surplus: 0 });
    fake.pool(G1, None, PoolPages { total: 2, free: 0, reserved: Some(0), surplus: 0 });
    fake.pool(G1, Some(1), PoolPages { total: 2, free: 0, reserved: None, surplus: 0 });
    fake.file("proc/4711/status", "Name:\tpostgres\nHugetlbPages:\t 2129920 kB\n");
    fake.file("proc/4711/smaps_rollup", "Shared_Hugetlb: 0 kB\nPrivate_Hugetlb: 2129920 kB\n");
    fake.file("proc/4712/status", "Name:\tqemu\u{1b}[31m\nHugetlbPages:\t 2048 kB\n");
    fake.file(
        "proc/self/mounts",
        "hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n",
    );
    let report = show(&fake.root).unwrap();
    golden("show", &pool_text(&report, Width::UNLIMITED));
    golden("explain", &pool_explained(&report));
    assert_eq!(serde_json::to_value(&report).unwrap()["pools"][0]["nodes"][1]["total"], 10);
}

#[test]
fn a_kernel_without_pools_says_so() {
    let mut fake = Fake::new(1, &[], ROOMY);
    let report = show(&fake.root).unwrap();
    golden("none", &pool_text(&report, Width::UNLIMITED));
    assert!(pool_explained(&report).contains("CONFIG_HUGETLBFS"));
    assert_eq!(fake.cause(ask(M2, 1)), PoolUnsupported::NoPools);
}

#[test]
fn an_unknown_size_or_node_is_an_error_with_the_known_ones() {
    let mut fake = Fake::new(1, &[M2], ROOMY);
    let unknown = |lacks_pdpe1gb| {
        let sizes_bytes = vec![M2];
        PoolUnsupported::NoSuchSize { size_bytes: G1, sizes_bytes, lacks_pdpe1gb }
    };
    assert_eq!(fake.cause(ask(G1, 1)), unknown(false));
    let no_node = PoolUnsupported::NoSuchNode { node: 7, size_bytes: M2, nodes: vec![0] };
    assert_eq!(fake.cause(PoolRequest { node: Some(7), ..ask(M2, 1) }), no_node);
    fake.file("proc/cpuinfo", "flags : fpu pse\n");
    assert_eq!(fake.cause(ask(G1, 1)), unknown(true));
    assert_eq!(fake.written, []);
}

#[test]
fn pages_are_requested_a_gigabyte_at_a_time() {
    let mut fake = Fake::new(2, &[M2, G1], ROOMY);
    let change = fake.set(ask(M2, 1200));
    assert!(change.is_complete() && change.after.unwrap().persistent() == 1200, "{change:?}");
    assert_eq!(fake.counts_written(), ["512", "1024", "1200"]);
    golden_change("set", &change);
    let change = fake.set(ask(G1, 2));
    assert_eq!(change.after.unwrap().total, 2);
    let permanent = change.permanent.unwrap();
    assert_eq!(permanent.kernel_command_line, "hugepagesz=1G hugepages=2");
    let line = "w /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages - - - - 2";
    assert_eq!(permanent.line, line, "no sysctl has that size");
    // The pool has that size already: nothing to do, and nothing to undo.
    fake.written.clear();
    let change = fake.set(ask(M2, 1200));
    assert!(change.is_complete() && change.undo.is_none() && fake.written.is_empty(), "{change:?}");
}

#[test]
fn a_shortfall_is_reported_with_the_free_blocks() {
    let mut fake = Fake::new(1, &[M2], FRAGMENTED);
    fake.room[0] = 700;
    let change = fake.set(ask(M2, 2000));
    assert!(!change.is_complete() && change.after.unwrap().total == 700, "{change:?}");
    assert_eq!(fake.counts_written(), ["512", "1024"], "it stops at the first shortfall");
    golden_change("fragmented", &change);
    let change = fake.set(PoolRequest { compact: true, ..ask(M2, 2000) });
    let fragmented = &change.causes[0];
    let compacted = matches!(fragmented, PoolShortfall::Fragmented { compacted: true, .. });
    assert!(change.compacted && compacted, "{change:?}");
    assert_eq!(fake.written[2], ("proc/sys/vm/compact_memory".to_owned(), "1".to_owned()));
}

#[test]
fn without_contiguous_gigabytes_the_help_is_to_allocate_at_boot() {
    let mut fake = Fake::new(2, &[M2, G1], ROOMY);
    fake.room = vec![1, 0];
    golden_change("gigantic", &fake.set(PoolRequest { node: Some(0), ..ask(G1, 3) }));
    // A kernel that allocates them only at boot.
    fake.errno = Some(22);
    let change = fake.set(ask(G1, 2));
    let boot_parameters = Some("hugepagesz=1G hugepages=2".to_owned());
    assert_eq!(change.causes, [PoolShortfall::BootOnly { page_bytes: G1, boot_parameters }]);
    assert_eq!(change.after.unwrap().total, 1);
}

#[test]
fn memory_in_use_is_not_fragmentation() {
    let mut fake = Fake::new(1, &[M2], FRAGMENTED);
    fake.room[0] = 3;
    fake.file(
        "proc/meminfo",
        "MemTotal: 16777216 kB\nMemFree: 65536 kB\nMemAvailable: 131072 kB\n",
    );
    let change = fake.set(PoolRequest { force: true, ..ask(M2, 200) });
    assert!(matches!(change.causes[0], PoolShortfall::MemoryInUse { .. }), "{change:?}");
}

#[test]
fn the_floor_is_kept_and_total_memory_never_exceeded() {
    let mut fake = Fake::new(2, &[M2], ROOMY);
    // 12 of 16 GiB are available, and the floor is 1.6: 10.4 GiB remain.
    let change = fake.set(ask(M2, 5500));
    assert!(change.after.is_none() && change.undo.is_none() && !change.is_complete(), "{change:?}");
    golden_change("floor", &change);
    let excess = fake.set(PoolRequest { force: true, ..ask(M2, 8193) });
    let total_bytes = Bytes::gib(16);
    let requested_bytes = M2.times(8193);
    let cause = PoolShortfall::ExceedsMemory { requested_bytes, total_bytes, node: None };
    assert_eq!(excess.causes, [cause]);
    let excess = fake.set(ask(M2, u64::MAX));
    assert!(excess.after.is_none() && !excess.is_complete());
    let of_node = fake.set(PoolRequest { node: Some(1), ..ask(M2, 2900) });
    let below = matches!(of_node.causes[0], PoolShortfall::BelowFloor { node: Some(1), .. });
    assert!(below, "{of_node:?}");
    assert_eq!(fake.written, []);
    assert!(fake.set(PoolRequest { force: true, ..ask(M2, 5500) }).is_complete());
}

#[test]
fn memory_that_other_processes_take_meanwhile_ends_it() {
    let mut fake = Fake::new(1, &[M2], ROOMY);
    let checks = std::cell::Cell::new(0);
    let meminfo = fake.root.join("proc/meminfo");
    let change = set(&mut fake, &ask(M2, 2048), &|| {
        checks.set(checks.get() + 1);
        if checks.get() == 3 {
            fs::write(&meminfo, "MemTotal: 16777216 kB\nMemAvailable: 2097152 kB\n").unwrap();
        }
        false
    });
    let change = change.unwrap();
    assert_eq!(change.after.unwrap().total, 1024);
    let below = matches!(change.causes[0], PoolShortfall::BelowFloor { max_pages: None, .. });
    assert!(below && change.undo.is_some(), "{change:?}");
}

#[test]
fn a_signal_keeps_the_pages_and_the_command_that_undoes_it() {
    let mut fake = Fake::new(1, &[M2], ROOMY);
    fake.pool(M2, Some(0), PoolPages { total: 8, free: 8, reserved: None, surplus: 0 });
    fake.pool(M2, None, PoolPages { total: 8, free: 8, reserved: Some(0), surplus: 0 });
    let checks = std::cell::Cell::new(0);
    let interrupted = || {
        checks.set(checks.get() + 1);
        checks.get() > 2
    };
    let change = set(&mut fake, &ask(M2, 5000), &interrupted).unwrap();
    assert!(change.interrupted && !change.is_complete());
    assert_eq!(change.after.unwrap().total, 8 + 1024);
    golden_change("interrupted", &change);
}

#[test]
fn pages_in_use_stay_as_surplus_when_the_count_is_lowered() {
    let mut fake = Fake::new(1, &[M2], ROOMY);
    let pages = PoolPages { total: 20, free: 15, reserved: Some(2), surplus: 0 };
    fake.pool(M2, Some(0), pages);
    fake.pool(M2, None, pages);
    let dry = fake.set(PoolRequest { dry_run: true, ..ask(M2, 0) });
    assert!(dry.is_complete() && dry.warnings == [PoolNote::PagesHeld { pages: 7 }], "{dry:?}");
    assert_eq!(fake.written, []);
    let change = fake.set(ask(M2, 0));
    let after = change.after.unwrap();
    assert_eq!(
        (after.total, after.surplus, after.persistent(), change.is_complete()),
        (7, 7, 0, false)
    );
    golden_change("surplus", &change);
    // They become persistent again, without new memory.
    let again = fake.set(ask(M2, 7));
    assert!(again.is_complete() && again.after.unwrap().surplus == 0, "{again:?}");
}

#[test]
fn one_node_is_set_alone() {
    let mut fake = Fake::new(2, &[M2], ROOMY);
    fake.set(ask(M2, 10));
    let change = fake.set(PoolRequest { node: Some(1), ..ask(M2, 9) });
    assert_eq!((fake.pages(M2, Some(0)).total, fake.pages(M2, Some(1)).total), (5, 9));
    assert_eq!(change.undo.unwrap(), "sudo hugepilot pool set --size 2MiB --count 5 --node 1");
    let permanent = change.permanent.unwrap();
    assert_eq!(permanent.kernel_command_line, "hugepagesz=2M hugepages=1:9");
    assert!(permanent.line.contains("/node1/"), "the sysctl does not know nodes");
}

#[test]
fn a_dry_run_has_the_free_blocks_and_writes_nothing() {
    let mut fake = Fake::new(1, &[M2, G1], FRAGMENTED);
    let change = fake.set(PoolRequest { dry_run: true, compact: true, ..ask(M2, 100) });
    golden_change("dry-run", &change);
    let change = fake.set(PoolRequest { dry_run: true, ..ask(G1, 1) });
    let unknown = matches!(change.warnings[0], PoolNote::ContiguityUnknown { .. });
    assert!(unknown, "{change:?}");
    assert!(!fake.set(PoolRequest { dry_run: true, ..ask(M2, 6000) }).is_complete());
    assert_eq!(fake.written, []);
}

/// Process `pid` has raised the pool from 7 to 300 pages for a run.
fn lend(fake: &Fake, pid: u32) {
    let setting = r#"{"name": "hugepages-2048kB/nr_hugepages", "before": "7", "set_to": "300"}"#;
    let journal =
        format!(r#"{{"schema": "hugepilot.settings/1", "pid": {pid}, "settings": [{setting}]}}"#);
    fake.file("run/hugepilot/settings.json", &journal);
}

#[test]
fn a_pool_that_a_run_restores_at_its_end_is_not_set_meanwhile() {
    let mut fake = Fake::new(1, &[M2], ROOMY);
    lend(&fake, 1);
    let request = ask(M2, 300);
    let cause = fake.cause(request);
    let pid = hugepilot_record::Pid(1);
    let raised = PoolUnsupported::RaisedByRun { pid, size_bytes: M2, before: 7, raised: 300 };
    assert_eq!(cause, raised);
    assert_eq!(fake.counts_written(), [""; 0]);
    lend(&fake, std::process::id());
    fake.set(request);
    assert_eq!(fake.counts_written(), ["300"], "a run may set its own");
}
