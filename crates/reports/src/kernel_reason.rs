//! Sentences for the reasons of `status`: why the kernel has not promoted memory, and why `tune`
//! would not.

use hugepilot_record::{KernelReason, Pid};
use hugepilot_render::sentence::Sentence;
use hugepilot_units::{Bytes, PageSizes};

use crate::status::{MainReason, StatusSummary};

/// Share of the memory in question from which a sentence speaks of all of it.
const NEARLY_ALL: f64 = 0.9;

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
