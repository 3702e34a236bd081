//! CPU time of processes.

use std::fs;

/// CPU seconds of a process: all threads that run, in nanoseconds. `None` if it ended.
pub(super) fn of_threads(pid: u32) -> Option<f64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some(tasks.flatten().filter_map(of).sum::<f64>() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_time() {
        assert!(of_threads(std::process::id()).unwrap() > 0.0);
        assert_eq!(of_threads(u32::MAX), None);
    }
}
