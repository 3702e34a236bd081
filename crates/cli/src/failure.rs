//! Failures of commands: a line with the cause, `help:` lines, JSON, and the exit status.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};

use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{KernelError, Unsupported, WatcherKilled, rights};
use hugepilot_launch::LaunchError;
use hugepilot_manager::ManagerError;
use hugepilot_record::error::{ErrorReport, SCHEMA};
use hugepilot_record::{Errno, Pid};
use hugepilot_render::Sentence;
use hugepilot_settings::SettingsError;
use hugepilot_trace::TraceError;

use crate::exit::Exit;
use crate::interrupt;
use crate::target::shrinker_command;

/// Failure of a command: `hugepilot: <error>: <cause>`, then a `help:` line for each suggestion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    error: String,
    cause: Option<String>,
    help: Vec<String>,
    exit: Exit,
}

/// The error with its cause, without help.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        self.cause.iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// A failure with this sentence and exit status.
    pub(crate) fn new(error: impl Into<String>, exit: Exit) -> Self {
        Self { error: error.into(), cause: None, help: Vec::new(), exit }
    }

    /// Sets the cause, unless the sentence states it already.
    pub(crate) fn because(mut self, cause: impl Into<String>) -> Self {
        let cause = cause.into();
        if !cause.is_empty() && !self.error.contains(&cause) {
            self.cause = Some(cause);
        }
        self
    }

    /// Adds suggestions, the likeliest first.
    pub(crate) fn with_help(mut self, help: impl IntoIterator<Item = String>) -> Self {
        self.help.extend(help);
        self
    }

    /// Prints the failure of a command that printed no report; with `--json`, also as JSON on
    /// stdout.
    pub(crate) fn print(self) -> Exit {
        if wants_json(std::env::args_os()) {
            self.print_json();
        }
        self.note()
    }

    /// Prints the failure as JSON on stdout.
    pub(crate) fn print_json(&self) {
        let _ = writeln!(io::stdout().lock(), "{}", self.json());
    }

    /// Prints the failure beside a report: on stderr only.
    pub(crate) fn note(self) -> Exit {
        let _ = io::stderr().lock().write_all(self.text().as_bytes());
        self.exit
    }

    /// The failure without control characters, which the name of a file can have.
    fn printable(&self) -> Self {
        let shown = |text: &String| printable(text.as_bytes());
        Self {
            error: shown(&self.error),
            cause: self.cause.as_ref().map(shown),
            help: self.help.iter().map(shown).collect(),
            exit: self.exit,
        }
    }

    fn text(&self) -> String {
        let shown = self.printable();
        let help = shown.help.iter().map(|help| format!("help: {help}\n"));
        format!("hugepilot: {shown}\n{}", help.collect::<String>())
    }

    fn json(&self) -> String {
        let Self { error, cause, help, exit } = self.printable();
        let schema = SCHEMA.to_owned();
        let report = ErrorReport { schema, error, cause, help, exit: exit as u8 };
        serde_json::to_string_pretty(&report).unwrap_or_default()
    }
}

/// Whether `--json` is among the arguments of hugepilot, before a `--`.
pub(crate) fn wants_json(arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
    let mut own = arguments.skip(1).take_while(|argument| argument != "--");
    own.any(|argument| argument == "--json")
}

/// Prints an error that ended a command, and returns the exit status. `reads_memory`: whether the
/// command reads memory of other processes, which requires one capability more.
pub(crate) fn fail(error: &anyhow::Error, reads_memory: bool) -> Exit {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.clone().print();
    }
    let parts = Parts::of(error);
    if let Some(LaunchError::Signalled(signal)) = parts.launch {
        interrupt::ended_by(*signal);
    }
    match parts.not_started().and_then(start_help) {
        Some(help) => Failure::new(message(error), Exit::Error).with_help([help.to_owned()]),
        None => parts.failure(message(error), reads_memory),
    }
    .print()
}

/// Help for a program that could not be started for this cause.
fn start_help(cause: &io::Error) -> Option<&'static str> {
    match cause.kind() {
        io::ErrorKind::NotFound => Some("check the path, and PATH, of the program after `--`"),
        io::ErrorKind::PermissionDenied => {
            Some("name an executable file (chmod +x), or its interpreter first, such as -- sh FILE")
        }
        _ => None,
    }
}

/// Prints that `what`, an action on other processes, is not permitted or that the kernel lacks the
/// call. `failed` counts errors by name; `reads_memory` as in [`fail`].
pub(crate) fn refused(what: &str, failed: &BTreeMap<String, u64>, reads_memory: bool) -> Exit {
    let (call, errno) = ("process_madvise", Errno::ENOSYS);
    let missing = KernelError::Syscall { call, pid: Pid(0), errno };
    let is_missing = failed.contains_key(&errno.to_string());
    let failure = match missing.unsupported().filter(|_| is_missing) {
        Some(reason) => Failure::new(format!("{what} is not possible"), Exit::Unsupported)
            .because(format!("{reason} ({errno})"))
            .with_help(reason.help()),
        None => Failure::new(format!("{what} is not permitted"), Exit::Unsupported)
            .because("it requires CAP_SYS_NICE")
            .with_help([
                rights::fix(reads_memory),
                "if the capability is set, check for a seccomp filter: hugepilot doctor".to_owned(),
            ]),
    };
    failure.note()
}

