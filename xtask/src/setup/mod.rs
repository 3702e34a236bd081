//! Setup: programs, toolchain components and downloads that the tests use.
//!
//! Every step changes only what is missing. A failed step does not fail the run: the tests
//! that need it skip themselves, and `test` counts them.

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

/// Installs what is missing and prints one line per step. Returns what changed or is missing.
pub(crate) fn run() -> String {
    let mut changes = Vec::new();
    for (step, install) in STEPS {
        let state = install();
        println!("{step}: {}", state.text());
        if !matches!(state, State::Present) {
            changes.push(format!("{step}: {}", state.text()));
        }
    }
    if changes.is_empty() { "all present".to_owned() } else { changes.join("; ") }
}

/// Outcome of one step.
enum State {
    /// Nothing was missing.
    Present,
    /// Installed now, with the names.
    Installed(String),
    /// Still missing, with the names or the cause.
    Missing(String),
}

impl State {
    fn text(&self) -> String {
        match self {
            Self::Present => "present".to_owned(),
            Self::Installed(names) => format!("installed {names}"),
            Self::Missing(cause) => format!("MISSING: {cause}"),
        }
    }

    /// Warns on stderr about something missing, and names the help.
    fn missing(cause: String, help: &str) -> Self {
        eprintln!("\nwarning: {cause}; checks that need it are skipped\nhelp: {help}\n");
        Self::Missing(cause)
    }
}
