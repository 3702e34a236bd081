//! Clocks of the machine and of this process.

use hugepilot_units::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time since an arbitrary start, without the time that the machine slept.
pub fn monotonic() -> Nanos {
    read(ClockId::Monotonic)
}

/// Returns the time since boot, on the clock of the start times of processes.
pub fn since_boot() -> Nanos {
    read(ClockId::Boottime)
}

/// Returns the CPU time that all threads of this process have used.
pub fn own_cpu_time() -> Nanos {
    read(ClockId::ProcessCPUTime)
}

/// Returns the CPU time that this thread has used.
pub fn own_thread_cpu_time() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos::seconds(u64::try_from(time.tv_sec).unwrap_or(0))
        + Nanos::new(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_do_not_run_backwards() {
        let (time, used) = (monotonic(), own_cpu_time());
        assert!(time > Nanos::ZERO && monotonic() >= time);
        assert!(used > Nanos::ZERO && own_cpu_time() >= used);
        let used = own_thread_cpu_time();
        assert!(used > Nanos::ZERO && (used..=own_cpu_time()).contains(&own_thread_cpu_time()));
    }
}
