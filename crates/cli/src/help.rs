//! Help in two lengths: `--help` has everything, `-h` the usual options and a few examples.

use clap::Command;

/// Commands by purpose, in the order of the help of `hugepilot`.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Tune live programs", &["doctor", "status", "top", "tune", "debloat", "daemon", "explain"]),
    ("Start programs", &["run", "compare", "pool"]),
    ("Measure", &["record", "report"]),
    ("Your own code", &["graph"]),
    ("Experiment", &["lab", "sim", "trace", "knobs"]),
    ("Tool", &["schema", "completions"]),
];

/// Examples that `-h` shows.
const SHORT_EXAMPLES: usize = 5;

/// Lists the commands in their groups.
pub(crate) fn grouped(command: Command) -> Command {
    let about = |name: &str| {
        let found = command.find_subcommand(name).and_then(Command::get_about);
        found.map(ToString::to_string).unwrap_or_default()
    };
    let group = |(title, names): &(&str, &[&str])| {
        let lines: String =
            names.iter().map(|name| format!("  {name:<12} {}\n", about(name))).collect();
        format!("{title}:\n{lines}\n")
    };
    let groups: String = GROUPS.iter().map(group).collect();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\
         {{after-help}}"
    );
    command.help_template(template)
}

/// Shortens the examples of `-h`, and omits its tables and exit status.
pub(crate) fn shortened(command: Command) -> Command {
    let command = command.mut_subcommands(shortened);
    let Some(whole) = command.get_after_help().map(ToString::to_string) else { return command };
    let short = examples(&whole);
    command.after_long_help(whole).after_help(short)
}

/// The first examples of a help text.
fn examples(help: &str) -> String {
    let Some((_, examples)) = help.split_once("Examples:\n") else { return help.to_owned() };
    let (mut text, mut count) = ("Examples:".to_owned(), 0);
    for line in examples.lines().take_while(|line| !line.is_empty()) {
        // The comment of a long example is in a line of its own.
        count += usize::from(!line.starts_with("   "));
        if count > SHORT_EXAMPLES {
            break;
        }
        text.push('\n');
        text.push_str(line);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = crate::command();
        let all: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        let grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(grouped.len(), all.len());
    }

    #[test]
    fn the_short_help_of_commands_for_programs_fits_a_screen() {
        let for_programs: Vec<&str> =
            GROUPS[..3].iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for (name, command) in crate::leaves() {
            let mut command = shortened(command).term_width(100);
            let lines = command.render_help().to_string().lines().count();
            let is_limited = for_programs.contains(&name.split(' ').next().unwrap());
            assert!(lines <= 60 || !is_limited, "{name}: {lines} lines");
            let long = command.render_long_help().to_string();
            assert!(long.contains("Exit status: "), "{name}: {long}");
        }
    }

    #[test]
    fn the_first_examples_are_kept_whole() {
        let kept = "Examples:\n  a  one\n  bbbbbbbb\n       two\n  c\n  d\n  e";
        assert_eq!(examples(&format!("Columns:\n  A  b\n\n{kept}\n  f\n\nExit status: 0")), kept);
    }
}
