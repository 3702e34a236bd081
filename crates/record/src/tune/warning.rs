//! Warnings and missing verdicts of `tune`, as facts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Interval, LoadNumber};
use crate::{AccessError, Pid, Stop};

/// Cause of a missing verdict: nothing is known of the target's stalls. JSON carries the variant as
/// `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum NoVerdict {
    /// The process is stopped, by SIGSTOP or a debugger.
    TargetStopped {
        /// The process.
        pid: Pid,
    },
    /// The process did not run in user mode.
    TargetIdle,
    /// The program ended before it was sampled.
    EndedTooSoon,
    /// Too few samples for a decision.
    FewSamples {
        /// Samples of the process.
        samples: u64,
        /// Samples that a decision requires.
        required_samples: u64,
    },
    /// The time was too short for a first decision.
    TooShort {
        /// Time for which the process was sampled.
        sampled_seconds: f64,
        /// Time that a first decision requires.
        required_seconds: f64,
    },
    /// No process ran one program until its first decision.
    ShortLived {
        /// Processes with samples.
        processes: u64,
        /// Longest time that one of them was sampled.
        longest_seconds: f64,
        /// Time from the first sample to a first decision.
        required_seconds: f64,
    },
    /// The time sufficed, but not the samples when a decision was due.
    Undecided {
        /// Samples of the process.
        samples: u64,
        /// Longest time that a process was sampled.
        longest_seconds: f64,
    },
    /// The sampled code is 32-bit code, which the sampler does not decode.
    #[serde(rename = "code_32_bit")]
    Code32Bit {
        /// Share of samples without decoded code.
        undecoded_ratio: f64,
    },
    /// The sampled code could not be read or decoded.
    CodeNotDecoded {
        /// Share of samples without decoded code.
        undecoded_ratio: f64,
    },
    /// The samples are at memory accesses whose address the registers do not give.
    AddressesUnresolved {
        /// Share of such samples.
        unresolved_ratio: f64,
    },
    /// The process runs a virtual machine, whose stalls no sample shows.
    KvmGuest,
    /// The process, one of several targets, could not be read, claimed or sampled.
    Excluded(AccessError),
}

/// Way to run a program when `tune -- CMD` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Untuned.
    Baseline,
    /// Tuned.
    Tuned,
    /// All memory promoted.
    AllHuge,
}

/// Sign that a progress metric is a rate, although it is read as a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateSign {
    /// The pattern names a rate.
    Pattern,
    /// The metric rose, although the trial showed a gain.
    RoseDespiteGain,
    /// The metric rose after the promotions.
    Rose,
}

/// Doubt about a report of `tune`. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum TuneWarning {
    /// The running process that was given ended during the tune.
    TargetEnded {
        /// The process.
        pid: Pid,
        /// Regions that were verified on huge pages.
        verified_regions: u64,
    },
    /// Few samples: shares are rough.
    FewSamples {
        /// Samples.
        samples: u64,
    },
    /// Most samples have no address.
    FewAddresses {
        /// Share of samples without an address.
        none_ratio: f64,
        /// Share without decoded code; `None` if no code was read, as is the next.
        undecoded_ratio: Option<f64>,
        /// Share at a memory access whose address the registers do not give.
        unresolved_ratio: Option<f64>,
    },
    /// The kernel could not deliver some samples.
    SamplesLost {
        /// Samples that were lost.
        samples: u64,
    },
    /// The kernel slowed the sampling event down.
    SamplingThrottled {
        /// Times that it did.
        times: u64,
    },
    /// Many samples are of other processes that the target started.
    OtherProcesses {
        /// Share of the target in all samples.
        target_ratio: f64,
    },
    /// There is no prediction because this machine is not calibrated.
    NotCalibrated,
    /// There is no prediction because the sampling event counts page walks, not time.
    SamplesAreNotTime,
    /// Some promotion calls succeeded without a huge page.
    NotVerified {
        /// These calls.
        promotions: u64,
    },
    /// Events of the schedule have a mapping that the process does not have.
    MappingsNotFound {
        /// These events.
        events: u64,
    },
    /// Events of the schedule have a mapping whose size differs here by more than a region.
    MappingsResized {
        /// These events.
        events: u64,
    },
    /// A memory limit of the target is invisible from here.
    HiddenMemoryLimit {
        /// Path of its cgroup.
        cgroup: String,
    },
    /// The progress metric has no value.
    NoProgressValues {
        /// Lines that were read.
        lines: u64,
        /// Lines that match the pattern; the number in them could not be read.
        matches: u64,
    },
    /// The pattern of the progress metric has no group: the whole match is read as the number.
    ProgressRegexWithoutGroup,
    /// The progress metric is read as a time, and may be a rate.
    MetricReadAsTime {
        /// Sign of that.
        sign: RateSign,
    },
    /// The comparison with all memory on huge pages is missing.
    NoAllHuge {
        /// Cause of the early end of its promotion.
        stopped: Stop,
    },
    /// The machine's noise leaves the share of the all-huge gain open.
    UncertainShare {
        /// Its confidence interval; `None` if the all-huge gain may be zero.
        interval: Option<Interval>,
    },
    /// The trial measured other stalls than the calibration of this machine allows: one of them is
    /// wrong.
    CalibrationContradicted {
        /// Lower bound of the trial's ratio of stall times, huge pages over base pages.
        low_ratio: f64,
        /// Upper bound.
        high_ratio: f64,
    },
    /// The comparison took far longer than planned.
    MachineBusy,
    /// The load of the machine changed between the values before the promotions and those after
    /// them: the gain may be that of the neighbours.
    LoadChanged {
        /// Number that changed.
        number: LoadNumber,
        /// Its value before, in CPUs.
        before_cpus: f64,
        /// Its value after, in CPUs.
        after_cpus: f64,
    },
    /// The process forks: the first write to a huge page after a fork splits it.
    Forks {
        /// Forks while it was sampled.
        forks: u64,
    },
    /// The process waited for children before it was sampled, and forked none since. These may have
    /// been forks, as of a server that writes a snapshot each hour.
    MayFork,
    /// Some runs did not end with success.
    RunsFailed {
        /// The variant.
        variant: Variant,
        /// Runs that failed.
        failed: u64,
        /// Runs of this variant.
        runs: u64,
    },
    /// Runs left processes running, which were ended.
    ProcessesLeft {
        /// The variant.
        variant: Variant,
        /// These processes.
        processes: u64,
    },
}
