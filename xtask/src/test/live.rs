//! Live tests: which of them run at the same time.

use std::path::Path;

use anyhow::Result;

use super::programs::{self, Program};
use crate::run::{self, Tests};

/// Arguments that select the live tests of all crates, which cargo runs only by name. Workspace and
/// features are those of the other tests, so that only the live tests are left to build.
pub(super) const LIVE: [&str; 4] = ["--workspace", "--all-features", "--test", "live"];

/// Modules whose tests run two at a time: they have processes of their own, stop none of the group
/// of the test, change no setting of the machine, and expect neither a gain nor a time. Compaction
/// for one of them does not disturb the other. All others run alone. If a process of an orphaned
/// group is stopped, the end of a program beside it, whose parent is in another group, is a SIGHUP
/// for the whole group, also for the test. The test runner selects by part of a name, so that no
/// name may be the end of another.
const IN_PAIRS: [&str; 35] = [
    "bloated::",
    "blocked::",
    "bytes::",
    "capped::",
    "churn::",
    "compare::",
    "decisions::",
    "exchange::",
    "experiments::",
    "graph::",
    "graph500::",
    "graph_files::",
    "hostile::",
    "inherited::",
    "injected::",
    "journal::",
    "launched::",
    "log::",
    "options::",
    "orders::",
    "peak::",
    "record::",
    "recorded::",
    "refused::",
    "schedule::",
    "several::",
    "sharing::",
    "signals::",
    "status::",
    "targets::",
    "thirtytwo::",
    "timed::",
    "traces::",
    "truth::",
    "unprivileged::",
];

/// Builds the tests.
pub(super) fn build() -> Result<Vec<Program>> {
    let mut programs = programs::build_tests(&LIVE)?;
    // It installs the library by cargo, which waits for its lock while a check holds it.
    programs.sort_by_key(|program| program.name.starts_with("capi "));
    Ok(programs)
}

/// Runs the tests of `programs`: first those of [`IN_PAIRS`], then the others. Prints the slowest
/// of the others. Cargo does not run them, because of its lock.
pub(super) fn run(programs: &[Program], log: &Path) -> Tests {
    // Otherwise tests that lack huge pages compact memory beside others.
    run::join_free_memory();
    let with = |program: &Program, threads: u32| {
        let mut command = run::beside(&program.command, program.command.get_program());
        command.env("HUGEPILOT_LIVE", "1").env("HUGEPILOT_SKIP_LOG", log);
        command.arg(format!("--test-threads={threads}"));
        command
    };
    let in_pairs = |program: &Program| {
        run::run_tests(&program.name, with(program, 2).args(IN_PAIRS), |_, _| {})
    };
    let paired: Tests = programs.iter().map(in_pairs).sum();
    let skip = IN_PAIRS.iter().flat_map(|module| ["--skip", module]);
    let mut times = Vec::new();
    let alone = |program: &Program| {
        let finished = |time, name: &str| times.push((time, name.to_owned()));
        run::run_tests(&program.name, with(program, 1).args(skip.clone()), finished)
    };
    let alone: Tests = programs.iter().map(alone).sum();
    run::print_slowest(times);
    [paired, alone].into_iter().sum()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::run::root;

    /// Reads a source, or all of a folder.
    fn sources(path: &Path) -> String {
        match fs::read_dir(path) {
            Ok(entries) => entries.map(|entry| sources(&entry.unwrap().path())).collect(),
            Err(_) => fs::read_to_string(path).unwrap_or_default(),
        }
    }

    #[test]
    fn each_module_exists_and_no_other_is_selected() {
        let crates = fs::read_dir(root().join("crates")).unwrap();
        let tests = crates.map(|one| one.unwrap().path().join("tests"));
        let text: String = tests
            .flat_map(|tests| ["live", "live.rs"].map(|name| sources(&tests.join(name))))
            .collect();
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("mod "));
        let modules: Vec<_> = lines.filter_map(|line| line.split_once(';')).collect();
        assert!(modules.len() > 50, "{modules:?}");
        assert!(modules.iter().any(|(module, _)| *module == "peak"), "those of crate graph");
        for selected in IN_PAIRS.map(|name| name.trim_end_matches("::")) {
            let found = modules.iter().filter(|(module, _)| module.ends_with(selected));
            let found: Vec<_> = found.map(|(module, _)| *module).collect();
            assert!(!found.is_empty() && found.iter().all(|one| *one == selected), "{found:?}");
        }
    }
}
