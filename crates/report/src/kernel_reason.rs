//! Sentences for the reasons of `status`: why the kernel has not promoted memory, and why `tune`
//! would not.

use hugepilot_record::status::{MainReason, SkipShare, StatusSummary};
use hugepilot_record::{KernelReason, Khugepaged, Pid, SkipReason, ThpWord};
use hugepilot_units::{Bytes, PageSizes};

use crate::sentence::Sentence;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// Help against mappings that are too small.
const LARGER_BLOCKS: &str = "if the program allocates by malloc, larger blocks: hugepilot run \
                             --pages hugepilot -- CMD";
/// Help against memory in swap.
const PAGES_BACK: &str = "free memory, so that the program reads its pages back";
/// Help against missing advice.
const FROM_START: &str = "huge pages from the start: sudo hugepilot run --pages thp -- CMD";
/// Help against memory that tune does not promote later.
pub(crate) fn from_first_touch(before: &str) -> String {
    let purpose = format!(
        "put the memory on huge pages before {before}: MADV_HUGEPAGE in the program, or this \
         setting and a new start"
    );
    set(&purpose, "always", "enabled")
}
/// Share of the memory in question from which a sentence speaks of all of it.
const NEARLY_ALL: f64 = 0.9;

/// A command that sets a THP setting.
fn set(purpose: &str, word: &str, setting: &str) -> String {
    format!("{purpose}: echo {word} | sudo tee {THP}/{setting}")
}

/// A THP setting, for a sentence: `THP`, or the setting of one size.
fn subject(setting: &str) -> String {
    if setting == "enabled" { "THP".to_owned() } else { format!("THP ({setting})") }
}

impl Sentence for KernelReason {
    fn text(&self) -> String {
        match self {
            Self::KhugepagedPending { khugepaged, defrag } => {
                pending(khugepaged.as_ref()) + &only_free_blocks(*defrag)
            }
            Self::NoFreeBlock { khugepaged_defrag, defrag } => format!(
                "at this moment no free block is large enough for a huge page, and khugepaged \
                 {}{}",
                if *khugepaged_defrag { "must compact memory first" } else { "compacts none" },
                only_free_blocks(*defrag)
            ),
            Self::MaxPtesNone { max_ptes_none } => over("not resident", "none", *max_ptes_none),
            Self::MaxPtesSwap { max_ptes_swap } => over("in swap", "swap", *max_ptes_swap),
            Self::MaxPtesShared { max_ptes_shared } => {
                over("shared with other processes", "shared", *max_ptes_shared)
            }
            Self::Userfaultfd => {
                "userfaultfd watches the memory, and khugepaged fills no holes there".to_owned()
            }
            Self::ThpNever { setting } => format!("{} is never", subject(setting)),
            Self::NotAdvised { setting } => {
                format!("{} is madvise and the program did not ask", subject(setting))
            }
            Self::ShmemNever { setting, value: value @ (ThpWord::Never | ThpWord::Deny) } => {
                format!("shared memory gets no huge pages: {setting} is {value}")
            }
            Self::ShmemNever { setting, .. } => format!(
                "shared memory gets no huge pages: shmem_enabled is force, and {setting} is not \
                 inherit"
            ),
            Self::ShmemNotAdvised { setting } => {
                format!("{setting} is advise and the program did not ask")
            }
            Self::TmpfsNever { mount, .. } => {
                format!("the tmpfs {mount} is mounted with huge=never")
            }
            Self::TmpfsNotAdvised { mount, .. } => {
                format!("the tmpfs {mount} is mounted with huge=advise and the program did not ask")
            }
            Self::BeyondFileSize => "the setting of shared memory is within_size, and a huge page \
                                     would exceed the file"
                .to_owned(),
            Self::Nohugepage => FORBIDDEN.to_owned(),
            Self::ThpDisabled => DISABLED.to_owned(),
            Self::NotEligible => "the settings allow huge pages, but the kernel marks the memory \
                                  as not eligible (THPeligible: 0)"
                .to_owned(),
            Self::TooSmall => "the mappings are smaller than a huge page".to_owned(),
            Self::Unaligned => NO_WHOLE_PAGE.to_owned(),
            Self::File => "the kernel makes no huge pages of these files".to_owned(),
            Self::Special => SPECIAL.to_owned(),
            Self::NoThp => "the kernel has no THP, or its settings cannot be read".to_owned(),
        }
    }

