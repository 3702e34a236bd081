//! Kernel settings: transparent huge pages and hugetlb pools.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const POOLS: &str = "/sys/kernel/mm/hugepages";
/// Files of a pool that are compared.
const POOL_FILES: [&str; 5] = [
    "free_hugepages",
    "resv_hugepages",
    "surplus_hugepages",
    "nr_hugepages",
    "nr_overcommit_hugepages",
];
/// Those of them that can be set.
const CAN_BE_SET: [&str; 2] = ["nr_hugepages", "nr_overcommit_hugepages"];

/// Values by file. The only counters among them are those of free and surplus pages of the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<PathBuf, String>);

impl Settings {
    /// Reads the current settings.
    pub(super) fn read() -> Result<Self> {
        let mut files = Vec::new();
        writable_files(Path::new(THP), &mut files)?;
        for pool in pools()? {
            files.extend(POOL_FILES.map(|name| pool.join(name)));
        }
        let read = |file: PathBuf| {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            Ok((file, text.trim().to_owned()))
        };
        files.into_iter().map(read).collect::<Result<_>>().map(Self)
    }

    /// Differences in `now`, one line each.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let other = self.0.iter().filter(|(file, before)| now.0.get(*file) != Some(before));
        other
            .map(|(file, before)| {
                let now = now.0.get(file).map_or("gone", String::as_str);
                format!("{}: {before} before, {now} now", file.display())
            })
            .collect()
    }

    /// Restores settings that differ now. The next comparison finds those that cannot be set.
    pub(super) fn restore(&self) {
        for (file, before) in &self.0 {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let can_be_set = file.starts_with(THP) || CAN_BE_SET.contains(&&*name);
            let now = fs::read_to_string(file).unwrap_or_default();
            if can_be_set && now.trim() != before {
                let _ = fs::write(file, chosen(before));
            }
        }
    }

    /// These settings with the page counts of the pools in `now`, all pages free.
    pub(super) fn with_pools_of(&self, now: &Self) -> Self {
        let mut settings = self.clone();
        for (file, value) in &mut settings.0 {
            let name = file.file_name().unwrap_or_default();
            if name == "free_hugepages" || name == "nr_hugepages" {
                let total = now.0.get(&file.with_file_name("nr_hugepages"));
                if let Some(total) = total {
                    total.clone_into(value);
                }
            }
        }
        settings
    }
}

/// Folders of the pools.
pub(super) fn pools() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(POOLS).context(POOLS)?;
    Ok(entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?)
}

/// Pages in the pool of `kib` KiB pages.
pub(super) fn pool_pages(kib: u64) -> Result<u64> {
    let file = format!("{POOLS}/hugepages-{kib}kB/nr_hugepages");
    let text = fs::read_to_string(&file).with_context(|| file.clone())?;
    text.trim().parse().context(file)
}

/// Choice in `always [madvise] never`; other values unchanged.
fn chosen(value: &str) -> &str {
    value
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(value, |(chosen, _)| chosen)
}

fn writable_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let about = fs::metadata(&path)?;
        if about.is_dir() {
            writable_files(&path, found)?;
        } else if about.permissions().mode() & 0o600 == 0o600 {
            found.push(path);
        }
    }
    Ok(())
}

/// Count in `/proc/vmstat`.
pub(super) fn vmstat(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat").context("/proc/vmstat")?;
    let count =
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    count.with_context(|| format!("no {name} in /proc/vmstat"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lines: &[(&str, &str)]) -> Settings {
        Settings(
            lines.iter().map(|(file, value)| (PathBuf::from(file), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn a_choice_can_be_written_again() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("[always]"), "always");
        assert_eq!(chosen("511"), "511");
    }

    #[test]
    fn only_differences_are_listed() {
        let before = settings(&[("/a", "1"), ("/b", "2"), ("/c", "3")]);
        let now = settings(&[("/a", "1"), ("/b", "5")]);
        assert_eq!(before.differences(&now), ["/b: 2 before, 5 now", "/c: 3 before, gone now"]);
        assert!(before.differences(&before).is_empty());
    }

    #[test]
    fn pools_may_change_but_their_pages_must_be_free() {
        let before = settings(&[
            ("/p/nr_hugepages", "4"),
            ("/p/free_hugepages", "4"),
            ("/p/surplus_hugepages", "0"),
        ]);
        let now = settings(&[
            ("/p/nr_hugepages", "9"),
            ("/p/free_hugepages", "7"),
            ("/p/surplus_hugepages", "0"),
        ]);
        let wanted = before.with_pools_of(&now);
        assert_eq!(wanted.differences(&now), ["/p/free_hugepages: 9 before, 7 now"]);
    }

    #[test]
    fn the_kernel_has_settings() {
        if Path::new(THP).exists() && Path::new(POOLS).exists() {
            let settings = Settings::read().unwrap();
            assert!(settings.0.contains_key(&Path::new(THP).join("khugepaged/max_ptes_none")));
            assert!(
                !settings.0.contains_key(&Path::new(THP).join("khugepaged/full_scans")),
                "a counter"
            );
        }
    }
}
