//! Transparent huge page settings: `/sys/kernel/mm/transparent_hugepage`.

use std::collections::BTreeMap;

use crate::Root;

/// Settings by name. A setting that the kernel lacks is missing.
///
/// ```
/// use hugepilot_kernel::Root;
/// use hugepilot_kernel::thp::ThpSettings;
///
/// let settings = ThpSettings::read(&Root::live());
/// if let Some(mode) = settings.chosen("enabled") {
///     assert!(["always", "madvise", "never"].contains(&mode));
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThpSettings(pub BTreeMap<String, String>);

/// Limit on zero-filled or unmapped base pages of a collapse by khugepaged. A huge page with more
/// of them is underused.
pub const MAX_PTES_NONE: &str = "khugepaged/max_ptes_none";
/// Whether reclaim splits underused huge pages: 0 or 1.
pub const SHRINK_UNDERUSED: &str = "shrink_underused";

const DIRECTORY: &str = "sys/kernel/mm/transparent_hugepage";
/// Settings that affect promotion and reclaim of huge pages.
const NAMES: [&str; 11] = [
    "enabled",
    "defrag",
    "shmem_enabled",
    "use_zero_page",
    "shrink_underused",
    "khugepaged/defrag",
    "khugepaged/max_ptes_none",
    "khugepaged/max_ptes_swap",
    "khugepaged/max_ptes_shared",
    "khugepaged/pages_to_scan",
    "khugepaged/scan_sleep_millisecs",
];

/// Returns the file of setting `name`, below a [`Root`].
pub fn file(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

impl ThpSettings {
    /// Reads all settings; empty on a kernel without THP.
    pub fn read(root: &Root) -> Self {
        let read = |name: &str| Some((name.to_owned(), root.read_text(file(name)).ok()?));
        Self(NAMES.into_iter().filter_map(read).collect())
    }
    /// Returns the chosen word of a setting such as `always [madvise] never`, or the whole text
    /// without brackets.
    pub fn chosen(&self, name: &str) -> Option<&str> {
        let text = self.0.get(name)?;
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Some(chosen.map_or(text, |(word, _)| word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bracketed_word_is_the_setting() {
        let settings = ThpSettings(BTreeMap::from([
            ("enabled".into(), "always [madvise] never".into()),
            ("khugepaged/max_ptes_none".into(), "511".into()),
        ]));
        assert_eq!(settings.chosen("enabled"), Some("madvise"));
        assert_eq!(settings.chosen("khugepaged/max_ptes_none"), Some("511"));
        assert_eq!(settings.chosen("shrink_underused"), None);
    }
}
