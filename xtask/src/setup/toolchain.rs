//! Components of the Rust toolchain: rustfmt, clippy and, of an installed nightly, Miri.

use std::process::Command;

use super::State;
use crate::run::{cargo, in_path, output};

/// Subcommand of cargo and the component that contains it.
const COMPONENTS: [(&str, &str); 2] = [("fmt", "rustfmt"), ("clippy", "clippy")];

/// Adds missing components with rustup. Of nightly, none is added unless it is installed.
pub(super) fn install() -> State {
    let missing =
        |&(command, _): &(&str, &str)| output(&mut cargo(&[command, "--version"])).is_err();
    let mut wanted: Vec<Vec<&str>> = Vec::new();
    let stable: Vec<_> =
        COMPONENTS.iter().filter(|it| missing(it)).map(|&(_, name)| name).collect();
    if !stable.is_empty() {
        wanted.push(stable);
    }
    if has_nightly() && miri().is_err() {
        wanted.push(vec!["miri", "rust-src", "--toolchain", "nightly"]);
    }
    let mut installed = Vec::new();
    for components in wanted {
        let args = [&["component", "add"], components.as_slice()].concat();
        let mut rustup = Command::new("rustup");
        rustup.env("RUSTUP_MAX_RETRIES", "0");
        if let Err(error) = output(rustup.args(&args)) {
            let cause = format!("cannot add {}: {}", components[0], first_line(&error));
            return State::missing(&cause, &format!("rustup {}", args.join(" ")));
        }
        installed.push(components[0]);
    }
    if installed.is_empty() { State::Present } else { State::Installed(installed.join(" ")) }
}

/// A command that runs `cargo miri ARGS` of nightly, or the cause why there is none.
pub(crate) fn miri() -> Result<Command, String> {
    let miri = || {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo", "miri"]);
        // Cargo of another toolchain set these for its children.
        for name in ["CARGO", "RUSTC", "RUSTDOC"] {
            command.env_remove(name);
        }
        command
    };
    if !in_path("rustup") {
        return Err("no rustup in PATH".to_owned());
    }
    output(miri().arg("--version")).map(|_| miri()).map_err(|error| first_line(&error).to_owned())
}

fn has_nightly() -> bool {
    let list = output(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    list.lines().any(|line| line.starts_with("nightly-"))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
