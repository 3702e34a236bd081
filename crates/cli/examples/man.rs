//! Man pages of all commands, written to a folder: `cargo run --example man -- DIR`.
//!
//! Their source is the definition of the command line, as that of `--help`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use clap::Command;
use clap_mangen::Man;

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("usage: man DIR"))?;
    fs::create_dir_all(&folder)?;
    let mut command = hugepilot_cli::command().disable_help_subcommand(true);
    command.build();
    write(&command, &folder)
}

/// Writes the page of `command` and those of its subcommands.
fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, folder)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    render_after_help(&after.map(ToString::to_string).unwrap_or_default(), &mut page)?;
    fs::write(folder.join(man.get_filename()), page)
}

/// Renders the text after the options: each `Heading:` starts a section. Lines are filled only if
/// the text starts on the line of the heading.
fn render_after_help(text: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let is_plain = |line: &str| !line.contains(':') || line.starts_with(' ');
    if text.lines().next().is_some_and(is_plain) {
        writeln!(page, ".SH NOTES\n.nf")?;
    }
    for line in text.lines() {
        let heading = line.split_once(':').filter(|_| !is_plain(line));
        let line = match heading {
            Some((name, rest)) => {
                let mode = if rest.is_empty() { ".nf" } else { ".fi" };
                writeln!(page, ".SH \"{}\"\n{mode}", name.to_uppercase())?;
                rest.trim()
            }
            None => line.strip_prefix("  ").unwrap_or(line),
        };
        if heading.is_none() || !line.is_empty() {
            writeln!(page, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
        }
    }
    writeln!(page, ".fi")
}
