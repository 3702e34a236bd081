//! Processes of the machine, as `top` lists, reads and samples them.

use hugepilot_kernel::KernelError;
use hugepilot_record::{Pid, ProcessId, SkipReason};
use hugepilot_units::{Bytes, Nanos};

/// A process in a list of all.
#[derive(Clone, Debug)]
pub struct ListedProcess {
    /// The process.
    pub id: ProcessId,
    /// Resident memory.
    pub resident: Bytes,
    /// CPU time since its start.
    pub cpu: Nanos,
}

/// Pages on which a process stalls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StalledPages {
    /// Share of the stalls on base pages that `tune` may promote.
    pub base_ratio: f64,
    /// Share of the stalls on memory that cannot get huge pages, or must not.
    pub blocked_ratio: f64,
    /// The reason for most of these.
    pub blocked_by: Option<SkipReason>,
}

/// Samples of a process since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NewSamples {
    /// All samples.
    pub samples: u64,
    /// Samples that wait for scattered memory.
    pub stalled: u64,
    /// Stalled samples of pointer chases.
    pub chased: u64,
    /// Samples with an address.
    pub addressed: u64,
    /// Share of all samples so far of which nothing is known: their code could not be decoded, or
    /// the registers do not give the address of an access.
    pub unknown_ratio: f64,
    /// Pages of the stalls; `None` if unknown.
    pub pages: Option<StalledPages>,
    /// Regions with stalls so far, as memory.
    pub hot: Bytes,
}

/// Processes of the machine, as they are listed, read and sampled.
pub trait ProcessTable {
    /// Returns the time, on the monotonic clock.
    fn now(&self) -> Nanos;
    /// Returns the CPU time of this process.
    fn cpu_time(&self) -> Nanos;
    /// Returns the size of a huge page.
    fn huge_page(&self) -> Bytes;
    /// Lists the processes, without kernel threads and this process.
    ///
    /// # Errors
    /// If `/proc` cannot be listed.
    fn list(&self) -> Result<Vec<ListedProcess>, KernelError>;
    /// Returns the user of a process, and the user's name.
    fn user(&self, pid: Pid) -> (Option<u32>, Option<String>);
    /// Reads the memory of a process on transparent huge pages.
    ///
    /// # Errors
    /// If it is gone or may not be read.
    fn huge(&self, id: &ProcessId) -> Result<Bytes, KernelError>;
    /// Starts to sample a process.
    ///
    /// # Errors
    /// The cause, if it cannot be sampled.
    fn start_sampling(&mut self, id: &ProcessId) -> Result<(), String>;
    /// Ends sampling of a process.
    fn stop_sampling(&mut self, pid: Pid);
    /// Returns the samples of a process since the last call; `None` if it is not sampled.
    fn take_samples(&mut self, pid: Pid) -> Option<NewSamples>;
    /// Returns the memory of large pages that processes map in part, at most; `None` before Linux
    /// 6.12.
    fn mapped_in_part(&self) -> Option<Bytes>;
    /// Returns the samples per second of CPU time of each thread.
    fn rate_hz(&self) -> u32;
}
