//! Whom a verb is about: `-p PID`.

use clap::Args;
use hugepilot_kernel::{KernelError, Process, Root};
use hugepilot_record::Pid;

/// A running process.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PidArg {
    /// The process to look at
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
}

/// Opens process `pid` of the running system.
pub(crate) fn open(pid: i32) -> Result<Process, KernelError> {
    Process::open(&Root::live(), Pid(pid))
}
