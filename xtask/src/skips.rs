//! Tests that did not run, counted by reason.
//!
//! Each is a line `test: why` in the file that `HUGEPILOT_SKIP_LOG` names; `requires!` of the testkit writes it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The tests that skipped themselves, with their reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skips(Vec<(String, String)>);

impl Skips {
    /// Reads a log.
    pub(crate) fn read(log: &str) -> Self {
        let lines = log.lines().filter(|line| !line.is_empty());
        let parts = lines.map(|line| line.split_once(": ").unwrap_or((line, "no reason given")));
        Self(parts.map(|(test, why)| (test.to_owned(), why.to_owned())).collect())
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// These and those of `other`.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// One line with all reasons, the most frequent first; then one line for each test.
impl fmt::Display for Skips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("skipped 0");
        }
        let mut counts = BTreeMap::<&str, u64>::new();
        for (_, why) in &self.0 {
            *counts.entry(why).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count)); // stable: equals stay in order of name
        let reasons: Vec<_> =
            counts.iter().map(|(why, count)| format!("{why} ({count})")).collect();
        write!(f, "skipped {}: {}", self.0.len(), reasons.join(", "))?;
        let mut tests: Vec<_> = self.0.iter().collect();
        tests.sort();
        tests.iter().try_for_each(|(test, why)| {
            f.write_char('\n')?;
            write!(f, "  {test}: {why}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "live::tune: no PMU\nkernel::perf::opens: no PMU\n\nlive::debloat: needs 4GiB: 1GiB there\n";

    #[test]
    fn reasons_are_counted_and_tests_listed() {
        let text = "\
skipped 3: no PMU (2), needs 4GiB: 1GiB there (1)
  kernel::perf::opens: no PMU
  live::debloat: needs 4GiB: 1GiB there
  live::tune: no PMU";
        assert_eq!(Skips::read(LOG).to_string(), text);
        assert_eq!(Skips::read("").to_string(), "skipped 0");
    }

    #[test]
    fn two_runs_are_told_together() {
        let both = Skips::read(LOG).and(Skips::read("live::run: not root\n"));
        assert_eq!(both.count(), 4);
        assert!(both.to_string().starts_with("skipped 4: no PMU (2), "));
    }
}
