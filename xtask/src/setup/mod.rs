//! Setup: programs, toolchain components and downloads that the tests use.
//!
//! Every step changes only what is missing, and tries a host once: a closed network lacks it. A
//! failed step does not fail the run: the tests that need it skip themselves, and `test` counts
//! them.

pub(crate) mod deny;
mod download;
mod mimalloc;
mod packages;
pub(crate) mod toolchain;

/// Name of a step and its function.
type Step = (&'static str, fn() -> State);

const STEPS: [Step; 4] = [
    ("packages", packages::install),
    ("toolchain", toolchain::install),
    ("mimalloc's stress test", mimalloc::install),
    ("cargo-deny", deny::install),
];

/// Installs what is missing. Prints a line per step that has its part, and one line with all that
/// is still missing. Returns what changed or is missing.
pub(crate) fn run() -> String {
    let (mut changes, mut missing) = (Vec::new(), Vec::new());
    for (step, install) in STEPS {
        let (list, text) = match install() {
            State::Present => {
                println!("{step}: present");
                continue;
            }
            State::Installed(names) => (&mut changes, format!("{step}: installed {names}")),
            State::Missing(cause) => (&mut missing, format!("{step}: {cause}")),
        };
        list.push(text);
    }
    changes.iter().for_each(|change| println!("{change}"));
    if !missing.is_empty() {
        let line =
            format!("MISSING, and the tests that need it are skipped: {}", missing.join("; "));
        eprintln!("{line}");
        changes.push(line);
    }
    if changes.is_empty() { "all present".to_owned() } else { changes.join("; ") }
}

/// Outcome of one step.
enum State {
    /// Nothing was missing.
    Present,
    /// Installed now, with the names.
    Installed(String),
    /// Still missing, with the names or the cause, and the help.
    Missing(String),
}

impl State {
    /// Something is missing. Of the cause, the last line counts: curl and apt end with the error.
    fn missing(cause: &str, help: &str) -> Self {
        let cause = cause.trim().lines().last().unwrap_or_default();
        Self::Missing(format!("{cause} (help: {help})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_takes_one_line() {
        let State::Missing(line) = State::missing("a\ncurl: no host\n", "b") else { panic!() };
        assert_eq!(line, "curl: no host (help: b)");
    }
}
