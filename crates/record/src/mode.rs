//! Page modes of `run` and `compare`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use hugepilot_units::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Pages and allocator that a program runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Mode {
    /// No transparent huge pages.
    Base,
    /// Transparent huge pages for all memory, whatever the system's setting.
    Thp,
    /// Transparent huge pages only for memory that the program advises.
    Advised,
    /// The C library's allocator on 2 MiB hugetlb pages.
    Hugetlb,
    /// The C library's allocator on 1 GiB hugetlb pages.
    Hugetlb1g,
    /// The C library's allocator advises transparent huge pages.
    GlibcThp,
    /// mimalloc with its defaults.
    Mimalloc,
    /// mimalloc on 2 MiB pages: hugetlb, otherwise transparent.
    Mimalloc2m,
    /// mimalloc on 1 GiB hugetlb pages.
    Mimalloc1g,
    /// hugepilot's allocator.
    Hugepilot,
    /// hugepilot's allocator on base pages: separates its gain from the gain of its pages.
    HugepilotBase,
}

impl Mode {
    /// All modes, `base` first.
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

    /// Name, as in `--pages`.
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
    /// Page size of the hugetlb pool without which the mode has no effect.
    pub const fn needs_pool(self) -> Option<Bytes> {
        match self {
            Self::Hugetlb => Some(Bytes::mib(2)),
            Self::Hugetlb1g | Self::Mimalloc1g => Some(Bytes::gib(1)),
            _ => None,
        }
    }
    /// Page size of the hugetlb pool that the mode uses if it has free pages.
    pub const fn uses_pool(self) -> Option<Bytes> {
        match self {
            Self::Mimalloc2m | Self::Hugepilot => Some(Bytes::mib(2)),
            other => other.needs_pool(),
        }
    }
    /// Whether the mode preloads an allocator.
    pub const fn preloads(self) -> bool {
        self.is_hugepilot() || matches!(self, Self::Mimalloc | Self::Mimalloc2m | Self::Mimalloc1g)
    }
    /// Whether the mode preloads hugepilot's allocator.
    pub const fn is_hugepilot(self) -> bool {
        matches!(self, Self::Hugepilot | Self::HugepilotBase)
    }
    /// The mode with the same allocator, but without huge pages.
    pub const fn without_huge_pages(self) -> Option<Self> {
        match self {
            Self::Mimalloc2m | Self::Mimalloc1g => Some(Self::Mimalloc),
            Self::Hugepilot => Some(Self::HugepilotBase),
            _ => None,
        }
    }
    /// Whether the mode consists of a tunable of the C library's allocator.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_back_what_they_print_and_others_are_rejected_by_name() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse::<Mode>(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
        let error = "huge".parse::<Mode>().unwrap_err();
        assert!(error.contains("\"huge\"") && error.contains("glibc-thp"), "{error}");
        assert!(serde_json::from_str::<Mode>("\"x\"").is_err());
    }
}
