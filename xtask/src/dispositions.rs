//! Signals that we were started to ignore, as by `nohup` or by `&` in a script: programs that we start must not inherit that.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{FORBIDDEN, SIGPIPE};

/// Lets every program that starts from here on begin with default dispositions. The tests send signals, and expect them
/// to end what they started.
///
/// A signal with a handler is back at its default after `exec`, so a handler that does nothing is enough, and takes no
/// unsafe code. Signals that nobody ignores keep ending us.
pub(crate) fn reset() -> Result<()> {
    for signal in ignored()? {
        // Real-time signals of the C library are refused.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    Ok(())
}

/// The signals that this process ignores.
fn ignored() -> Result<Vec<i32>> {
    let status = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    // Rust ignores SIGPIPE itself, and not in programs that it starts.
    let resets = |signal: &i32| *signal != SIGPIPE && !FORBIDDEN.contains(signal);
    Ok(read_ignored(&status).into_iter().filter(resets).collect())
}

/// Reads `SigIgn: …`, a bit for each signal.
fn read_ignored(status: &str) -> Vec<i32> {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| set >> (signal - 1) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

    use super::*;

    /// The test below, in a process that ignores signals.
    const AGAIN: &str = "XTASK_TEST_IGNORES";

    #[test]
    fn programs_start_with_defaults_whatever_we_were_started_to_ignore() {
        if env::var_os(AGAIN).is_none() {
            let ignoring = "trap '' HUP INT QUIT TERM; exec \"$0\" --exact \"$1\" --nocapture";
            let name = "dispositions::tests::programs_start_with_defaults_whatever_we_were_started_to_ignore";
            let mut shell = Command::new("sh");
            shell.args(["-c", ignoring]).arg(env::current_exe().unwrap()).arg(name).env(AGAIN, "1");
            // Its output is no output of this test.
            let done = shell.output().unwrap();
            assert!(done.status.success(), "{done:?}");
            return;
        }
        let of_a_child = || {
            let done = Command::new("cat").arg("/proc/self/status").output().unwrap();
            read_ignored(&String::from_utf8(done.stdout).unwrap())
        };
        let asked = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
        assert!(asked.iter().all(|signal| of_a_child().contains(signal)), "no fair test");
        reset().unwrap();
        let left = of_a_child();
        assert!(!asked.iter().any(|signal| left.contains(signal)), "{left:?}");
    }
}
