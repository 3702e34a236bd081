//! `cargo xtask install` into an empty folder: man pages, completions, libraries and documents as
//! their readers meet them. pkg-config and CMake are tested with the C library, in `capi`.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::{fs, str};

use hugepilot_testkit::{need, requires};

/// The prefix into which the first caller installs a debug build.
fn prefix() -> &'static Path {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let prefix = Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/installed"));
    INSTALLED.get_or_init(|| {
        let _ = fs::remove_dir_all(prefix);
        run(Command::new(env!("CARGO_BIN_EXE_xtask")).args(["install", "--debug"]).arg(prefix));
    });
    prefix
}

/// Runs `command` and returns its stdout.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = str::from_utf8(&output.stderr).unwrap();
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that `--help` lists below `command`.
fn subcommands(command: &[&str]) -> Vec<String> {
    let help = run(Command::new(prefix().join("bin/hugepilot")).args(command).arg("--help"));
    // Those of the program are in groups with other titles.
    let list = help.lines().skip_while(|line| !line.starts_with("Usage:"));
    let list = list.take_while(|line| *line != "Options:");
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_man_page() {
    requires!(need::program("man"));
    let commands = subcommands(&[]);
    assert!(commands.len() > 8, "{commands:?}");
    let pools = subcommands(&["pool"]).into_iter().map(|name| format!("pool-{name}"));
    for name in commands.into_iter().chain(pools) {
        let page = prefix().join(format!("share/man/man1/hugepilot-{name}.1"));
        let text = run(Command::new("man").env("MANWIDTH", "100").arg("-l").arg(&page));
        for part in ["NAME", "SYNOPSIS", "OPTIONS"] {
            assert!(text.contains(part), "{name}: no {part}");
        }
    }
    let text = run(Command::new("man").arg("-l").arg(prefix().join("share/man/man1/hugepilot.1")));
    assert!(text.contains("hugepilot-tune(1)"), "{text}");
}

#[test]
fn bash_completes_commands_and_modes() {
    requires!(need::program("bash"));
    let script = prefix().join("share/bash-completion/completions/hugepilot");
    run(Command::new("bash").arg("-n").arg(&script));
    let complete = |words: &str, last: &str, before: &str| {
        let line = format!(
            "source \"$1\"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _hugepilot hugepilot {last} {before}; echo \"${{COMPREPLY[@]}}\""
        );
        run(Command::new("bash").args(["-c", &line, "bash"]).arg(&script)).trim().to_owned()
    };
    assert_eq!(complete("hugepilot tu", "tu", "hugepilot"), "tune");
    assert_eq!(complete("hugepilot run --pages gl", "gl", "--pages"), "glibc-thp");
}

#[test]
fn zsh_completes_commands() {
    requires!(need::program("zsh"));
    let script = prefix().join("share/zsh/site-functions/_hugepilot");
    run(Command::new("zsh").arg("-n").arg(&script));
    // Completion works in terminals only; that the function loads is what can be tested.
    let load = "fpath=($1 $fpath); autoload -U compinit; compinit -D -u; \
        echo ${_comps[hugepilot]}; autoload +X _hugepilot";
    let folder = script.parent().unwrap();
    let function = run(Command::new("zsh").args(["-f", "-c", load, "zsh"]).arg(folder));
    assert_eq!(function.trim(), "_hugepilot");
}

#[test]
fn fish_completes_commands() {
    requires!(need::program("fish"));
    let script = prefix().join("share/fish/vendor_completions.d/hugepilot.fish");
    run(Command::new("fish").arg("--no-execute").arg(&script));
    let complete = "source $argv[1]; complete --do-complete 'hugepilot tu'";
    let words = run(Command::new("fish").args(["--no-config", "-c", complete]).arg(&script));
    assert!(words.starts_with("tune\t"), "{words}");
}

#[test]
fn libraries_and_documents_are_installed() {
    for file in [
        "include/hugepilot.h",
        "include/hugepilot.hpp",
        "lib/libhugepilot.a",
        "lib/libhugepilot.so",
        "lib/pkgconfig/hugepilot.pc",
        "lib/cmake/hugepilot/hugepilot-config.cmake",
        "share/doc/hugepilot/README.md",
        "share/doc/hugepilot/docs/cli.md",
    ] {
        assert!(prefix().join(file).exists(), "{file}");
    }
    let preload = prefix().join("lib/libhugepilot_preload.so");
    run(Command::new("/bin/true").env("LD_PRELOAD", preload));
}

#[test]
fn links_of_installed_documents_hold() {
    let documents = prefix().join("share/doc/hugepilot");
    for folder in ["", "docs", "docs/cli"].map(|name| documents.join(name)) {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            for link in text.split("](").skip(1) {
                let file = link.split([')', '#']).next().unwrap();
                let is_file = !file.is_empty() && !file.contains("://");
                assert!(!is_file || folder.join(file).exists(), "{}: {file}", path.display());
            }
        }
    }
}
