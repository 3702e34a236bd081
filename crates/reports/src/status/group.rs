//! Processes of `status` together: memory that they share counts once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugepilot_record::{Answer, KernelCode, KernelReason, MappingKind, Obstacle, SkipReason};
use hugepilot_units::Bytes;

use super::{MappingStatus, Sizes, StatusReport, StatusWarning};
use crate::tune::TargetInfo;

/// Sums of several processes, a fold over their reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusGroup {
    /// The processes, in the order in which they were added.
    pub processes: Vec<GroupProcess>,
    /// Memory of the processes alone, and their parts of files and of the memory that they share
    /// since a fork.
    pub private: Sizes,
    /// Obstacles, each once.
    pub obstacles: Vec<Obstacle>,
    /// Warnings, each once.
    pub warnings: Vec<StatusWarning>,
    /// Memory that mappings of one segment have in common, by inode and name.
    segments: BTreeMap<(u64, String), Segment>,
    /// Each reason of the kernel as the first process with it has it.
    reasons: BTreeMap<KernelCode, KernelReason>,
}

/// A process of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProcess {
    /// The process.
    pub target: TargetInfo,
    /// The answer of its report.
    pub answer: Answer,
    /// Resident memory, each page divided by the number of processes that map it (Pss).
    pub proportional_bytes: Bytes,
    /// Sizes of all its mappings.
    pub sizes: Sizes,
    /// Memory that large pages hold and the process does not map; `None` if unknown.
    pub stranded_bytes: Option<Bytes>,
    /// Its memory on large pages that are smaller than a huge page; `None` if unknown.
    pub large_page_bytes: Option<Bytes>,
}

/// A segment of shared memory that processes map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Name of the mapping.
    pub name: String,
    /// Kind of memory.
    pub kind: MappingKind,
    /// Sizes of the process that has the most of it resident, once.
    pub sizes: Sizes,
    /// Resident memory in the mappings of all processes of the group, by Pss.
    pub proportional_bytes: Bytes,
    /// Processes of the group that map it.
    pub processes: u64,
}

impl StatusGroup {
    /// Adds a process.
    pub fn add(&mut self, report: &StatusReport) {
        let mut seen = BTreeMap::new();
        for mapping in &report.mappings {
            if is_common(mapping.kind) {
                let key = (mapping.inode, mapping.name.clone());
                let of_process = seen.entry(key).or_insert_with(|| Segment::of(mapping));
                of_process.proportional_bytes += mapping.proportional_bytes;
                of_process.sizes.add(&mapping.sizes);
            } else {
                // Processes may share it since a fork, or by the page cache.
                let of_all = mapping.proportional_bytes.ratio_of(mapping.sizes.resident_bytes);
                self.private.add(&mapping.sizes.scaled(of_all.min(1.0)));
            }
        }
        for (key, of_process) in seen {
            match self.segments.entry(key) {
                std::collections::btree_map::Entry::Vacant(new) => _ = new.insert(of_process),
                std::collections::btree_map::Entry::Occupied(mut known) => {
                    known.get_mut().join(of_process);
                }
            }
        }
        let new = |one: &&Obstacle| !self.obstacles.contains(one);
        let obstacles: Vec<Obstacle> = report.obstacles.iter().filter(new).cloned().collect();
        self.obstacles.extend(obstacles);
        let new = |one: &&StatusWarning| !self.warnings.contains(one);
        let warnings: Vec<StatusWarning> = report.warnings.iter().filter(new).cloned().collect();
        self.warnings.extend(warnings);
        for share in &report.kernel_reasons {
            let reason = || share.reason.clone();
            self.reasons.entry(share.reason.code()).or_insert_with(reason);
        }
        self.processes.push(GroupProcess {
            target: report.target.clone(),
            answer: report.answer,
            proportional_bytes: report.mappings.iter().map(|one| one.proportional_bytes).sum(),
            sizes: report.totals.clone(),
            stranded_bytes: report.stranded_bytes,
            large_page_bytes: report.large_page_bytes,
        });
    }

    /// Resident memory of all processes, by Pss.
    pub fn proportional_bytes(&self) -> Bytes {
        self.processes.iter().map(|process| process.proportional_bytes).sum()
    }

    /// The segments, the largest first.
    pub fn segments(&self) -> Vec<&Segment> {
        let mut segments: Vec<_> = self.segments.values().collect();
        segments.sort_by_key(|segment| Reverse(segment.proportional_bytes));
        segments
    }

