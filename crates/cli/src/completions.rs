//! Completion scripts for shells.

use clap_complete::Shell;

use crate::exit::Exit;
use crate::output::print;

const EXAMPLES: &str = "\
Examples:
  hugepilot completions bash > ~/.local/share/bash-completion/completions/hugepilot
                                             for bash
  hugepilot completions zsh > ~/.zfunc/_hugepilot
                                             for zsh, with ~/.zfunc in fpath
  hugepilot completions fish > ~/.config/fish/completions/hugepilot.fish
                                             for fish

Exit status: 0 printed, 2 error";

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
