//! Time that threads waited for a processor.
//!
//! `/proc/PID/task/TID/schedstat` counts it as run-queue wait
//! (`Documentation/scheduler/sched-stats`).

use hugepilot_record::Pid;
use hugepilot_units::Nanos;

use crate::Root;

/// Threads read per process.
const MAX_THREADS: usize = 64;

/// Returns the run-queue wait of each of the first 64 threads of `pid`, by thread ID.
///
/// Empty when the process has ended or the kernel has no `CONFIG_SCHED_INFO`.
pub fn processor_waits(root: &Root, pid: Pid) -> Vec<(Pid, Nanos)> {
    let tasks = std::fs::read_dir(root.join(format!("proc/{pid}/task")));
    let names = tasks.into_iter().flatten().flatten().take(MAX_THREADS);
    let threads = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    threads.filter_map(|tid| Some((Pid(tid), wait(root, &format!("{pid}/task/{tid}"))?))).collect()
}

/// Returns the run-queue wait of the calling thread.
pub fn own_processor_wait(root: &Root) -> Option<Nanos> {
    wait(root, "thread-self")
}

fn wait(root: &Root, task: &str) -> Option<Nanos> {
    parse(&root.read_text(format!("proc/{task}/schedstat")).ok()?)
}

/// Parses `<ns on a processor> <ns waiting for one> <time slices>`.
fn parse(line: &str) -> Option<Nanos> {
    parse_both(line).1
}

/// Parses the time on a processor and the time waiting for one.
pub(crate) fn parse_both(line: &str) -> (Option<Nanos>, Option<Nanos>) {
    let mut fields = line.split_ascii_whitespace();
    let mut next = || fields.next()?.parse().ok().map(Nanos::new);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(parse("12 345 6\n"), Some(Nanos::new(345)));
        for line in ["", "12", "12 x 6"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn each_thread_of_this_process_has_a_wait() {
        let root = Root::live();
        let own = Pid(std::process::id().cast_signed());
        if own_processor_wait(&root).is_some() {
            let waits = processor_waits(&root, own);
            assert!(waits.iter().any(|&(tid, _)| tid == own), "{waits:?}");
        }
        assert_eq!(processor_waits(&Root::at("/no/such/root"), own), []);
    }
}
