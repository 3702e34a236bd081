//! The risk that khugepaged collapses what was split.

use crate::Root;
use crate::thp::ThpSettings;

/// khugepaged collapses a region again when no more of its pages are empty than `max_ptes_none`, and pages that a split gave
/// back count as empty.
#[derive(Debug)]
pub struct KhugepagedRisk {
    /// Mode of THP: `always`, `madvise` or `never`.
    enabled: String,
    max_ptes_none: Option<u64>,
    /// Whether bloat lies in memory for which the program asked for huge pages.
    advised: bool,
}

impl KhugepagedRisk {
    /// As set now, for memory for which huge pages were asked (`advised`) or not.
    pub fn now(root: &Root, advised: bool) -> Self {
        Self::of(&ThpSettings::read(root), advised)
    }

    /// As `settings` say.
    pub fn of(settings: &ThpSettings, advised: bool) -> Self {
        Self {
            enabled: settings.chosen("enabled").unwrap_or("never").to_owned(),
            max_ptes_none: settings
                .chosen("khugepaged/max_ptes_none")
                .and_then(|text| text.parse().ok()),
            advised,
        }
    }

    /// Why khugepaged collapses what was split, and what to change; `None` where it does not.
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
