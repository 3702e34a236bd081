//! Goldens of every `--help`.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Command;
use hugepilot_testkit::assert_golden;

use crate::assert_files;

/// Columns of the goldens.
const WIDTH: usize = 100;

#[test]
fn the_help_of_every_command_is_the_golden() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let mut command = hugepilot_cli::command().term_width(WIDTH).disable_help_subcommand(true);
    command.build();
    let mut files = BTreeSet::new();
    check(&mut command, "hugepilot", &folder, &mut files);
    assert_files(&folder, &files);
}

fn check(command: &mut Command, name: &str, folder: &Path, files: &mut BTreeSet<String>) {
    let help = command.render_long_help().to_string();
    assert_golden(folder.join(format!("{name}.txt")), &help);
    files.insert(format!("{name}.txt"));
    for below in command.get_subcommands_mut().filter(|below| !below.is_hide_set()) {
        let name = format!("{name}-{}", below.get_name());
        check(below, &name, folder, files);
    }
}