    fn help(&self) -> Vec<String> {
        let help = match self {
            Self::KhugepagedPending { defrag, .. } => {
                // More frequent scans would fill memory that the program does not use.
                return compact_at_faults(*defrag);
            }
            Self::NoFreeBlock { khugepaged_defrag, defrag } => {
                return no_free_block_help(*khugepaged_defrag, *defrag);
            }
            Self::MaxPtesNone { .. } => {
                set("allow more, which adds memory", "511", "khugepaged/max_ptes_none")
            }
            // The kernel allows 511 of 512 pages at most, also if all are in swap or shared.
            Self::MaxPtesSwap { max_ptes_swap: 511.. } => PAGES_BACK.to_owned(),
            Self::MaxPtesSwap { .. } => {
                set("allow up to 511 of 512, which reads swap", "511", "khugepaged/max_ptes_swap")
            }
            Self::MaxPtesShared { max_ptes_shared: 511.. } => from_first_touch("the fork"),
            Self::MaxPtesShared { .. } => {
                let purpose = "allow up to 511 of 512, which copies pages";
                set(purpose, "511", "khugepaged/max_ptes_shared")
            }
            Self::ThpNever { setting } => set("let programs ask", "madvise", setting),
            Self::NotAdvised { setting } => {
                return vec![
                    FROM_START.to_owned(),
                    set("or allow all programs huge pages", "always", setting),
                ];
            }
            Self::ShmemNever { setting, value: ThpWord::Never | ThpWord::Deny } => {
                return vec![
                    set("allow huge pages there", "always", setting),
                    // Linux aligns shared memory when it is mapped, and only where it allows them.
                    "then start the program again, so that its memory is aligned".to_owned(),
                ];
            }
            Self::ShmemNever { setting, .. } => set("let force decide", "inherit", setting),
            Self::ShmemNotAdvised { setting } => set("do not require advice", "always", setting),
            Self::TmpfsNever { mount, namespace } | Self::TmpfsNotAdvised { mount, namespace } => {
                let there =
                    namespace.map(|pid| format!("nsenter -t {pid} -m ")).unwrap_or_default();
                format!("allow huge pages there: sudo {there}mount -o remount,huge=always {mount}")
            }
            Self::BeyondFileSize => {
                "make the file a multiple of the size of a huge page".to_owned()
            }
            Self::Nohugepage => NOT_FORBIDDEN.to_owned(),
            Self::ThpDisabled => ENABLE.to_owned(),
            Self::NotEligible => {
                "a possible cause is PR_SET_THP_DISABLE with PR_THP_DISABLE_EXCEPT_ADVISED; see \
                 prctl(2)"
                    .to_owned()
            }
            Self::TooSmall => LARGER_BLOCKS.to_owned(),
            Self::File => "requires CONFIG_READ_ONLY_THP_FOR_FS in the kernel, or a file system \
                           with large folios"
                .to_owned(),
            Self::NoThp => {
                format!("use a kernel with CONFIG_TRANSPARENT_HUGEPAGE, which has the folder {THP}")
            }
            Self::Userfaultfd => UNREGISTER.to_owned(),
            // The edges of a mapping are not worth a change.
            Self::Unaligned | Self::Special => return Vec::new(),
        };
        vec![help]
    }
}

