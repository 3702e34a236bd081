//! Whether a system call reaches the kernel, or a seccomp filter answers in its place.
//!
//! # Safety
//! Each call passes a flag that no kernel knows, which the kernel refuses with EINVAL before it looks at anything else,
//! so the null pointers are never followed and nothing is done.
#![allow(unsafe_code)]

use hugepilot_record::Errno;

use super::last_errno;

/// A system call that filters like to forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `process_madvise`.
    ProcessMadvise,
    /// `perf_event_open`.
    PerfEventOpen,
    /// `process_vm_readv`.
    ProcessVmReadv,
}

/// What answers an impossible request: EINVAL is the kernel itself; EPERM or ENOSYS a filter, or a kernel without the
/// call.
pub(crate) fn answer(call: Call) -> Errno {
    const NO_SUCH_FLAG: u64 = 1 << 30;
    let (none, nobody) = (0_u64, -1_i64);
    // SAFETY: see the module: an unknown flag is refused first, and the pointers, all null, are not followed.
    let done = unsafe {
        match call {
            Call::ProcessMadvise => {
                libc::syscall(libc::SYS_process_madvise, nobody, none, none, none, NO_SUCH_FLAG)
            }
            Call::PerfEventOpen => {
                libc::syscall(libc::SYS_perf_event_open, none, nobody, nobody, nobody, NO_SUCH_FLAG)
            }
            Call::ProcessVmReadv => libc::syscall(
                libc::SYS_process_vm_readv,
                nobody,
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
    fn the_kernel_refuses_the_flag_unless_something_answers_first() {
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
