//! Looks at a program's memory while it runs, and remembers the most of each kind.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hugepilot_kernel::usage::{self, Usage};
use hugepilot_kernel::{Root, Used};
use hugepilot_record::Pid;
use hugepilot_record::run::{Obstacles, Peak};
use hugepilot_units::Bytes;

use super::program::allocator_in;

/// The first look comes so soon, and each next one as much later again, up to the longest pause.
const FIRST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(250);
/// After a look we rest so many times as long as it took: looking costs the program at most a hundredth of its time, as
/// the kernel holds its memory map meanwhile.
const REST: u32 = 100;
/// Looks at which its libraries are looked at, too: those of a program are there from its start.
const LIBRARY_LOOKS: u32 = 6;

/// What was seen.
pub(super) struct Watch {
    root: Root,
    library: Option<PathBuf>,
    peak: Usage,
    looks: u32,
    hidden_looks: u32,
    spent: Duration,
    pause: Duration,
    next: Instant,
    saw_library: bool,
    own_allocator: Option<String>,
}

impl Watch {
    pub(super) fn new(root: &Root, library: Option<PathBuf>) -> Self {
        Self {
            root: root.clone(),
            library,
            peak: Usage::default(),
            looks: 0,
            hidden_looks: 0,
            spent: Duration::ZERO,
            pause: FIRST,
            next: Instant::now() + FIRST,
            saw_library: false,
            own_allocator: None,
        }
    }

    /// When it wants to look next.
    pub(super) const fn due(&self) -> Instant {
        self.next
    }

    /// Looks at `pid` and all that it started.
    pub(super) fn look(&mut self, pid: Pid) {
        let begun = Instant::now();
        let family = usage::family(&self.root, pid);
        let seen = usage::of(&self.root, &family);
        // One that is just ending has no memory any more: that was no look.
        if seen.resident > Bytes::ZERO {
            self.looks += 1;
            self.hidden_looks += u32::from(seen.hidden > 0);
            self.peak.raise_to(&seen);
            if self.looks <= LIBRARY_LOOKS || self.looks.is_power_of_two() {
                family.iter().for_each(|&pid| self.look_at_libraries(pid));
            }
        }
        let took = begun.elapsed();
        self.spent += took;
        self.pause = (self.pause * 2).min(LONGEST);
        self.next = Instant::now() + self.pause.max(took * REST);
    }

    fn look_at_libraries(&mut self, pid: Pid) {
        let files = usage::mapped_files(&self.root, pid);
        let wanted = self.library.as_ref().and_then(|library| library.to_str());
        self.saw_library |= files.iter().any(|file| Some(file.as_str()) == wanted);
        self.own_allocator = allocator_in(&files, self.library.as_deref()).or(self.own_allocator.take());
    }

    /// The most of each, with what the kernel says itself of the largest process.
    pub(super) fn peak(&self, used: &Used) -> Peak {
        let Usage { resident, thp, thp_shared, .. } = self.peak;
        let of_pool = |size| self.peak.hugetlb.get(&size).copied().unwrap_or(Bytes::ZERO);
        Peak {
            rss_peak_bytes: resident.max(used.peak_resident),
            huge_peak_bytes: thp + thp_shared,
            anonymous_huge_peak_bytes: thp,
            hugetlb_peak_bytes: self.peak.hugetlb(),
            hugetlb_2m_peak_bytes: of_pool(Bytes::mib(2)),
            hugetlb_1g_peak_bytes: of_pool(Bytes::gib(1)),
            looks: self.looks,
            hidden_looks: self.hidden_looks,
            look_seconds: self.spent.as_secs_f64(),
        }
    }

    /// What it adds to the obstacles that the file told of.
    pub(super) fn note(&self, obstacles: &mut Obstacles) {
        obstacles.not_preloaded = self.library.is_some() && !self.saw_library;
        obstacles.own_allocator = obstacles.own_allocator.take().or_else(|| self.own_allocator.clone());
    }
}
