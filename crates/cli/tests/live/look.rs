//! Facts of the kernel, read as plainly as possible: the oracle for the output of the command. None
//! of this goes through the code under test.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use hugepilot_testkit::{Need, need};
use hugepilot_units::{AddrRange, Bytes};

use crate::workload::sizes;

/// Mapping in smaps, with its sizes by label.
#[derive(Clone, Debug, Default)]
pub(crate) struct Area {
    pub(crate) start: u64,
    pub(crate) end: u64,
    sizes: BTreeMap<String, Bytes>,
}

impl Area {
    pub(crate) fn get(&self, label: &str) -> Bytes {
        self.sizes.get(label).copied().unwrap_or(Bytes::ZERO)
    }
    /// Returns the bytes on huge pages of any kind.
    pub(crate) fn huge(&self) -> Bytes {
        ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb"]
            .into_iter()
            .map(|label| self.get(label))
            .sum()
    }
}

/// Reads every mapping of `pid`.
#[track_caller]
pub(crate) fn smaps(pid: u32) -> Vec<Area> {
    areas(&fs::read(format!("/proc/{pid}/smaps")).expect("smaps"))
}

fn areas(text: &[u8]) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for line in String::from_utf8_lossy(text).lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some(label) = first.strip_suffix(':') {
            let size = words.next().and_then(|kib| kib.parse().ok()).map(Bytes::kib);
            let last = areas.last_mut().expect("a mapping comes before its sizes");
            last.sizes.extend(size.map(|size| (label.to_owned(), size)));
        } else if let Some((start, end)) = first.split_once('-') {
            let hex = |text| u64::from_str_radix(text, 16).expect("an address");
            areas.push(Area { start: hex(start), end: hex(end), ..Area::default() });
        }
    }
    areas
}

/// Returns the `label` of all of `pid`'s memory: `Pss`, `Rss`, `AnonHugePages`, …
#[track_caller]
pub(crate) fn total(pid: u32, label: &str) -> Bytes {
    let text = fs::read(format!("/proc/{pid}/smaps_rollup")).expect("smaps_rollup");
    areas(&text).first().expect("one sum").get(label)
}

/// Returns the memory that is available without swapping.
#[track_caller]
pub(crate) fn available() -> Bytes {
    let text = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("a line");
    Bytes::kib(value.trim_end_matches("kB").trim().parse().expect("a number"))
}

/// Returns the field `label` of the status of `pid`, such as `VmLck`; `None` if it has ended.
pub(crate) fn status_bytes(pid: u32, label: &str) -> Option<Bytes> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(':'))?;
    value.trim_end_matches("kB").trim().parse().ok().map(Bytes::kib)
}

