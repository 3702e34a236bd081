//! Transparent huge page settings: `/sys/kernel/mm/transparent_hugepage`.

use std::collections::BTreeMap;

use hugepilot_record::{Khugepaged, ThpConfig, ThpSize, ThpWord};
use hugepilot_units::{Bytes, Nanos, PageSizes};

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
        self.0.get(name).map(|text| chosen(text))
    }
}

/// Reads the settings of all sizes, of each size up to a huge page, and of khugepaged. Empty on a
/// kernel without THP.
pub fn config(root: &Root, sizes: PageSizes) -> ThpConfig {
    let settings = ThpSettings::read(root);
    let word = |name: &str| ThpWord::parse(settings.chosen(name)?);
    let number = |name: &str| settings.chosen(&format!("khugepaged/{name}"))?.parse().ok();
    let khugepaged = || {
        Some(Khugepaged {
            defrag: number("defrag")? != 0,
            pages_to_scan: number("pages_to_scan")?,
            scan_sleep_ns: Nanos::millis(number("scan_sleep_millisecs")?),
            max_ptes_none: number("max_ptes_none")?,
            max_ptes_swap: number("max_ptes_swap")?,
            max_ptes_shared: number("max_ptes_shared")?,
        })
    };
    ThpConfig {
        enabled: word("enabled"),
        defrag: word("defrag"),
        shmem_enabled: word("shmem_enabled"),
        sizes: large_sizes(sizes).filter_map(|size| of_size(root, size)).collect(),
        khugepaged: khugepaged(),
    }
}

/// Counts the large pages of anonymous memory, of all sizes, that processes map in part: each holds
/// memory without a use. `None` before Linux 6.12.
pub fn mapped_in_part(root: &Root, sizes: PageSizes) -> Option<u64> {
    let counts = counts(root, sizes, "nr_anon_partially_mapped");
    counts.map(|(_, count)| count).reduce(|sum, count| sum + count)
}

/// Returns the anonymous memory on large pages that are smaller than a huge page. `None` before
/// Linux 6.12.
pub fn smaller_large_pages(root: &Root, sizes: PageSizes) -> Option<Bytes> {
    let smaller = counts(root, sizes, "nr_anon").filter(|(size, _)| *size < sizes.huge);
    smaller.map(|(size, count)| size.times(count)).reduce(|sum, bytes| sum + bytes)
}

/// Sizes of large pages up to a huge page.
fn large_sizes(sizes: PageSizes) -> impl Iterator<Item = Bytes> {
    let all = std::iter::successors(Some(sizes.base.times(2)), |size| Some(size.times(2)));
    all.take_while(move |size| *size <= sizes.huge)
}

/// A counter of the kernel for each size of large pages that has it.
fn counts(root: &Root, sizes: PageSizes, name: &str) -> impl Iterator<Item = (Bytes, u64)> {
    large_sizes(sizes).filter_map(move |size| {
        let name = format!("hugepages-{}kB/stats/{name}", size.get() >> 10);
        Some((size, root.read_text(file(&name)).ok()?.trim().parse().ok()?))
    })
}

/// Reads the settings of pages of this size; `None` if there are none.
fn of_size(root: &Root, page_bytes: Bytes) -> Option<ThpSize> {
    let directory = format!("hugepages-{}kB", page_bytes.get() >> 10);
    let word = |name: &str| {
        let text = root.read_text(file(&format!("{directory}/{name}"))).ok()?;
        ThpWord::parse(chosen(&text))
    };
    let (enabled, shmem_enabled) = (word("enabled"), word("shmem_enabled"));
    let is_any = enabled.is_some() || shmem_enabled.is_some();
    is_any.then_some(ThpSize { page_bytes, enabled, shmem_enabled })
}

/// Returns the word in brackets, or the whole text without brackets.
fn chosen(text: &str) -> &str {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(text, |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn a_captured_tree_has_the_settings_of_all_sizes() {
        let thp = |name: &str| format!("{DIRECTORY}/{name}");
        let files = [
            ("enabled", "always [madvise] never\n"),
            ("defrag", "always defer [defer+madvise] madvise never\n"),
            ("shmem_enabled", "always within_size advise [never] deny force\n"),
            ("hugepages-8kB/shmem_enabled", "always inherit within_size advise [never]\n"),
            ("hugepages-64kB/enabled", "[always] inherit madvise never\n"),
            ("hugepages-2048kB/enabled", "always [inherit] madvise never\n"),
            ("hugepages-2048kB/shmem_enabled", "always inherit [within_size] advise never\n"),
            ("hugepages-4096kB/enabled", "always [inherit] madvise never\n"),
            ("khugepaged/defrag", "1\n"),
            ("khugepaged/pages_to_scan", "4096\n"),
            ("khugepaged/scan_sleep_millisecs", "10000\n"),
            ("khugepaged/max_ptes_none", "511\n"),
            ("khugepaged/max_ptes_swap", "64\n"),
            ("khugepaged/max_ptes_shared", "256\n"),
        ]
        .map(|(name, text)| (thp(name), text));
        let files: Vec<_> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let (_dir, root) = fixture(&files);
        let size =
            |page_bytes, enabled, shmem_enabled| ThpSize { page_bytes, enabled, shmem_enabled };
        let expected = ThpConfig {
            enabled: Some(ThpWord::Madvise),
            defrag: Some(ThpWord::DeferMadvise),
            shmem_enabled: Some(ThpWord::Never),
            sizes: vec![
                size(Bytes::kib(8), None, Some(ThpWord::Never)),
                size(Bytes::kib(64), Some(ThpWord::Always), None),
                size(Bytes::mib(2), Some(ThpWord::Inherit), Some(ThpWord::WithinSize)),
            ],
            khugepaged: Some(Khugepaged {
                defrag: true,
                pages_to_scan: 4096,
                scan_sleep_ns: Nanos::seconds(10),
                max_ptes_none: 511,
                max_ptes_swap: 64,
                max_ptes_shared: 256,
            }),
        };
        assert_eq!(config(&root, PageSizes::X86_64), expected);
        std::fs::write(root.join(file("enabled")), "always madvise [sometimes]").unwrap();
        std::fs::remove_file(root.join(file("khugepaged/max_ptes_swap"))).unwrap();
        let config = config(&root, PageSizes::X86_64);
        assert_eq!((config.enabled, config.khugepaged), (None, None));
    }

    #[test]
    fn a_kernel_without_thp_has_no_settings() {
        let (_dir, root) = fixture(&[("proc/meminfo", "")]);
        assert_eq!(config(&root, PageSizes::X86_64), ThpConfig::default());
    }

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