    /// Sizes of all memory, that in common once.
    pub fn totals(&self) -> Sizes {
        let mut totals = self.private.clone();
        self.segments.values().for_each(|segment| totals.add(&segment.sizes));
        totals
    }

    /// Memory on base pages by the reason of the kernel, the most first.
    pub fn kernel_reasons(&self) -> Vec<(&KernelReason, Bytes)> {
        let totals = self.totals();
        let bytes = |code: &KernelCode| totals.kernel_reason_bytes.get(code).copied();
        let mut reasons: Vec<_> =
            self.reasons.iter().filter_map(|(code, reason)| Some((reason, bytes(code)?))).collect();
        reasons.sort_by_key(|&(_, bytes)| Reverse(bytes));
        reasons
    }

    /// Memory on base pages by the reason why `tune` skips it, the most first.
    pub fn skips(&self) -> Vec<(SkipReason, Bytes)> {
        let mut skips: Vec<_> = self.totals().not_huge_bytes.into_iter().collect();
        skips.sort_by_key(|&(_, bytes)| Reverse(bytes));
        skips
    }
}

/// Whether mappings of other processes may have the same memory.
const fn is_common(kind: MappingKind) -> bool {
    matches!(kind, MappingKind::SharedMemory | MappingKind::Hugetlb)
}

impl Segment {
    /// Resident memory, at least: that of one process, or that of all by Pss, which is less if
    /// processes outside the group map it, too.
    pub fn resident_bytes(&self) -> Bytes {
        self.proportional_bytes.max(self.sizes.resident_bytes)
    }

    /// A segment without the sizes of a mapping.
    fn of(mapping: &MappingStatus) -> Self {
        let sizes = Sizes { zero_filled_bytes: Some(Bytes::ZERO), ..Sizes::default() };
        let (name, kind) = (mapping.name.clone(), mapping.kind);
        Self { name, kind, sizes, proportional_bytes: Bytes::ZERO, processes: 1 }
    }

    /// Adds what another process maps of it.
    fn join(&mut self, other: Self) {
        self.proportional_bytes += other.proportional_bytes;
        self.processes += other.processes;
        if other.sizes.resident_bytes > self.sizes.resident_bytes {
            self.sizes = other.sizes;
        }
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_units::{AddrRange, VirtAddr};

    use super::super::tests::report;
    use super::*;

    /// A mapping of 64 MiB with this memory resident, and the part of it by Pss.
    fn mapping(kind: MappingKind, inode: u64, [resident, proportional]: [u64; 2]) -> MappingStatus {
        let range = AddrRange::at(VirtAddr::new(1 << 30), Bytes::mib(64));
        let resident = Bytes::mib(resident);
        let sizes = Sizes {
            size_bytes: range.len(),
            resident_bytes: resident,
            kernel_reason_bytes: [(KernelCode::NotAdvised, resident)].into(),
            ..Sizes::default()
        };
        let name = format!("m{inode}");
        let proportional_bytes = Bytes::mib(proportional);
        MappingStatus { range, kind, inode, name, proportional_bytes, sizes }
    }

    #[test]
    fn memory_in_common_counts_once() {
        use MappingKind::{Anonymous, SharedMemory};
        let mut group = StatusGroup::default();
        for resident in [10, 60, 30] {
            let mappings = vec![
                mapping(Anonymous, 0, [5, 5]),
                mapping(Anonymous, 0, [2, 1]),
                mapping(SharedMemory, 7, [resident, resident / 3]),
                mapping(SharedMemory, 8, [1, 1]),
            ];
            group.add(&report(mappings));
        }
        let mib = |bytes: Bytes| bytes.get() >> 20;
        assert_eq!(mib(group.proportional_bytes()), 3 * 6 + 33 + 3);
        let segments: Vec<_> = group
            .segments()
            .iter()
            .map(|one| (one.name.as_str(), mib(one.sizes.resident_bytes), one.processes))
            .collect();
        assert_eq!(segments, [("m7", 60, 3), ("m8", 1, 3)]);
        assert_eq!(mib(group.totals().resident_bytes), 3 * 6 + 60 + 1);
        assert_eq!(mib(group.totals().kernel_reason_bytes[&KernelCode::NotAdvised]), 79);
    }
}
