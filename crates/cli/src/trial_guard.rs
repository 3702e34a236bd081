//! Process that returns the regions of a trial to base pages if this one is killed.

use std::io::{self, Write};
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_kernel::{Process, Root, Target};
use hugepilot_manager::trial_guard::{TrialGuard, open_trials};
use hugepilot_report::counted;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// First argument of the process, which is not a command: users do not start it.
pub(crate) const ARGUMENT: &str = "guard-trials";

/// Longest time that a killed process takes to end. A system call that allocates huge pages ends
/// first.
const LONGEST_END: Duration = Duration::from_secs(10);

/// Returns a guard that starts at the first trial.
pub(crate) fn new() -> Arc<TrialGuard> {
    Arc::new(TrialGuard::new(start))
}

/// Starts the process in a group of its own, which Ctrl-C does not reach.
fn start() -> io::Result<Box<dyn Write + Send>> {
    let mut child = Command::new("/proc/self/exe")
        .arg(ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok(Box::new(pipe))
}

/// Runs as that process.
pub(crate) fn run() -> ExitCode {
    // A signal to both must not end the guard before the other one.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let open = |pid| Process::open(&Root::live(), pid).map(|one| Rc::new(one) as Rc<dyn Target>);
    let parent = parent_id();
    let promotions = open_trials(io::stdin().lock());
    wait_for_end(parent);
    let report = promotions.undo(false, 0, &open, &|| false);
    let returned = report.returned();
    if returned > 0 {
        let regions = counted(returned, "region is", "regions are");
        let _ = writeln!(
            io::stderr(),
            "hugepilot: killed in a trial; its {regions} on base pages again"
        );
    }
    ExitCode::SUCCESS
}

/// Waits until process `parent` has ended. A process that is killed closes its files one after
/// another: the pipe may end while the process still holds its claim on the target.
fn wait_for_end(parent: u32) {
    let begin = Instant::now();
    while parent_id() == parent && begin.elapsed() < LONGEST_END {
        thread::sleep(Duration::from_millis(1));
    }
}
