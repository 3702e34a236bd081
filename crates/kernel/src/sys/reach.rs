//! Test whether a system call reaches the kernel, or a seccomp filter answers instead.
//!
//! # Safety
//! Each call passes a flag that no kernel knows. The kernel rejects it with EINVAL before anything
//! else, so the null pointers are never followed and the call has no effect.
#![allow(unsafe_code)]

use hugepilot_record::Errno;

use super::last_errno;

/// System call that seccomp filters often forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `process_madvise`.
    ProcessMadvise,
    /// `perf_event_open`.
    PerfEventOpen,
    /// `process_vm_readv`.
    ProcessVmReadv,
}

/// Returns the error of an impossible request: EINVAL from the kernel itself; EPERM or ENOSYS from
/// a filter, or from a kernel without the call.
pub(crate) fn answer(call: Call) -> Errno {
    const NO_SUCH_FLAG: u64 = 1 << 30;
    let (none, no_process) = (0_u64, -1_i64);
    // SAFETY: see the module: an unknown flag is rejected first, and the pointers, all null, are
    // not followed.
    let done = unsafe {
        match call {
            Call::ProcessMadvise => {
                libc::syscall(libc::SYS_process_madvise, no_process, none, none, none, NO_SUCH_FLAG)
            }
            Call::PerfEventOpen => libc::syscall(
                libc::SYS_perf_event_open,
                none,
                no_process,
                no_process,
                no_process,
                NO_SUCH_FLAG,
            ),
            Call::ProcessVmReadv => libc::syscall(
                libc::SYS_process_vm_readv,
                no_process,
                none,
                none,
                none,
                none,
                NO_SUCH_FLAG,
            ),
        }
    };
    if done == 0 { Errno(0) } else { last_errno() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_rejects_the_flag_unless_a_filter_answers_first() {
        for call in [Call::ProcessMadvise, Call::PerfEventOpen, Call::ProcessVmReadv] {
            let answer = answer(call);
            assert!(
                [Errno::EINVAL, Errno::EPERM, Errno::ENOSYS].contains(&answer),
                "{call:?}: {answer}"
            );
            if answer != Errno::EINVAL {
                eprintln!("skipped: {call:?} is filtered here ({answer})");
            }
        }
    }
}