/// Lists the children of `pid`.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the anonymous huge bytes of `pid`; 0 if it has ended.
pub(crate) fn huge_now(pid: u32) -> Bytes {
    let text = fs::read(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    areas(&text).first().map_or(Bytes::ZERO, |sum| sum.get("AnonHugePages"))
}

/// Reads `len` bytes of the file `name` of `pid`, from `at` on.
#[track_caller]
fn bytes_of(pid: u32, name: &str, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = File::open(format!("/proc/{pid}/{name}")).expect("a file of a process");
    file.read_exact_at(&mut bytes, at).expect("as much as there is");
    bytes
}

/// Reads `memory` of `pid`. Untouched pages stay untouched.
#[track_caller]
pub(crate) fn contents(pid: u32, memory: AddrRange) -> Vec<u8> {
    bytes_of(pid, "mem", memory.start.get(), memory.len().as_usize())
}

/// Counts the zero-filled base pages of each region of `memory`, byte by byte.
#[track_caller]
pub(crate) fn zero_pages(pid: u32, memory: AddrRange) -> Vec<usize> {
    let sizes = sizes();
    let is_zero = |page: &&[u8]| page.iter().all(|&byte| byte == 0);
    let of_region = |bytes: &[u8]| bytes.chunks(sizes.base.as_usize()).filter(is_zero).count();
    contents(pid, memory).chunks(sizes.huge.as_usize()).map(of_region).collect()
}

/// Reads a word for each base page of `memory`, as in Documentation/admin-guide/mm/pagemap.rst.
#[track_caller]
fn pagemap(pid: u32, memory: AddrRange) -> Vec<u64> {
    let base = sizes().base.get();
    let pages = memory.len().get() / base * 8;
    let bytes =
        bytes_of(pid, "pagemap", memory.start.get() / base * 8, Bytes::new(pages).as_usize());
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
        .collect()
}

/// Counts the base pages of `memory` that are present or swapped: those that were ever touched, if
/// only by reading.
#[track_caller]
pub(crate) fn touched(pid: u32, memory: AddrRange) -> usize {
    pagemap(pid, memory).iter().filter(|&word| word >> 62 != 0).count()
}

/// Whether each region of `memory` is on a huge page, by page frames. Only root sees these.
#[track_caller]
pub(crate) fn huge_map(pid: u32, memory: AddrRange) -> Vec<bool> {
    const IS_HUGE: u64 = 1 << 22;
    let flags = File::open("/proc/kpageflags").expect("the flags of page frames");
    let frame = |word: u64| if word >> 63 == 1 { word & ((1 << 55) - 1) } else { 0 };
    let is_huge = |words: &[u64]| {
        let first = frame(words[0]);
        let mut flag = [0; 8];
        flags.read_exact_at(&mut flag, first * 8).expect("the flags of a frame");
        let in_a_row = words.iter().zip(first..).all(|(&word, expected)| frame(word) == expected);
        first != 0 && in_a_row && u64::from_ne_bytes(flag) & IS_HUGE != 0
    };
    let per_huge = usize::try_from(sizes().base_per_huge()).expect("512");
    pagemap(pid, memory).chunks(per_huge).map(is_huge).collect()
}

/// Returns the fields of `stat` after the name; the first is the state.
pub(crate) fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Returns the minor and major faults so far.
#[track_caller]
pub(crate) fn faults(pid: u32) -> (u64, u64) {
    let stat = stat(pid).expect("it is alive");
    (stat[7].parse().expect("a count"), stat[9].parse().expect("a count"))
}

/// Returns the CPU time used so far, in clock ticks.
#[track_caller]
pub(crate) fn ticks(pid: u32) -> u64 {
    let stat = stat(pid).expect("it is alive");
    stat[11].parse::<u64>().expect("a count") + stat[12].parse::<u64>().expect("a count")
}

/// Returns the peak memory of `pid`.
pub(crate) fn peak(pid: u32) -> Option<Bytes> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok().map(Bytes::kib)
}

/// Reads every setting under `transparent_hugepage`, of khugepaged and of each size too, without
/// statistics.
pub(crate) fn thp_settings() -> Vec<(String, String)> {
    const STATISTICS: [&str; 2] = ["pages_collapsed", "full_scans"];
    let mut settings = Vec::new();
    collect(Path::new("/sys/kernel/mm/transparent_hugepage"), &mut settings);
    settings.retain(|(path, _)| !STATISTICS.iter().any(|name| path.ends_with(name)));
    settings.sort();
    settings
}

fn collect(folder: &Path, settings: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            // Most files are statistics, and every run of the command reads all settings.
            if !path.ends_with("stats") {
                collect(&path, settings);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            settings.push((path.to_string_lossy().into_owned(), text));
        }
    }
}

/// Requires that first touches get base pages. If THP is `always`, no region is left to promote.
pub(crate) fn base_pages_by_default() -> Need {
    let enabled =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if enabled.contains("[always]") { Need::Err("THP is always on".to_owned()) } else { Need::Ok }
}

/// Requires a live test with the capabilities to sample and to promote, and regions left to
/// promote.
pub(crate) fn tunable() -> Need {
    need::all([need::live(), need::cap_sys_nice(), need::cap_perfmon(), base_pages_by_default()])
}
