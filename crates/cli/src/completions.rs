//! Completion scripts for shells.

use clap_complete::Shell;

use crate::exit::Exit;
use crate::output::print;

const EXAMPLES: &str = "\
EXAMPLES:
  hugepilot completions bash > ~/.local/share/bash-completion/completions/hugepilot
  hugepilot completions zsh > ~/.zfunc/_hugepilot
  hugepilot completions fish > ~/.config/fish/completions/hugepilot.fish";

/// Print a completion script for a shell
///
/// `cargo xtask install` installs the scripts for bash, zsh and fish.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the script
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "hugepilot", &mut script);
    print(&String::from_utf8(script)?)?;
    Ok(Exit::Yes)
}