const FORBIDDEN: &str = "the program forbids huge pages there (MADV_NOHUGEPAGE, or MAP_STACK)";
const NOT_FORBIDDEN: &str = "remove MADV_NOHUGEPAGE from the program, unless the memory is a stack";
const DISABLED: &str = "huge pages are disabled for the process (PR_SET_THP_DISABLE)";
const ENABLE: &str = "start the program with it cleared: sudo hugepilot run --pages thp -- CMD; \
                      systemd sets it with MemoryTHP=disable, redis with disable-thp";
const NO_WHOLE_PAGE: &str =
    "no whole, aligned huge page fits into a mapping there, as at its edges";
const SPECIAL: &str = "device or kernel memory, for which nothing can be changed";
const UNREGISTER: &str =
    "unregister the memory in the program (UFFDIO_UNREGISTER), if its handler is done";

fn pending(khugepaged: Option<&Khugepaged>) -> String {
    let Some(khugepaged) = khugepaged else {
        return "huge pages are allowed, and khugepaged has not collapsed the memory yet"
            .to_owned();
    };
    let Khugepaged { pages_to_scan, scan_sleep_ns, max_ptes_none, .. } = khugepaged;
    format!(
        "khugepaged has not collapsed the memory yet; it scans {pages_to_scan} pages every \
         {scan_sleep_ns}, and collapses regions in use with at most {max_ptes_none} pages not \
         resident (max_ptes_none)"
    )
}

/// Whether page faults compact memory with this `defrag` if the program advised it.
const fn needs_advice(defrag: ThpWord) -> bool {
    matches!(defrag, ThpWord::Madvise | ThpWord::DeferMadvise)
}

/// The end of a sentence about page faults that `defrag` forbids to compact memory.
fn only_free_blocks(defrag: Option<ThpWord>) -> String {
    let Some(word) = defrag else { return String::new() };
    let advice = if needs_advice(word) { " and the program did not ask" } else { "" };
    format!("; page faults use only free blocks, because defrag is {word}{advice}")
}

/// Help against page faults that `defrag` forbids to compact memory.
fn compact_at_faults(defrag: Option<ThpWord>) -> Vec<String> {
    let always = |purpose: &str| set(purpose, "always", "defrag");
    match defrag {
        None => Vec::new(),
        Some(word) if needs_advice(word) => vec![
            FROM_START.to_owned(),
            always("or let all later page faults compact memory, which can delay them"),
        ],
        Some(_) => vec![always("let later page faults compact memory, which can delay them")],
    }
}

fn no_free_block_help(khugepaged_defrag: bool, defrag: Option<ThpWord>) -> Vec<String> {
    let mut help =
        vec!["compact free memory: echo 1 | sudo tee /proc/sys/vm/compact_memory".to_owned()];
    if !khugepaged_defrag {
        help.push(set("let khugepaged compact memory", "1", "khugepaged/defrag"));
    }
    help.extend(compact_at_faults(defrag));
    help
}

fn over(what: &str, setting: &str, limit: u64) -> String {
    format!("more pages are {what} than khugepaged allows (max_ptes_{setting} is {limit})")
}

impl Sentence for SkipReason {
    fn text(&self) -> String {
        let text = match self {
            Self::Stack => {
                "huge pages under stacks multiply the memory of idle threads, so tune promotes \
                 none, and no setting changes that"
            }
            Self::Nohugepage => FORBIDDEN,
            Self::ThpDisabled => DISABLED,
            Self::Mlocked => "the memory is locked",
            Self::SharedAfterFork => {
                "another process maps it since a fork, and a huge page would copy it"
            }
            Self::Merged => "KSM merged the memory with equal pages, and a huge page would copy it",
            Self::GuardPages => "guard pages (MADV_GUARD_INSTALL) lie in each region",
            Self::File => "tune promotes no files, and no setting changes that",
            Self::Code => "tune promotes no program code in files",
            Self::SharedMemory => "tune promotes no shared memory",
            Self::Userfaultfd => "userfaultfd watches the memory",
            Self::MostlySwapped => "more than an eighth of each region is in swap",
            Self::TooFewResident => {
                "less than half of each region is resident, and a huge page would add the rest"
            }
            Self::LazilyFreed => {
                "the program freed pages of each region lazily (MADV_FREE), and with a huge page \
                 the kernel could not have them"
            }
            Self::Unaligned => NO_WHOLE_PAGE,
            Self::Special => SPECIAL,
            Self::AlreadyHuge => {
                "the region became huge during the report, so nothing needs to change"
            }
            Self::CgroupHeadroom => {
                "the cgroup of the process has too little headroom for a safe promotion"
            }
            Self::SystemHeadroom => "the system has too little headroom for a safe promotion",
            _ => return self.to_string(),
        };
        text.to_owned()
    }

