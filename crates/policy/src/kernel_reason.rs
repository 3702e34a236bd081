//! The kernel's rules for huge pages: why it has not put memory on them, and whether it still may.
//!
//! The rules are those of Documentation/admin-guide/mm/transhuge.rst and of the eligibility check
//! that page faults and khugepaged share. If a rule and the kernel's own mark `THPeligible`
//! disagree, the mark decides: it also covers what no file shows, such as `PR_SET_THP_DISABLE` with
//! `PR_THP_DISABLE_EXCEPT_ADVISED`.

use hugepilot_record::{
    KernelReason, Mapping, MappingKind, RegionPages, ThpConfig, ThpSize, ThpWord, Tmpfs,
};
use hugepilot_units::{Bytes, PageSizes};

/// Facts of the system and of the process that the rules need, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct KernelView<'a> {
    /// Page sizes.
    pub sizes: PageSizes,
    /// THP settings.
    pub thp: &'a ThpConfig,
    /// Whether the process disabled THP for itself.
    pub thp_disabled: bool,
    /// Memory in free blocks that are large enough for a huge page; `None` if unknown.
    pub free_huge: Option<Bytes>,
}

/// Backing of a mapping, as the rules distinguish it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backing<'a> {
    Private,
    /// memfd, SysV, or shared anonymous memory.
    Shared,
    Tmpfs(&'a Tmpfs),
    File,
    Hugetlb,
    Special,
}

impl<'a> Backing<'a> {
    fn of(mapping: &Mapping, tmpfs: Option<&'a Tmpfs>) -> Self {
        match (mapping.kind, tmpfs) {
            (MappingKind::Special, _) => Self::Special,
            (MappingKind::Hugetlb, _) => Self::Hugetlb,
            (MappingKind::Anonymous | MappingKind::Stack, _) => Self::Private,
            // A private mapping of /dev/zero is private anonymous memory.
            (MappingKind::SharedMemory, None)
                if !mapping.protection.shared && mapping.name.starts_with("/dev/zero") =>
            {
                Self::Private
            }
            (MappingKind::SharedMemory | MappingKind::File, Some(tmpfs)) => Self::Tmpfs(tmpfs),
            (MappingKind::SharedMemory, None) => Self::Shared,
            (MappingKind::File, None) => Self::File,
        }
    }
}

