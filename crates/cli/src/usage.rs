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

/// Adds tips to `error` about a word without an option, if the command takes a process or a program
/// by one. `words` are those of the command line, with the name of the binary.
fn with_tips(mut error: Error, command: &Command, words: &[String]) -> Error {
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let named = words.get(1).and_then(|name| command.find_subcommand(name));
    let tips = named.map_or_else(Vec::new, |named| tips(word, named));
    if is_unknown && !word.starts_with('-') && !tips.is_empty() {
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Tips for the unexpected `word` of a command.
fn tips(word: &str, command: &Command) -> Vec<String> {
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
    }
}
