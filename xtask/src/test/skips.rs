//! Skipped tests, counted by reason.
//!
//! Each is a line `test: reason` in the file that `HUGEPILOT_SKIP_LOG` names. The testkit's
//! `requires!` writes it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Starts of reasons that a run in CI accepts.
const ACCEPTED: &[&str] = &[
    // It is downloaded, and CI may have no network.
    "mimalloc's test-stress.c is not there",
    // CI may run in a container with a PID namespace of its own.
    "a PID namespace: no kernel threads",
    "a PID namespace: no forks are reported",
    // CI may run in a virtual machine that offers none itself, or in a container.
    "/dev/kvm: ",
    "no swap: ",
    // Linux 6.13 or newer has guard pages.
    "the kernel lacks ",
    // A help line of which the reason is gone, or another, on such a machine.
    "cgroups of version 2",
    "mimalloc is installed",
    // A toolchain of which the tests need one tool only.
    "no go in PATH",
    // Memory may be too fragmented for a page of this size.
    "no free hugetlb pages: 1 of 1GiB",
    // A test of a gain, on a CPU without one: `need::gain` of the testkit measures it.
    "huge pages gain too little on this CPU",
];

/// The tests that skipped themselves, with their reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Skips(Vec<(String, String)>);

impl Skips {
    /// Reads a log.
    pub(super) fn read(log: &str) -> Self {
        let lines = log.lines().filter(|line| !line.is_empty());
        let parts = lines.map(|line| line.split_once(": ").unwrap_or((line, "no reason given")));
        Self(parts.map(|(test, reason)| (test.to_owned(), reason.to_owned())).collect())
    }

    /// Those whose reason a run in CI does not accept, as `test: reason`.
    pub(super) fn unexpected(&self) -> Vec<String> {
        let accepted = |reason: &str| ACCEPTED.iter().any(|start| reason.starts_with(start));
        let skips = self.0.iter().filter(|(_, reason)| !accepted(reason));
        skips.map(|(test, reason)| format!("{test}: {reason}")).collect()
    }

    /// Number of skips.
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The skips of both.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// Line with all reasons, most frequent first; then a line for each test.
impl fmt::Display for Skips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("skipped 0");
        }
        let mut counts = BTreeMap::<&str, u64>::new();
        for (_, reason) in &self.0 {
            *counts.entry(reason).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        // Stable: equal counts stay in order.
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let reasons: Vec<_> =
            counts.iter().map(|(reason, count)| format!("{reason} ({count})")).collect();
        write!(f, "skipped {}: {}", self.0.len(), reasons.join(", "))?;
        let mut tests: Vec<_> = self.0.iter().collect();
        tests.sort();
        tests.iter().try_for_each(|(test, reason)| {
            f.write_char('\n')?;
            write!(f, "  {test}: {reason}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
live::tune: no PMU
kernel::perf::opens: no PMU

live::debloat: needs 4GiB: 1GiB there
";

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
    fn two_runs_are_counted_together() {
        let both = Skips::read(LOG).and(Skips::read("live::run: not root\n"));
        assert_eq!(both.count(), 4);
        assert!(both.to_string().starts_with("skipped 4: no PMU (2), "));
    }

    #[test]
    fn some_reasons_are_accepted_in_ci() {
        let log = "a: mimalloc's test-stress.c is not there: cargo xtask setup\nb: not root\n";
        assert_eq!(Skips::read(log).unexpected(), ["b: not root"]);
    }
}
