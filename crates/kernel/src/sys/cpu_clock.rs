//! CPU-time clock of another process, by `clock_gettime(2)`.
//!
//! # Safety
//! The kernel writes one `timespec` of this process.
#![allow(unsafe_code)]

use hugepilot_record::{Errno, Pid};
use hugepilot_units::Nanos;

use super::last_errno;

/// `CPUCLOCK_SCHED`: the time on a processor, in user mode and in the kernel.
const SCHED: libc::clockid_t = 2;

/// `PID_MAX_LIMIT` of 64-bit systems.
const MAX_PID: i32 = 1 << 22;

/// Returns the CPU time that all threads of `pid` have used, those that have ended too. A thread
/// that runs now lacks the time since the last tick. Requires no permission.
///
/// # Errors
/// EINVAL if there is no such process.
pub(crate) fn cpu_time(pid: Pid) -> Result<Nanos, Errno> {
    // The kernel has no larger pid, and three bits are lost below.
    if !(1..=MAX_PID).contains(&pid.0) {
        return Err(Errno::EINVAL);
    }
    // As clock_getcpuclockid(3) does it.
    let clock = (!pid.0 << 3) | SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of this process, borrowed mutably for the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result != 0 {
        return Err(last_errno());
    }
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Ok(Nanos::seconds(part(time.tv_sec)) + Nanos::new(part(time.tv_nsec)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::own_cpu_time;

    #[test]
    fn the_time_of_this_process_is_that_of_its_own_clock() {
        let pid = Pid(std::process::id().cast_signed());
        let before = own_cpu_time();
        let time = cpu_time(pid).unwrap();
        // Running threads lack the time since a tick, at most 10 ms each.
        assert!(time + Nanos::seconds(1) >= before && time <= own_cpu_time(), "{time:?}");
        for pid in [MAX_PID, MAX_PID + 1, i32::MAX, 0, -1, i32::MIN] {
            assert_eq!(cpu_time(Pid(pid)), Err(Errno::EINVAL), "{pid}");
        }
    }
}
