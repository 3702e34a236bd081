//! Process that measures the calibration. It takes memory, so it is the one that the kernel kills
//! if memory gets short: never hugepilot itself, and never a target.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};

use hugepilot_kernel::own_memory::make_expendable;
use hugepilot_kernel::{OwnMemory, Root};
use hugepilot_profiler::calibrate::{Measurement, largest};
use hugepilot_units::Bytes;
use hugepilot_workload::calibration::measure;

/// First argument of the process, which is not a command: users do not start it.
pub(crate) const ARGUMENT: &str = "measure-calibration";

/// First word of a line about the size that is measured next; the last line is the result.
const SIZE: &str = "size";

/// Measurement in progress. Dropping it ends the process.
pub(super) struct Measuring {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Measuring {
    pub(super) fn start() -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// Waits for the result, and reports each size before it is measured. An error is the cause, as
    /// text.
    pub(super) fn wait(mut self, progress: impl Fn(Bytes)) -> Result<Measurement, String> {
        let mut last = String::new();
        for line in self.output.by_ref().lines().map_while(Result::ok) {
            match size(&line) {
                Some(hot) => progress(hot),
                None => last = line,
            }
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        result(status, &last)
    }

    /// Returns the result if the process has ended.
    pub(super) fn poll(&mut self) -> Option<Result<Measurement, String>> {
        let status = match self.child.try_wait() {
            Ok(status) => status?,
            Err(error) => return Some(Err(error.to_string())),
        };
        // All of it is in the pipe, which is longer.
        let mut text = String::new();
        let _ = self.output.read_to_string(&mut text);
        Some(result(status, text.lines().last().unwrap_or_default()))
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(line: &str) -> Option<Bytes> {
    line.strip_prefix(SIZE)?.trim_start().parse().ok().map(Bytes::new)
}

fn result(status: ExitStatus, last: &str) -> Result<Measurement, String> {
    const SIGKILL: i32 = 9;
    match (status.signal(), serde_json::from_str(last)) {
        (Some(SIGKILL), _) => {
            Err("memory became short, and the kernel killed the process that measures".to_owned())
        }
        (None, Ok(measured)) if status.success() => Ok(measured),
        // Its error.
        (None, _) if !last.is_empty() => Err(last.to_owned()),
        _ => Err(format!("the process that measures ended with {status}")),
    }
}

/// Runs as that process. Its output is that of [`Measuring`].
pub(crate) fn run() -> ExitCode {
    let root = Root::live();
    // A size that is measured fits, but other programs may take memory at the same time.
    let most = OwnMemory::read(&root).room().min(largest());
    let say = |line: &str| {
        let mut stdout = io::stdout().lock();
        let said = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        said.is_ok()
    };
    if let Err(error) = make_expendable(&root, most) {
        say(&format!("its process cannot be limited: {error}"));
        return ExitCode::FAILURE;
    }
    let progress = |hot: Bytes| _ = say(&format!("{SIZE} {}", hot.get()));
    let text = match measure(&progress) {
        Ok(measured) => serde_json::to_string(&measured).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let (said, exit) = match &text {
        Ok(text) => (say(text), ExitCode::SUCCESS),
        Err(cause) => (say(cause), ExitCode::FAILURE),
    };
    if said { exit } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_a_result_has_a_cause() {
        let ended = |status, line| result(ExitStatus::from_raw(status), line).unwrap_err();
        assert!(ended(9, "size 16777216").contains("memory became short"));
        assert_eq!(ended(1 << 8, "it failed"), "it failed");
        assert!(ended(2, "").contains("signal: 2"), "{}", ended(2, ""));
        assert!(ended(0, "").contains("exit status: 0"));
        assert_eq!(size("size 16777216"), Some(Bytes::mib(16)));
        assert_eq!(size("{}"), None);
    }
}
