//! The risk that khugepaged collapses what was split.

use crate::Root;
use crate::thp::ThpSettings;

/// Settings and advice that decide whether khugepaged re-collapses a split region. It does if at
/// most `max_ptes_none` pages are empty, and pages that a split freed are empty.
#[derive(Debug)]
pub struct KhugepagedRisk {
    /// Mode of THP: `always`, `madvise` or `never`.
    enabled: String,
    max_ptes_none: Option<u64>,
    /// Whether bloat lies in memory that the program advised (`MADV_HUGEPAGE`).
    advised: bool,
}

impl KhugepagedRisk {
    /// Reads the settings, for memory with (`advised`) or without `MADV_HUGEPAGE`.
    pub fn now(root: &Root, advised: bool) -> Self {
        Self::of(&ThpSettings::read(root), advised)
    }

    /// Returns the risk under `settings`.
    pub fn of(settings: &ThpSettings, advised: bool) -> Self {
        Self {
            enabled: settings.chosen("enabled").unwrap_or("never").to_owned(),
            max_ptes_none: settings
                .chosen("khugepaged/max_ptes_none")
                .and_then(|text| text.parse().ok()),
            advised,
        }
    }

    /// Returns why khugepaged re-collapses, with help; `None` if it does not.
    pub fn cause(&self) -> Option<String> {
        let max = self.max_ptes_none.filter(|&max| max > 0)?;
        let why = match self.enabled.as_str() {
            "always" => "transparent_hugepage/enabled is always",
            "madvise" if self.advised => "the program asked for huge pages here (MADV_HUGEPAGE)",
            _ => return None,
        };
        Some(format!(
            "because {why} and khugepaged/max_ptes_none is {max}; to keep what is \
             freed: echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none"
        ))
    }
}