    fn help(&self) -> Vec<String> {
        let help = match self {
            Self::Nohugepage => NOT_FORBIDDEN,
            Self::ThpDisabled => ENABLE,
            Self::Code => {
                "bring hot code onto fewer pages: profile-guided optimisation, or llvm-bolt"
            }
            Self::Mlocked => return vec![from_first_touch("it is locked")],
            Self::SharedAfterFork => {
                return vec![
                    "if the other process ends soon, as for a snapshot, tune afterwards".to_owned(),
                    from_first_touch("the fork"),
                ];
            }
            Self::Merged => {
                "end the merging, which ends its saving of memory: MemoryKSM=no for a \
                 service, mem-merge=off for QEMU, or for all programs echo 2 | sudo tee \
                 /sys/kernel/mm/ksm/run"
            }
            Self::GuardPages => {
                "place the guards of the program 4MiB or more apart, so that whole huge pages fit \
                 between them"
            }
            Self::SharedMemory => {
                return vec![
                    set("let shared memory have huge pages", "always", "shmem_enabled"),
                    "then start the program again; for a tmpfs instead: sudo mount -o \
                     remount,huge=always MOUNT"
                        .to_owned(),
                ];
            }
            Self::MostlySwapped => PAGES_BACK,
            Self::TooFewResident => "tune when the program uses more of its memory",
            Self::LazilyFreed => {
                "let the program free memory at once: GODEBUG=madvdontneed=1 for Go, \
                 MALLOC_CONF=muzzy_decay_ms:0 for jemalloc"
            }
            Self::Unaligned => return vec![format!("for mappings below 2MiB, {LARGER_BLOCKS}")],
            Self::Userfaultfd => UNREGISTER,
            Self::CgroupHeadroom => {
                "raise the limit of the cgroup (memory.max, memory.high), or free memory in it"
            }
            Self::SystemHeadroom | Self::MemoryPressure => {
                "free memory: end programs, or reclaim bloat with hugepilot debloat"
            }
            _ => return Vec::new(),
        };
        vec![help.to_owned()]
    }
}

impl Sentence for SkipShare {
    fn text(&self) -> String {
        self.code.text()
    }
    fn help(&self) -> Vec<String> {
        self.code.help()
    }
}

/// The summary of the process `pid`.
pub(crate) struct Summary<'a> {
    pub(crate) pid: Pid,
    pub(crate) summary: &'a StatusSummary,
    /// Zero-filled base pages of its huge pages; `None` if they were not counted.
    pub(crate) zero_filled: Option<Bytes>,
}

/// Share of the huge pages that is zero-filled, from which a sentence names it.
const BLOATED: f64 = 0.1;

impl Summary<'_> {
    /// The zero-filled part of this memory on huge pages, if it is much.
    fn bloat(&self, huge: Bytes) -> Option<Bytes> {
        self.zero_filled.filter(|zero| *zero > Bytes::ZERO && zero.ratio_of(huge) >= BLOATED)
    }

    /// The memory on huge pages, with its zero-filled part if that is much.
    fn huge(&self, huge: Bytes, resident: Bytes) -> String {
        let zero = self.bloat(huge).map(|zero| format!(", {zero} of it zero-filled"));
        format!("{huge} of {resident} huge{}", zero.unwrap_or_default())
    }
}