impl KernelView<'_> {
    /// Returns the reason why the kernel puts none of `mapping` on huge pages; `None` if it allows
    /// them. `tmpfs` is the mount of its file, if it is on a tmpfs.
    pub fn mapping_reason(&self, mapping: &Mapping, tmpfs: Option<&Tmpfs>) -> Option<KernelReason> {
        let backing = Backing::of(mapping, tmpfs);
        match backing {
            Backing::Special => return Some(KernelReason::Special),
            Backing::Hugetlb => return None,
            // The kernel's configuration and the file system decide; only its mark is visible.
            Backing::File => return (!mapping.thp_eligible).then_some(KernelReason::File),
            Backing::Private | Backing::Shared | Backing::Tmpfs(_) => {}
        }
        if let Some(reason) = self.shape(mapping, backing) {
            return Some(reason);
        }
        if mapping.flags.has("nh") {
            return Some(KernelReason::Nohugepage);
        }
        if self.thp_disabled {
            return Some(KernelReason::ThpDisabled);
        }
        if *self.thp == ThpConfig::default() {
            return (!mapping.thp_eligible).then_some(KernelReason::NoThp);
        }
        let (word, refusal) = self.setting(mapping, backing);
        match (refusal, mapping.thp_eligible) {
            // A smaller size alone makes a mapping eligible, too.
            (Some(_), true) if !self.smaller_sizes() => None,
            (Some(reason), _) => Some(reason),
            (None, true) => None,
            (None, false) if word == Some(ThpWord::WithinSize) => {
                Some(KernelReason::BeyondFileSize)
            }
            (None, false) => Some(KernelReason::NotEligible),
        }
    }

    /// Returns the reason why a region of `mapping` with these pages is on base pages. `whole` is
    /// that of the mapping, from [`KernelView::mapping_reason`].
    pub fn region_reason(
        &self,
        mapping: &Mapping,
        whole: Option<&KernelReason>,
        pages: &RegionPages,
    ) -> KernelReason {
        match whole {
            Some(reason) if reason.is_structural() => reason.clone(),
            _ if !mapping.range.covers(pages.region.range(self.sizes)) => KernelReason::Unaligned,
            Some(reason) => reason.clone(),
            None => self.pending(mapping, Some(pages)),
        }
    }

    /// Returns the reason why memory that the kernel allows on huge pages is on base pages.
    /// `pages` is the region; `None` if unknown.
    pub fn pending(&self, mapping: &Mapping, pages: Option<&RegionPages>) -> KernelReason {
        let is_private = matches!(mapping.kind, MappingKind::Anonymous | MappingKind::Stack);
        // Pages of a file count by its page cache, which the process maps in part.
        if let Some(reason) =
            pages.filter(|_| is_private).and_then(|pages| self.khugepaged_limit(mapping, pages))
        {
            return reason;
        }
        let khugepaged = self.thp.khugepaged;
        let defrag = self.fault_defrag(mapping);
        if self.free_huge.is_some_and(|free| free < self.sizes.huge) {
            let khugepaged_defrag = khugepaged.is_some_and(|khugepaged| khugepaged.defrag);
            return KernelReason::NoFreeBlock { khugepaged_defrag, defrag };
        }
        KernelReason::KhugepagedPending { khugepaged, defrag }
    }

    /// Returns `defrag` if it forbids page faults in `mapping` to compact memory, so that they use
    /// only free blocks. `None` if they compact memory, if the setting is unknown, and for files,
    /// whose page faults follow other rules. A file counts as such on any tmpfs but `/dev/shm`.
    fn fault_defrag(&self, mapping: &Mapping) -> Option<ThpWord> {
        if mapping.kind == MappingKind::File {
            return None;
        }
        let advised = mapping.flags.has("hg");
        self.thp.defrag.filter(|word| match word {
            // Both only start compaction in the background, if at all.
            ThpWord::Never | ThpWord::Defer => true,
            ThpWord::Madvise | ThpWord::DeferMadvise => !advised,
            _ => false,
        })
    }

    /// Returns the limit of khugepaged that a region of private memory exceeds.
    fn khugepaged_limit(&self, mapping: &Mapping, pages: &RegionPages) -> Option<KernelReason> {
        let khugepaged = self.thp.khugepaged?;
        let used = pages.resident + pages.swapped;
        let none = self.sizes.base_per_huge().saturating_sub(used);
        if mapping.is_userfaultfd() && none > 0 {
            return Some(KernelReason::Userfaultfd);
        }
        if pages.swapped > khugepaged.max_ptes_swap {
            return Some(KernelReason::MaxPtesSwap { max_ptes_swap: khugepaged.max_ptes_swap });
        }
        if none > khugepaged.max_ptes_none {
            return Some(KernelReason::MaxPtesNone { max_ptes_none: khugepaged.max_ptes_none });
        }
        let max_ptes_shared = khugepaged.max_ptes_shared;
        (pages.shared > max_ptes_shared).then_some(KernelReason::MaxPtesShared { max_ptes_shared })
    }

    /// Returns the reason in the size and the place of a mapping, or the setting behind its place.
    fn shape(&self, mapping: &Mapping, backing: Backing<'_>) -> Option<KernelReason> {
        let huge = self.sizes.huge;
        if mapping.range.len() < huge {
            return Some(KernelReason::TooSmall);
        }
        let has_region = !mapping.range.aligned_inside(huge).is_empty();
        // A huge page of a file is aligned in the file and in memory.
        let start = mapping.range.start.get();
        let fits_file = start.wrapping_sub(mapping.offset.get()).is_multiple_of(huge.get());
        let fits = has_region && (backing == Backing::Private || fits_file);
        (!fits).then(|| self.why_unaligned(mapping, backing).unwrap_or(KernelReason::Unaligned))
    }

    /// Returns the setting because of which the kernel did not align shared memory: it aligns such
    /// a mapping only where huge pages are allowed when the mapping is made.
    fn why_unaligned(&self, mapping: &Mapping, backing: Backing<'_>) -> Option<KernelReason> {
        let is_shared = matches!(backing, Backing::Shared | Backing::Tmpfs(_));
        let refusal = || self.setting(mapping, backing).1;
        (is_shared && !mapping.thp_eligible).then(refusal).flatten().filter(|reason| {
            matches!(reason, KernelReason::ShmemNever { .. } | KernelReason::TmpfsNever { .. })
        })
    }

    /// Returns the word that decides for this mapping, and the reason if it forbids huge pages.
    fn setting(
        &self,
        mapping: &Mapping,
        backing: Backing<'_>,
    ) -> (Option<ThpWord>, Option<KernelReason>) {
        let advised = mapping.flags.has("hg");
        match backing {
            Backing::Tmpfs(tmpfs) => self.tmpfs(tmpfs, advised),
            Backing::Shared => self.shared(advised),
            _ => self.private(advised),
        }
    }

    fn private(&self, advised: bool) -> (Option<ThpWord>, Option<KernelReason>) {
        let own = self.own().and_then(|size| size.enabled);
        let (setting, word) = self.deciding("enabled", own, self.thp.enabled);
        let reason = match word {
            Some(ThpWord::Never) => Some(KernelReason::ThpNever { setting }),
            Some(ThpWord::Madvise) if !advised => Some(KernelReason::NotAdvised { setting }),
            _ => None,
        };
        (word, reason)
    }

    fn shared(&self, advised: bool) -> (Option<ThpWord>, Option<KernelReason>) {
        let all = self.thp.shmem_enabled;
        let own = self.own().and_then(|size| size.shmem_enabled);
        let (setting, word) = match (all, own) {
            (Some(ThpWord::Deny), _) => ("shmem_enabled".to_owned(), all),
            _ => self.deciding("shmem_enabled", own, all),
        };
        // `force` holds for sizes that inherit, and overrides the words of the others.
        let is_overridden = all == Some(ThpWord::Force) && word != all;
        let reason = match word {
            Some(_) if is_overridden => {
                Some(KernelReason::ShmemNever { setting, value: ThpWord::Force })
            }
            Some(value @ (ThpWord::Never | ThpWord::Deny)) => {
                Some(KernelReason::ShmemNever { setting, value })
            }
            Some(ThpWord::Advise) if !advised => Some(KernelReason::ShmemNotAdvised { setting }),
            _ => None,
        };
        (word, reason)
    }

    fn tmpfs(&self, tmpfs: &Tmpfs, advised: bool) -> (Option<ThpWord>, Option<KernelReason>) {
        let (mount, namespace) = (tmpfs.mount.clone(), tmpfs.namespace);
        let reason = match (self.thp.shmem_enabled, tmpfs.huge) {
            (Some(value @ ThpWord::Deny), _) => {
                Some(KernelReason::ShmemNever { setting: "shmem_enabled".to_owned(), value })
            }
            (Some(ThpWord::Force), _) => None,
            (_, Some(ThpWord::Never)) => Some(KernelReason::TmpfsNever { mount, namespace }),
            (_, Some(ThpWord::Advise)) if !advised => {
                Some(KernelReason::TmpfsNotAdvised { mount, namespace })
            }
            _ => None,
        };
        (tmpfs.huge, reason)
    }

    /// Returns the setting that decides, and its word: that of the huge page size, unless it
    /// inherits.
    fn deciding(
        &self,
        name: &str,
        own: Option<ThpWord>,
        all: Option<ThpWord>,
    ) -> (String, Option<ThpWord>) {
        match own {
            None | Some(ThpWord::Inherit) => (name.to_owned(), all),
            Some(_) => (format!("hugepages-{}kB/{name}", self.sizes.huge.get() >> 10), own),
        }
    }

    /// Returns the settings of the size of a huge page.
    fn own(&self) -> Option<&ThpSize> {
        self.thp.sizes.iter().find(|size| size.page_bytes == self.sizes.huge)
    }

    /// Whether pages between a base page and a huge page may be in use.
    fn smaller_sizes(&self) -> bool {
        let is_on = |word: Option<ThpWord>| word.is_some_and(|word| word != ThpWord::Never);
        let smaller = |size: &&ThpSize| size.page_bytes < self.sizes.huge;
        let mut smaller = self.thp.sizes.iter().filter(smaller);
        smaller.any(|size| is_on(size.enabled) || is_on(size.shmem_enabled))
    }
}

#[cfg(test)]
mod tests;
