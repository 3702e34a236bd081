//! Printing: data on stdout, talk on stderr.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal, Write};

use hugepilot_kernel::{KernelError, Refusal, rights};
use hugepilot_launch::LaunchError;
use hugepilot_manager::ManagerError;
use hugepilot_record::{Errno, Pid};
use hugepilot_settings::SettingsError;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::Exit;
use crate::interrupt;

/// Writes a report to stdout. A reader that went away is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Writes a report of work that is done: a signal ends us at once from here on.
pub(crate) fn finish(text: &str) -> io::Result<()> {
    interrupt::over();
    print(text)
}

/// The parts of an error that decide its cause, its help and the exit status.
#[derive(Default)]
struct Parts<'a> {
    kernel: Option<&'a KernelError>,
    refused: Option<&'a Refusal>,
    settings: Option<&'a SettingsError>,
    launch: Option<&'a LaunchError>,
}

impl<'a> Parts<'a> {
    fn of(error: &'a anyhow::Error) -> Self {
        let mut parts = Self::default();
        for cause in error.chain() {
            parts.add_launch(cause.downcast_ref());
            parts.add_manager(cause.downcast_ref());
            parts.add_settings(cause.downcast_ref());
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
            Some(ManagerError::Kernel(kernel) | ManagerError::Sample { source: kernel, .. }) => {
                self.kernel = Some(kernel);
            }
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
}

/// Prints an error with what to do about it, and says which exit status it means. `reads_memory`: so does the verb.
pub(crate) fn fail(error: &anyhow::Error, reads_memory: bool) -> Exit {
    let Parts { kernel, refused, settings, launch } = Parts::of(error);
    let refusal = kernel.and_then(Refusal::of);
    let cause = refusal.as_ref().map_or_else(String::new, |refusal| format!(": {refusal}"));
    eprintln!("hugepilot: {}{cause}", told(error));
    if let Some(refusal) = refused {
        refusal.fix.iter().for_each(|fix| eprintln!("fix: {fix}"));
        return Exit::Unsupported;
    }
    match (launch, settings) {
        (Some(LaunchError::Interrupted), _) | (_, Some(SettingsError::Interrupted)) => {
            return Exit::Interrupted;
        }
        (Some(LaunchError::Signalled(signal)), _) => {
            interrupt::ended_by(*signal);
            return Exit::Interrupted;
        }
        (_, Some(SettingsError::Busy { .. })) => eprintln!("fix: wait until it has ended"),
        (_, Some(SettingsError::Journal { path, .. })) => {
            eprintln!("fix: look at it, set by hand what it names, and remove it: sudo rm {path}");
        }
        _ => {}
    }
    let Some(kernel) = kernel else { return Exit::Error };
    if let Some(fix) = refusal.and_then(|refusal| refusal.fix) {
        eprintln!("fix: {fix}");
        return if kernel.is_denied() || kernel.is_unsupported() {
            Exit::Unsupported
        } else {
            Exit::Error
        };
    }
    if kernel.is_denied() {
        let reads = matches!(kernel, KernelError::Syscall { call: "process_vm_readv", .. });
        eprintln!("fix: {}", rights::fix(reads || reads_memory));
        if let KernelError::Syscall { call: "process_vm_readv", pid, .. } = kernel {
            eprintln!(
                "or, where nobody may read its memory, let the kernel split what is nearly empty: {}",
                crate::debloat::shrinker::command(*pid)
            );
        }
        return Exit::Unsupported;
    }
    match kernel {
        _ if kernel.errno() == Some(Errno::EMFILE) => {
            eprintln!(
                "fix: let this process have more files open: ulimit -n 65536 (as root, or systemd's LimitNOFILE=)"
            );
        }
        _ if kernel.errno() == Some(Errno::ENFILE) => {
            eprintln!(
                "fix: end programs that hold many files, or raise the limit: sudo sysctl fs.file-max=1000000"
            );
        }
        KernelError::Claimed { holder, .. } => {
            let end = holder
                .map_or_else(String::new, |holder| format!(", or end it: kill -INT {holder}"));
            eprintln!("fix: wait until it has ended{end}");
        }
        KernelError::NoProcess { .. } => {
            eprintln!("fix: look for its number with pgrep; it may have ended")
        }
        KernelError::NoMemory { .. } => eprintln!("fix: choose a process that runs a program"),
        _ => {}
    }
    Exit::Error
}

/// Says why nothing could be done to another process, and with which exit status: `what` is not permitted, or the kernel lacks
/// the call. `failed` counts errors by name; `reads_memory`: so does the verb.
pub(crate) fn refused(what: &str, failed: &BTreeMap<String, u64>, reads_memory: bool) -> Exit {
    let (call, errno) = ("process_madvise", Errno::ENOSYS);
    let missing = KernelError::Syscall { call, pid: Pid(0), errno };
    match Refusal::of(&missing).filter(|_| failed.contains_key(&errno.to_string())) {
        Some(refusal) => {
            eprintln!("hugepilot: {what} is not possible: {refusal} ({errno})");
            refusal.fix.iter().for_each(|fix| eprintln!("fix: {fix}"));
        }
        None => eprintln!(
            "hugepilot: {what} is not permitted: it needs CAP_SYS_NICE\nfix: {}, or whether a seccomp filter forbids it",
            rights::fix(reads_memory)
        ),
    }
    Exit::Unsupported
}

/// The error and its causes in one line. A message that quotes its cause, as ours do, is not told twice.
fn told(error: &anyhow::Error) -> String {
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

/// One line of progress on a terminal, rewritten in place; nothing when stderr is not one.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(std::time::Duration::from_millis(120));
            bar
        });
        Self { bar }
    }
    /// Says what is being done just now.
    pub(crate) fn now(&self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_style(ProgressStyle::default_spinner());
            bar.unset_length();
            bar.set_message(message);
        }
    }
    /// Says how many bytes of it are done.
    pub(crate) fn of(&self, done: u64, all: u64) {
        if let Some(bar) = &self.bar {
            if bar.length() != Some(all) {
                let style = ProgressStyle::with_template(
                    "{spinner} {msg} [{bar:30}] {bytes} of {total_bytes}",
                );
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                bar.set_length(all);
            }
            bar.set_position(done);
        }
    }
    /// Says something that stays, terminal or not.
    pub(crate) fn keep(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.println(message),
            None => eprintln!("{message}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let inner = || anyhow::anyhow!("no such file");
        assert_eq!(told(&inner().context("cannot read x")), "cannot read x: no such file");
        assert_eq!(
            told(&inner().context("cannot read x: no such file")),
            "cannot read x: no such file"
        );
    }
}