/// The errors of this workspace in an error's chain.
#[derive(Default)]
struct Parts<'a> {
    kernel: Option<&'a KernelError>,
    refused: Option<&'a Unsupported>,
    settings: Option<&'a SettingsError>,
    launch: Option<&'a LaunchError>,
    trace: Option<&'a TraceError>,
}

impl<'a> Parts<'a> {
    fn of(error: &'a anyhow::Error) -> Self {
        let mut parts = Self::default();
        for cause in error.chain() {
            parts.add_launch(cause.downcast_ref());
            parts.add_manager(cause.downcast_ref());
            parts.add_settings(cause.downcast_ref());
            parts.trace = parts.trace.or(cause.downcast_ref());
            parts.kernel = parts.kernel.or(cause.downcast_ref());
            parts.refused = parts.refused.or(cause.downcast_ref());
        }
        parts
    }

    fn add_launch(&mut self, error: Option<&'a LaunchError>) {
        self.launch = self.launch.or(error);
        match error {
            Some(LaunchError::Kernel(kernel)) => self.kernel = Some(kernel),
            Some(LaunchError::Refused(refused)) => self.refused = Some(refused),
            Some(LaunchError::Manager(manager)) => self.add_manager(Some(manager)),
            Some(LaunchError::Settings(settings)) => self.add_settings(Some(settings)),
            _ => {}
        }
    }

    fn add_manager(&mut self, error: Option<&'a ManagerError>) {
        match error {
            Some(
                ManagerError::Kernel(kernel)
                | ManagerError::Promote(kernel)
                | ManagerError::Sample { source: kernel, .. },
            ) => self.kernel = Some(kernel),
            Some(ManagerError::Refused(refused)) => self.refused = Some(refused),
            _ => {}
        }
    }

    fn add_settings(&mut self, error: Option<&'a SettingsError>) {
        self.settings = self.settings.or(error);
        match error {
            Some(SettingsError::Kernel(kernel)) => self.kernel = Some(kernel),
            Some(SettingsError::Refused(refused)) => self.refused = Some(refused),
            _ => {}
        }
    }

    /// The cause for which a program could not be started.
    const fn not_started(&self) -> Option<&'a io::Error> {
        match (self.launch, self.trace) {
            (Some(LaunchError::Start { source, .. }), _)
            | (_, Some(TraceError::Start { source, .. })) => Some(source),
            _ => None,
        }
    }

    /// The failure with its cause, its help and its exit status.
    fn failure(&self, message: String, reads_memory: bool) -> Failure {
        let reason = self.kernel.and_then(KernelError::unsupported);
        let cause = reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let failure = |exit| Failure::new(message, exit).because(cause);
        if let Some(refused) = self.refused {
            return failure(Exit::Unsupported).with_help(refused.help());
        }
        if let Some(error) = self.trace {
            return failure(Exit::Error).with_help(error.help());
        }
        match (self.launch, self.settings) {
            (Some(LaunchError::EmptyPool { warnings, .. }), _) => {
                let warnings: Vec<String> = warnings.iter().map(Sentence::text).collect();
                let help = ["a smaller --pool", "read what a pool needs: hugepilot pool explain"];
                return failure(Exit::Unsupported)
                    .because(warnings.join("; "))
                    .with_help(help.map(str::to_owned));
            }
            (Some(LaunchError::Unwatched { .. }), _) => {
                return failure(Exit::Error).with_help([WatcherKilled::HELP.to_owned()]);
            }
            (Some(LaunchError::Interrupted | LaunchError::Signalled(_)), _)
            | (_, Some(SettingsError::Interrupted)) => return failure(Exit::Interrupted),
            (_, Some(SettingsError::Busy { .. })) => {
                return failure(Exit::Error)
                    .with_help(["wait until the other command ends".to_owned()]);
            }
            (_, Some(SettingsError::PrefetchBits { .. })) => {
                let help = "list the bits: sudo hugepilot knobs prefetch show";
                return failure(Exit::Error).with_help([help.to_owned()]);
            }
            (_, Some(SettingsError::Journal { path, .. })) => {
                let help = format!(
                    "read the file, restore the settings that it names, then: sudo rm {path}"
                );
                return failure(Exit::Error).with_help([help]);
            }
            _ => {}
        }
        let Some(kernel) = self.kernel else { return failure(Exit::Error) };
        let unsupported = kernel.is_denied() || kernel.is_unsupported();
        let exit = if unsupported { Exit::Unsupported } else { Exit::Error };
        match reason.map(|reason| reason.help()).filter(|help| !help.is_empty()) {
            Some(help) => failure(exit).with_help(help),
            None if kernel.is_denied() => {
                failure(Exit::Unsupported).with_help(denied(kernel, reads_memory))
            }
            None => failure(Exit::Error).with_help(help_for(kernel)),
        }
    }
}

