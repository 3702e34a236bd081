//! A program run with chosen pages, and what came of it: the report of `hugepilot run`, schema `hugepilot.run/2`.
//!
//! If you change a field here, say so in CHANGELOG.md; if you remove or redefine one, raise the number in [`SCHEMA`].

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use hugepilot_units::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.run/2";

/// Where a program's memory shall come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Mode {
    /// No transparent huge pages.
    Base,
    /// Transparent huge pages for all of its memory, also where the system wants advice, or gives none.
    Thp,
    /// Transparent huge pages where the program advises them, and nowhere else.
    Advised,
    /// The C library's allocator on a pool of 2 MiB pages.
    Hugetlb,
    /// The same on a pool of 1 GiB pages.
    Hugetlb1g,
    /// The C library's allocator advises transparent huge pages.
    GlibcThp,
    /// mimalloc as it comes.
    Mimalloc,
    /// mimalloc on 2 MiB pages: of a pool, or else transparent ones.
    Mimalloc2m,
    /// mimalloc on 1 GiB pages of a pool.
    Mimalloc1g,
    /// hugepilot's own allocator.
    Hugepilot,
    /// The same on base pages: what of its gain is not that of its pages.
    HugepilotBase,
}

impl Mode {
    /// Each, the one to compare with first.
    pub const ALL: [Self; 11] = [
        Self::Base,
        Self::Thp,
        Self::Advised,
        Self::GlibcThp,
        Self::Hugetlb,
        Self::Hugetlb1g,
        Self::Mimalloc,
        Self::Mimalloc2m,
        Self::Mimalloc1g,
        Self::Hugepilot,
        Self::HugepilotBase,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Thp => "thp",
            Self::Advised => "advised",
            Self::Hugetlb => "hugetlb",
            Self::Hugetlb1g => "hugetlb-1g",
            Self::GlibcThp => "glibc-thp",
            Self::Mimalloc => "mimalloc",
            Self::Mimalloc2m => "mimalloc-2m",
            Self::Mimalloc1g => "mimalloc-1g",
            Self::Hugepilot => "hugepilot",
            Self::HugepilotBase => "hugepilot-base",
        }
    }
    /// The pages of a pool that it cannot do without.
    pub const fn needs_pool(self) -> Option<Bytes> {
        match self {
            Self::Hugetlb => Some(Bytes::mib(2)),
            Self::Hugetlb1g | Self::Mimalloc1g => Some(Bytes::gib(1)),
            _ => None,
        }
    }
    /// The pages of a pool that it uses where there are some.
    pub const fn uses_pool(self) -> Option<Bytes> {
        match self {
            Self::Mimalloc2m | Self::Hugepilot => Some(Bytes::mib(2)),
            other => other.needs_pool(),
        }
    }
    /// Whether another allocator is put in front of the program's.
    pub const fn preloads(self) -> bool {
        self.is_hugepilot() || matches!(self, Self::Mimalloc | Self::Mimalloc2m | Self::Mimalloc1g)
    }
    /// Whether that one is hugepilot's.
    pub const fn is_hugepilot(self) -> bool {
        matches!(self, Self::Hugepilot | Self::HugepilotBase)
    }
    /// The mode with the same allocator, told nothing of huge pages.
    pub const fn without_huge_pages(self) -> Option<Self> {
        match self {
            Self::Mimalloc2m | Self::Mimalloc1g => Some(Self::Mimalloc),
            Self::Hugepilot => Some(Self::HugepilotBase),
            _ => None,
        }
    }
    /// Whether the C library's allocator is told what to do, and nothing else is.
    pub const fn tunes_glibc(self) -> bool {
        matches!(self, Self::GlibcThp | Self::Hugetlb | Self::Hugetlb1g)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no such mode: {text:?}; one of {names}")
        })
    }
}

impl JsonSchema for Mode {
    fn schema_name() -> Cow<'static, str> {
        "Mode".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Page mode.", "type": "string", "enum": Self::ALL.map(Self::name)
        })
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        mode.name().to_owned()
    }
}

impl TryFrom<String> for Mode {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What keeps a program from taking what it is given, as far as its files and its memory tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// What it is that no allocator can be put in front of: a static program, one for another processor, one that runs with
    /// others' rights.
    pub out_of_reach: Option<String>,
    /// Why the C library heeds no setting of its allocator.
    pub libc_lacks_tunable: Option<String>,
    /// Why the C library advises huge pages in some runs, and in others not.
    pub libc_thp_bug: Option<String>,
    /// The allocator it brought along.
    pub own_allocator: Option<String>,
    /// Why the pool gave nothing.
    pub empty_pool: Option<String>,
    /// The line that would change that.
    pub pool_fix: Option<String>,
    /// The system's setting of THP, where it stands in the way.
    pub thp: Option<String>,
    /// How little free memory there was in blocks as large as a huge page.
    pub fragmented: Option<String>,
    /// The library that should have been preloaded was seen in no process.
    pub not_preloaded: bool,
    /// Why its memory was not put on huge pages from outside.
    pub not_promoted: Option<String>,
    /// Processes that had memory, it and what it started: those with most of it.
    pub holders: Vec<Holder>,
    /// One of them that had pages of a pool and started others.
    pub pool_parent: Option<String>,
}

