//! Usage errors: words that a command does not take, with the option that the user meant.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command};

/// The usage error to print. `words` are those of the command line, with the name of the binary,
/// and without characters that control a terminal: clap prints those of the command line as they
/// are, and a line break could begin a line of its own. So the text is that of the error of
/// `words`.
pub(crate) fn error(error: Error, command: &mut Command, words: &[String]) -> Error {
    let error = crate::parsed(command, words).err().unwrap_or(error);
    with_tips(error, command, words).format(command)
}

/// Adds tips to `error`: about a word without an option, if the command takes a process or a
/// program by one, and an example if an argument or a value is missing. `words` are those of the
/// command line, with the name of the binary.
fn with_tips(mut error: Error, command: &Command, words: &[String]) -> Error {
    let mut named = command;
    for word in words.iter().skip(1) {
        let Some(below) = named.find_subcommand(word) else { break };
        named = below;
    }
    let text_of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        Some(ContextValue::Strings(texts)) => texts.first().map_or("", String::as_str),
        _ => "",
    };
    let argument = text_of(ContextKind::InvalidArg);
    let lacks_value =
        error.kind() == ErrorKind::InvalidValue && text_of(ContextKind::InvalidValue).is_empty();
    let tips = match error.kind() {
        ErrorKind::UnknownArgument => tips(argument, named),
        ErrorKind::MissingRequiredArgument => example(named, argument).into_iter().collect(),
        _ if lacks_value => example(named, argument).into_iter().collect(),
        _ => Vec::new(),
    };
    if !tips.is_empty() {
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// The first example of a command that has `argument`: an option, such as `--pid <PID>`, or a
/// value, which all have.
fn example(command: &Command, argument: &str) -> Option<String> {
    let help = command.get_after_long_help().or_else(|| command.get_after_help())?.to_string();
    let examples = help.split_once("Examples:\n")?.1.lines().take_while(|line| !line.is_empty());
    let examples = examples.filter_map(|line| line.trim_start().split("  ").next());
    // `explain` begins with the tune that writes its journal.
    let mut examples = examples.filter(|line| line.contains(command.get_name()));
    let option = command.get_arguments().find(|one| one.to_string() == argument);
    let short = option.and_then(Arg::get_short).map(|short| format!(" -{short} "));
    let long = option.and_then(Arg::get_long).map(|long| format!(" --{long} "));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let is_value = !argument.starts_with('-');
    let has_it = |line: &&str| is_value || names.iter().any(|name| line.contains(name));
    examples.find(has_it).map(|example| format!("for example: {example}"))
}

/// Tips for the unexpected `word` of a command.
fn tips(word: &str, command: &Command) -> Vec<String> {
    if word.starts_with('-') {
        let is_target = matches!(word, "-p" | "--pid" | "--name");
        let tip = "the daemon watches the system, or --cgroup; name processes with '--promote \
                   NAME' or '--protect WHO'";
        let tip = (is_target && command.get_name() == "daemon").then(|| tip.to_owned());
        return tip.into_iter().collect();
    }
    let has = |id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
    let process = match word.parse::<u32>() {
        Ok(pid) if has("pid") => Some(format!("to name a process, use '-p {pid}'")),
        Err(_) if has("name") => Some(format!("to name processes, use '--name {word}'")),
        _ => None,
    };
    let is_program = process.is_some() && command.get_arguments().any(Arg::is_last_set);
    let program = is_program.then(|| "to start a program, use '-- CMD'".to_owned());
    process.into_iter().chain(program).collect()
}

#[cfg(test)]
mod tests {
    use hugepilot_kernel::proc::printable;

    use super::*;

    fn text(line: &str) -> String {
        let mut command = crate::command();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = command.try_get_matches_from_mut(&words).unwrap_err();
        with_tips(error, &command, &words).format(&mut command).to_string()
    }

    #[test]
    fn a_word_without_an_option_has_tips() {
        let process = "tip: to name a process, use '-p 4711'";
        let program = "tip: to start a program, use '-- CMD'";
        let tune = text("hugepilot tune 4711");
        assert!(tune.contains("unexpected argument '4711' found"), "{tune}");
        assert!(tune.contains(process) && tune.contains(program), "{tune}");
        let status = text("hugepilot status 4711");
        assert!(status.contains(process) && !status.contains(program), "{status}");
        let named = text("hugepilot status postgres");
        assert!(named.contains("tip: to name processes, use '--name postgres'"), "{named}");
    }

    #[test]
    fn a_missing_argument_or_value_has_an_example() {
        for (line, example) in [
            ("tune -p", "sudo hugepilot tune -p $(pgrep -n redis-server)"),
            ("explain", "hugepilot explain tune.ndjson"),
            ("trace -- ls", "hugepilot trace -o "),
        ] {
            let text = text(&format!("hugepilot {line}"));
            assert!(text.contains(&format!("tip: for example: {example}")), "{text}");
        }
        let daemon = text("hugepilot daemon -p 7");
        assert!(daemon.contains("tip: the daemon watches the system"), "{daemon}");
    }

    #[test]
    fn words_control_no_terminal_and_begin_no_line() {
        let hostile = "\u{1b}[2J\u{1b}]0;x\u{7}\u{202e}\nhelp: rm";
        for line in [
            &["report", hostile, "--no-such"][..],
            &["report", &format!("--{hostile}"), "x"],
            &["tune", hostile],
            &["top", "--sort", hostile],
            &["record", "--from-regex", &format!("({hostile}"), "--", "true"],
            &[hostile],
        ] {
            let mut command = crate::command();
            let words: Vec<&str> = [&["hugepilot"], line].concat();
            let raw = crate::parsed(&mut command, &words).err().unwrap();
            let shown: Vec<String> = words.iter().map(|word| printable(word.as_bytes())).collect();
            let error = error(raw, &mut command, &shown);
            // With the colours of clap.
            let text = error.render().ansi().to_string();
            let bad = ["\u{1b}[2J", "\u{1b}]", "\u{7}", "\u{202e}", "\nhelp:"];
            assert!(bad.iter().all(|bad| !text.contains(bad)), "{line:?}: {text:?}");
        }
    }

    #[test]
    fn other_errors_are_unchanged() {
        for line in ["hugepilot doctor 4711", "hugepilot tune --no-such", "hugepilot 4711"] {
            assert!(!text(line).contains("to name"), "{line}: {}", text(line));
        }
        // Not the tip to put it behind `--`.
        let negative = text("hugepilot tune -p -5");
        assert!(negative.contains("a positive number") && !negative.contains("tip:"), "{negative}");
    }
}