/// Help for a missing permission.
fn denied(kernel: &KernelError, reads_memory: bool) -> Vec<String> {
    let unreadable = match kernel {
        KernelError::Syscall { call: "process_vm_readv", pid, .. } => Some(*pid),
        _ => None,
    };
    let shrinker = unreadable.map(|pid| {
        let command = shrinker_command(pid);
        format!(
            "if its memory cannot be read, let the kernel split underused huge pages: {command}"
        )
    });
    std::iter::once(rights::fix(unreadable.is_some() || reads_memory)).chain(shrinker).collect()
}

/// Help for errors that are not about permissions.
fn help_for(kernel: &KernelError) -> Option<String> {
    Some(match kernel {
        _ if kernel.errno() == Some(Errno::EMFILE) => {
            "raise the limit of open files: ulimit -n 65536 (or LimitNOFILE= of systemd)".to_owned()
        }
        _ if kernel.errno() == Some(Errno::ENFILE) => {
            "end programs with many open files, or raise the limit: sudo sysctl fs.file-max=1000000"
                .to_owned()
        }
        KernelError::Claimed { holder, .. } => holder.map_or_else(
            || "wait until the other command ends".to_owned(),
            |holder| format!("wait until the other command ends, or end it: kill -INT {holder}"),
        ),
        KernelError::NoProcess { .. } => "list pids by name: pgrep -l NAME".to_owned(),
        KernelError::NoMemory { .. } => {
            "name the pid of a program, not of a kernel thread".to_owned()
        }
        _ => return None,
    })
}

/// The error and its causes in one line; a cause that the text quotes already is not repeated.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_stated_once() {
        let inner = || anyhow::anyhow!("no such file");
        assert_eq!(message(&inner().context("cannot read x")), "cannot read x: no such file");
        let quoting = inner().context("cannot read x: no such file");
        assert_eq!(message(&quoting), "cannot read x: no such file");
        let failure = Failure::new("cannot read x: no such file", Exit::Error);
        assert_eq!(failure.clone().because("no such file"), failure);
    }

    #[test]
    fn text_and_json_hold_the_same_facts() {
        let failure = Failure::new("cannot sample process 7", Exit::Unsupported)
            .because("perf events are off (EPERM)")
            .with_help(["run as root".to_owned()]);
        let text =
            "hugepilot: cannot sample process 7: perf events are off (EPERM)\nhelp: run as root\n";
        assert_eq!(failure.text(), text);
        let json: serde_json::Value = serde_json::from_str(&failure.json()).unwrap();
        let expected = serde_json::json!({
            "schema": "hugepilot.error/1",
            "error": "cannot sample process 7",
            "cause": "perf events are off (EPERM)",
            "help": ["run as root"],
            "exit": 3,
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn no_part_of_a_failure_has_control_characters() {
        let hostile = "a\u{1b}]0;x\u{7}\u{9b}31m\nhelp: rm";
        let failure = Failure::new(hostile, Exit::Error).because(format!("cause {hostile}"));
        let failure = failure.with_help([hostile.to_owned()]);
        let shown = r"a\u{1b}]0;x\u{7}\u{9b}31m\nhelp: rm";
        let text = format!("hugepilot: {shown}: cause {shown}\nhelp: {shown}\n");
        assert_eq!(failure.text(), text);
        let json: serde_json::Value = serde_json::from_str(&failure.json()).unwrap();
        let parts = [&json["error"], &json["help"][0]];
        assert!(parts.iter().all(|part| **part == shown), "{json}");
    }

    #[test]
    fn a_simulation_that_is_too_large_has_help() {
        let most = hugepilot_units::Bytes::gib(1);
        let errors = [
            TraceError::TooManySources { sources: 3, most: 2 },
            TraceError::TooMuchMemory { fit: 7, most },
        ];
        for error in errors {
            let (help, error) = (error.help(), anyhow::Error::from(error));
            assert_eq!(Parts::of(&error).failure(message(&error), false).help, help);
        }
    }

    #[test]
    fn json_is_wanted_only_before_the_command() {
        let wants = |line: &str| wants_json(line.split(' ').map(Into::into));
        assert!(wants("hugepilot status -p 1 --json"));
        assert!(!wants("hugepilot status -p 1"));
        assert!(!wants("hugepilot tune -- ./solve --json"));
    }
}
