//! Cgroups with a memory limit of their own, on the running system.

use std::cell::RefCell;
use std::path::PathBuf;

use hugepilot_kernel::cgroup::{self, LimitHeadroom, MemoryCgroup};
use hugepilot_kernel::{Root, clock, memory};
use hugepilot_policy::daemon::Reading;
use hugepilot_units::{Bytes, Nanos};

/// Time between two lists of the cgroups with a limit.
const LIST_CGROUPS: Nanos = Nanos::seconds(10);
/// Cgroups that are watched at most.
const MAX_CGROUPS: usize = 256;
/// Limit below which a cgroup has too little bloat for a scan.
const LEAST_LIMIT: Bytes = Bytes::mib(64);

/// The cgroups, and the one that is selected.
#[derive(Default)]
pub(super) struct LimitedCgroups {
    /// Their directories, and the time of the list.
    listed: RefCell<(Vec<String>, Option<Nanos>)>,
    /// Its directory; without its accounts if it was removed.
    selected: RefCell<Option<(PathBuf, Option<MemoryCgroup>)>>,
}

impl LimitedCgroups {
    /// Lists their directories, read again after ten seconds.
    pub(super) fn list(&self, root: &Root) -> Vec<String> {
        let (mut listed, now) = (self.listed.borrow_mut(), clock::monotonic());
        if listed.1.is_none_or(|then| now - then >= LIST_CGROUPS) {
            let groups = cgroup::limited(root, LEAST_LIMIT).into_iter().take(MAX_CGROUPS);
            let names = groups.filter_map(|path| path.into_os_string().into_string().ok());
            *listed = (names.collect(), Some(now));
        }
        listed.0.clone()
    }

    pub(super) fn select(&self, root: &Root, cgroup: Option<&str>) {
        *self.selected.borrow_mut() = cgroup.map(|name| {
            let path = PathBuf::from(name);
            let group = MemoryCgroup::of_directory(root, &path);
            (path, group)
        });
    }

    /// Directory of the selected one.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        self.selected.borrow().as_ref().map(|(directory, _)| directory.clone())
    }

    /// Memory use of the selected one, below its own limit.
    pub(super) fn reading(&self, root: &Root) -> Option<Reading> {
        let gone = Reading { used: Bytes::ZERO, limit: Bytes::MAX, hard_use: 0.0, psi: None };
        self.selected.borrow().as_ref().map(|(_, group)| {
            group.as_ref().map_or(gone, |group| {
                let [room, hard] = group.own_headroom(root);
                reading(root, group, room, hard)
            })
        })
    }
}

/// Memory use of a cgroup below these limits.
pub(super) fn reading(
    root: &Root,
    group: &MemoryCgroup,
    room: LimitHeadroom,
    hard: LimitHeadroom,
) -> Reading {
    // Cgroups of version 1 have no PSI, and PSI of the system includes other cgroups.
    let psi = group.pressure_file().and_then(|file| psi(root, &file));
    let (used, limit) = (room.limit - room.left, room.limit);
    Reading { used, limit, hard_use: hard.use_ratio(), psi }
}

/// Share of the last ten seconds in which a task stalled on memory; `None` without PSI.
pub(super) fn psi(root: &Root, file: &str) -> Option<f64> {
    memory::pressure(root, file).map(|pressure| pressure.some_avg10 / 100.0)
}