impl Sentence for Summary<'_> {
    fn text(&self) -> String {
        match self.summary {
            StatusSummary::NothingResident => "no memory is resident".to_owned(),
            StatusSummary::AllHuge { huge_bytes, resident_bytes } => format!(
                "{}; the rest is in files, or too small for a huge page",
                self.huge(*huge_bytes, *resident_bytes)
            ),
            StatusSummary::NothingSuitable { resident_bytes } => format!(
                "0B of {resident_bytes} huge: all of it is in files, or too small for a huge page"
            ),
            StatusSummary::KernelMayPromote { huge_bytes, resident_bytes, main } => {
                let huge = self.huge(*huge_bytes, *resident_bytes);
                huge + &with_reason(*resident_bytes - *huge_bytes, main, " now")
            }
            StatusSummary::KernelWillNotPromote { huge_bytes, resident_bytes, main } => {
                let huge = self.huge(*huge_bytes, *resident_bytes);
                huge + &with_reason(*resident_bytes - *huge_bytes, main, "")
            }
        }
    }

    fn help(&self) -> Vec<String> {
        let (StatusSummary::KernelMayPromote { huge_bytes, .. }
        | StatusSummary::KernelWillNotPromote { huge_bytes, .. }
        | StatusSummary::AllHuge { huge_bytes, .. }) = self.summary
        else {
            return Vec::new();
        };
        let debloat = self.bloat(*huge_bytes).map(|_| {
            let pid = self.pid;
            format!("see what can be freed: sudo hugepilot debloat -p {pid} --dry-run")
        });
        let (StatusSummary::KernelMayPromote { main, .. }
        | StatusSummary::KernelWillNotPromote { main, .. }) = self.summary
        else {
            return debloat.into_iter().collect();
        };
        // A tune may have been here before.
        let help = || match *huge_bytes {
            Bytes::ZERO => format!("promote the hottest regions: hugepilot tune -p {}", self.pid),
            _ => format!("see whether more would pay: hugepilot tune --dry-run -p {}", self.pid),
        };
        let eligible = main.eligible_bytes.filter(|&bytes| bytes > Bytes::ZERO);
        debloat.into_iter().chain(eligible.map(|_| help())).collect()
    }
}

/// Why memory on base pages, of which this is all, is not huge, after what is.
fn with_reason(rest: Bytes, main: &MainReason, when: &str) -> String {
    let is_nearly_all = main.bytes.ratio_of(rest) >= NEARLY_ALL;
    let which = if is_nearly_all { String::new() } else { format!("for {}, ", main.bytes) };
    let tune = match (main.eligible_bytes, main.skip) {
        (Some(Bytes::ZERO), Some(skip)) if skip.to_string() == main.reason.code().to_string() => {
            "; tune cannot promote it either".to_owned()
        }
        (Some(Bytes::ZERO), Some(skip)) => format!("; tune cannot promote it: {}", skip.text()),
        // After a tune, the rest is what did not pay.
        (Some(eligible), _) if eligible > Bytes::ZERO => {
            format!("; tune may promote {eligible} of it{when}, and selects what pays")
        }
        _ => String::new(),
    };
    format!(": {which}{}{}{tune}", main.reason.text(), pace(main))
}

/// The time that khugepaged needs for memory that it has not collapsed, if that is minutes.
fn pace(main: &MainReason) -> String {
    let KernelReason::KhugepagedPending { khugepaged: Some(khugepaged), .. } = &main.reason else {
        return String::new();
    };
    let of_a_scan = PageSizes::X86_64.base.times(khugepaged.pages_to_scan);
    let scans = main.bytes.as_f64() / of_a_scan.as_f64().max(1.0);
    let minutes = scans * khugepaged.scan_sleep_ns.as_seconds() / 60.0;
    if minutes < 1.0 {
        return String::new();
    }
    format!("; khugepaged needs {minutes:.0} min or more for it")
}

#[cfg(test)]
mod tests;