/// A process, and its memory at its peak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its name, control characters escaped.
    pub name: String,
    /// All of it, pages of pools included.
    pub memory: Bytes,
    /// Anonymous memory on transparent huge pages.
    pub thp: Bytes,
    /// On pages of 2 MiB of a pool.
    pub hugetlb_2m: Bytes,
    /// On pages of 1 GiB of a pool.
    pub hugetlb_1g: Bytes,
}

/// Memory at its peak, of the program and all that it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// Resident; hugetlb pages are not in it.
    pub rss_peak_bytes: Bytes,
    /// Of that, on transparent huge pages, of all kinds together.
    pub thp_peak_bytes: Bytes,
    /// Of that, anonymous memory.
    pub anonymous_thp_peak_bytes: Bytes,
    /// On pages of pools.
    pub hugetlb_peak_bytes: Bytes,
    /// On pages of 2 MiB of a pool.
    pub hugetlb_2m_peak_bytes: Bytes,
    /// On pages of 1 GiB of a pool.
    pub hugetlb_1g_peak_bytes: Bytes,
    /// How often it was looked at; what came and went in between was not seen.
    pub rss_samples: u32,
    /// Of them, those at processes that we may not look at.
    pub rss_samples_denied: u32,
    /// Time that looking took.
    pub rss_sample_seconds: f64,
}

impl Peak {
    /// On huge pages of any kind.
    pub fn all_huge(&self) -> Bytes {
        self.thp_peak_bytes + self.hugetlb_peak_bytes
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Ending {
    /// As shells have it: 128 and the number of a signal.
    pub const fn code(self) -> i32 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + signal,
        }
    }
    /// Whether it says that all went well.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// What a run took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// How it ended.
    pub ending: Ending,
    /// From its first instruction to its end.
    pub wall_seconds: f64,
    /// Whether it, or hugepilot, was stopped for a while, as by Ctrl-Z: then the wall time is not its own.
    #[serde(default)]
    pub stopped: bool,
    /// CPU time in user mode, with what it started and waited for.
    pub user_seconds: f64,
    /// CPU time in the kernel, likewise.
    pub system_seconds: f64,
    /// Time that its threads were runnable and waited for a processor, as of the last sample of
    /// each; `None` when not measured.
    #[serde(default)]
    pub processor_wait_seconds: Option<f64>,
    /// Page faults, likewise.
    pub page_faults: u64,
    /// Its memory.
    #[serde(flatten)]
    pub peak: Peak,
}

impl Run {
    /// CPU time in user mode and in the kernel.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
    /// Share of its runnable time that it waited for a processor; `None` when not measured.
    pub fn processor_wait_ratio(&self) -> Option<f64> {
        let wait = self.processor_wait_seconds?;
        let runnable = wait + self.cpu_seconds();
        (runnable > 0.0).then(|| wait / runnable)
    }
}

/// Whether a mode did what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// Whether memory was on the pages that the mode is for; of `base`: on none. `None` where it ended too soon to look, or may
    /// not be looked at.
    pub took_effect: Option<bool>,
    /// What was seen, or why not.
    pub reason: String,
    /// What to change, as a command where there is one.
    pub fix: Option<String>,
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How it was run.
    pub mode: Mode,
    /// What of its environment was set, as `NAME=value`.
    pub environment: Vec<String>,
    /// What it took.
    #[serde(flatten)]
    pub run: Run,
    /// What the mode did.
    #[serde(flatten)]
    pub effect: Effect,
    /// What the user should know besides.
    pub warnings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_back_what_they_print_and_others_are_refused_by_name() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse::<Mode>(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
        let error = "huge".parse::<Mode>().unwrap_err();
        assert!(error.contains("\"huge\"") && error.contains("glibc-thp"), "{error}");
        assert!(serde_json::from_str::<Mode>("\"x\"").is_err());
    }

    #[test]
    fn endings_are_told_as_shells_do() {
        assert_eq!([Ending::Exited(3), Ending::Killed(15)].map(Ending::code), [3, 143]);
        assert!(Ending::Exited(0).is_success() && !Ending::Killed(0).is_success());
    }
}
