//! Ignored signals: started by `nohup`, or with `&` in a script, xtask ignores some. Programs that
//! it starts must not inherit that.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{FORBIDDEN, SIGPIPE};

/// Resets dispositions for every program that starts later. The tests send signals and expect them
/// to end processes.
///
/// After `exec`, a signal with a handler has its default disposition, so an empty handler is enough
/// and takes no unsafe code. Other signals still end xtask.
pub(crate) fn reset() -> Result<()> {
    for signal in ignored()? {
        // It fails for real-time signals that the C library uses.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    Ok(())
}

/// The signals that this process ignores.
fn ignored() -> Result<Vec<i32>> {
    let status = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    // Rust itself ignores SIGPIPE, but not in programs that it starts.
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

    /// Variable that is set in the process that ignores signals.
    const AGAIN: &str = "XTASK_TEST_IGNORES";

    #[test]
    fn programs_start_with_default_dispositions() {
        if env::var_os(AGAIN).is_none() {
            let ignoring = "trap '' HUP INT QUIT TERM; exec \"$0\" --exact \"$1\" --nocapture";
            let name = "dispositions::tests::programs_start_with_default_dispositions";
            let mut shell = Command::new("sh");
            shell.args(["-c", ignoring]).arg(env::current_exe().unwrap()).arg(name).env(AGAIN, "1");
            // Not printed: its output would count as this test's.
            let done = shell.output().unwrap();
            assert!(done.status.success(), "{done:?}");
            return;
        }
        let of_a_child = || {
            let done = Command::new("cat").arg("/proc/self/status").output().unwrap();
            read_ignored(&String::from_utf8(done.stdout).unwrap())
        };
        let asked = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
        assert!(
            asked.iter().all(|signal| of_a_child().contains(signal)),
            "the signals are not ignored"
        );
        reset().unwrap();
        let left = of_a_child();
        assert!(!asked.iter().any(|signal| left.contains(signal)), "{left:?}");
    }
}
