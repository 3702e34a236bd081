//! Warnings and missing verdicts of `tune`, as facts.

use hugepilot_record::sentence::{
    HIDDEN_LIMIT_HELP, Sentence, counted, hidden_limit, whole_percent,
};
use hugepilot_record::{AccessError, Pid, Stop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Interval, LoadNumber};

/// Cause of a missing verdict: nothing is known of the target's stalls. JSON carries the variant as
/// `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum NoVerdict {
    /// The process is stopped, by SIGSTOP or a debugger.
    #[text("no samples: the process is stopped, by SIGSTOP or a debugger")]
    #[help("continue it: kill -CONT {pid}")]
    TargetStopped {
        /// The process.
        pid: Pid,
    },
    /// The process did not run in user mode.
    #[text(
        "no samples: the process did not run in user mode, because it was idle or busy in the \
         kernel"
    )]
    #[help("sample while it works, or longer: --observe 30s")]
    TargetIdle,
    /// The program ended before it was sampled.
    #[text("no samples: the program ended too soon")]
    #[help("give the program more work")]
    #[help("sample more often: --rate 5000")]
    EndedTooSoon,
    /// Too few samples for a decision.
    #[text(
        "{}, and a decision requires {required_samples}: the process hardly ran in user mode",
        counted(*samples, "sample", "samples")
    )]
    #[help("sample while it works, or longer: --observe 30s")]
    #[help("sample more often: --rate 5000")]
    FewSamples {
        /// Samples of the process.
        samples: u64,
        /// Samples that a decision requires.
        required_samples: u64,
    },
    /// The time was too short for a first decision.
    #[text(
        "the time was too short for a measurement: {sampled_seconds:.2} s of sampling, and a first \
         decision requires {required_seconds:.2} s"
    )]
    // Twice the time of the decision leaves time to act on it. That comes after the first
    // observation, however short that is.
    #[help(
        "give it more time: --for {}s --observe {}s",
        (2.0 * required_seconds).max(15.0).ceil(), (required_seconds + 0.5).ceil()
    )]
    #[help("give a short program more work")]
    TooShort {
        /// Time for which the process was sampled.
        sampled_seconds: f64,
        /// Time that a first decision requires.
        required_seconds: f64,
    },
    /// No process ran one program until its first decision.
    #[text(
        "too short-lived: no process ran until its first decision, {required_seconds:.2} s after \
         its first sample: {} sampled, for at most {longest_seconds:.2} s",
        counted(*processes, "process was", "processes were")
    )]
    #[help("place its memory from the start: sudo hugepilot run --pages thp -- CMD")]
    #[help("find the mode that pays: hugepilot compare -- CMD")]
    #[help("or decide earlier: --observe 200ms --rate 2000")]
    ShortLived {
        /// Processes with samples.
        processes: u64,
        /// Longest time that one of them was sampled.
        longest_seconds: f64,
        /// Time from the first sample to a first decision.
        required_seconds: f64,
    },
    /// The time sufficed, but not the samples when a decision was due.
    #[text(
        "{} in {longest_seconds:.2} s did not suffice for a decision: the process hardly ran in \
         user mode, or few of its samples have an address",
        counted(*samples, "sample", "samples")
    )]
    #[help("sample while it works, or longer: --observe 30s")]
    #[help("sample more often: --rate 5000")]
    Undecided {
        /// Samples of the process.
        samples: u64,
        /// Longest time that a process was sampled.
        longest_seconds: f64,
    },
    /// The sampled code is 32-bit code, which the sampler does not decode.
    #[serde(rename = "code_32_bit")]
    #[text(
        "{} of the samples have no address: the process runs 32-bit code, which the sampler does \
         not decode",
        whole_percent(*undecoded_ratio)
    )]
    #[help("run a 64-bit build of the program")]
    Code32Bit {
        /// Share of samples without decoded code.
        undecoded_ratio: f64,
    },
    /// The sampled code could not be read or decoded.
    #[text(
        "{} of the samples have no address: their code could not be read or decoded, such as code \
         made at run time (JIT)",
        whole_percent(*undecoded_ratio)
    )]
    #[help("let hugepilot read the code: run it as root, or grant CAP_SYS_PTRACE")]
    CodeNotDecoded {
        /// Share of samples without decoded code.
        undecoded_ratio: f64,
    },
    /// The samples are at memory accesses whose address the registers do not give.
    #[text(
        "{} of the samples are at memory accesses whose address the registers do not give: a load \
         overwrote its own address register, or the address is in vector registers or relative to \
         a segment",
        whole_percent(*unresolved_ratio)
    )]
    #[help("compare whole runs, which requires no addresses: hugepilot compare -- CMD")]
    #[help(
        "promote all its memory, and measure the gain by a metric of the program: hugepilot tune \
         --policy all --progress-regex REGEX -- CMD"
    )]
    AddressesUnresolved {
        /// Share of such samples.
        unresolved_ratio: f64,
    },
    /// The process runs a virtual machine, whose stalls no sample shows.
    // The obstacle has the help.
    #[text("the process runs a virtual machine, and samples do not show what stalls inside")]
    KvmGuest,
    /// The process, one of several targets, could not be read, claimed or sampled.
    #[text(of = a)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum TuneWarning {
    /// The running process that was given ended during the tune.
    #[text(
        "process {pid} ended before the tune did{}; the report covers the time until then",
        if *verified_regions > 0 { " and freed its huge pages" } else { "" }
    )]
    TargetEnded {
        /// The process.
        pid: Pid,
        /// Regions that were verified on huge pages.
        verified_regions: u64,
    },
    /// Few samples: shares are rough.
    #[text("only {}; shares are rough", counted(*samples, "sample", "samples"))]
    #[help("sample longer: --observe 30s")]
    FewSamples {
        /// Samples.
        samples: u64,
    },
    /// Most samples have no address.
    #[text(
        "{} of the samples have no address: {}",
        whole_percent(*none_ratio), no_address(*none_ratio, *undecoded_ratio, *unresolved_ratio)
    )]
    FewAddresses {
        /// Share of samples without an address.
        none_ratio: f64,
        /// Share without decoded code; `None` if no code was read, as is the next.
        undecoded_ratio: Option<f64>,
        /// Share at a memory access whose address the registers do not give.
        unresolved_ratio: Option<f64>,
    },
    /// The kernel could not deliver some samples.
    #[text("the kernel lost {}", counted(*samples, "sample", "samples"))]
    #[help("sample less often: --rate 100")]
    SamplesLost {
        /// Samples that were lost.
        samples: u64,
    },
    /// The kernel slowed the sampling event down.
    #[text(
        "the kernel throttled sampling {} (perf_cpu_time_max_percent); shares still hold",
        counted(*times, "time", "times")
    )]
    SamplingThrottled {
        /// Times that it did.
        times: u64,
    },
    /// Many samples are of other processes that the target started.
    #[text(
        "only {} of the samples are of the target; the others are of processes that it started",
        whole_percent(*target_ratio)
    )]
    OtherProcesses {
        /// Share of the target in all samples.
        target_ratio: f64,
    },
    /// There is no prediction because this machine is not calibrated.
    #[text(
        "no prediction: this machine is not calibrated (--calibration off, too little free memory, \
         or no free huge pages)"
    )]
    NotCalibrated,
    /// There is no prediction because the sampling event counts page walks, not time.
    #[text("no prediction: the sampler counts page walks, and their share is not a share of time")]
    SamplesAreNotTime,
    /// Some promotion calls succeeded without a huge page.
    #[text(
        "{} not counted: the kernel reported success, but the pagemap shows no huge page",
        counted(*promotions, "promotion is", "promotions are")
    )]
    NotVerified {
        /// These calls.
        promotions: u64,
    },
    /// Events of the schedule have a mapping that the process does not have.
    #[text(
        "the process does not have the mapping of {} of the schedule",
        counted(*events, "event", "events")
    )]
    #[help("run the program with the input and the options of the traced run")]
    MappingsNotFound {
        /// These events.
        events: u64,
    },
    /// Events of the schedule have a mapping whose size differs here by more than a region.
    #[text(
        "the mapping of {} of the schedule differs here in size by more than a region; it may be \
         other memory",
        counted(*events, "event", "events")
    )]
    #[help("run the program with the input and the options of the traced run")]
    MappingsResized {
        /// These events.
        events: u64,
    },
    /// A memory limit of the target is invisible from here.
    #[text("{}", hidden_limit(cgroup))]
    #[help("{HIDDEN_LIMIT_HELP}")]
    HiddenMemoryLimit {
        /// Path of its cgroup.
        cgroup: String,
    },
    /// The progress metric has no value.
    #[text("no progress metric: {}", no_progress(*lines, *matches))]
    #[help(
        if *lines == 0, "check that the program writes its metric there, and does not keep it in a \
         buffer"
    )]
    #[help(
        if *lines > 0 && *matches == 0, "compare the pattern with the lines that the program \
         writes"
    )]
    #[help(
        if *lines > 0 && *matches > 0, "enclose the number in a group, such as 'Trial \
         Time:\\s+([\\d.]+)'"
    )]
    NoProgressValues {
        /// Lines that were read.
        lines: u64,
        /// Lines that match the pattern; the number in them could not be read.
        matches: u64,
    },
    /// The pattern of the progress metric has no group: the whole match is read as the number.
    #[text("--progress-regex has no group: the whole match is read as the number")]
    #[help("enclose the number in a group, such as 'Trial Time:\\s+([\\d.]+)'")]
    ProgressRegexWithoutGroup,
    /// The progress metric is read as a time, and may be a rate.
    #[text("the progress metric is read as a time, and {}", rate_sign(*sign))]
    #[help("if a larger value is better: --progress-higher-is-better")]
    MetricReadAsTime {
        /// Sign of that.
        sign: RateSign,
    },
    /// The comparison with all memory on huge pages is missing.
    #[text("no comparison with all memory on huge pages: {}", stopped.text())]
    #[help(of = stopped)]
    NoAllHuge {
        /// Cause of the early end of its promotion.
        stopped: Stop,
    },
    /// The machine's noise leaves the share of the all-huge gain open.
    #[text("the share of the all-huge gain is uncertain: {}", uncertain_share(*interval))]
    #[help("repeat the run while no other program is busy")]
    UncertainShare {
        /// Its confidence interval; `None` if the all-huge gain may be zero.
        interval: Option<Interval>,
    },
    /// The trial measured other stalls than the calibration of this machine allows: one of them is
    /// wrong.
    #[text(
        "stalls took {low_ratio:.2} to {high_ratio:.2} of their time on huge pages in the trial, \
         far from what the calibration of this machine allows"
    )]
    #[help("measure it again: --calibration force")]
    CalibrationContradicted {
        /// Lower bound of the trial's ratio of stall times, huge pages over base pages.
        low_ratio: f64,
        /// Upper bound.
        high_ratio: f64,
    },
    /// The comparison took far longer than planned.
    #[text("the machine was very slow or busy; the speedups are in doubt")]
    #[help("repeat the run")]
    MachineBusy,
    /// The load of the machine changed between the values before the promotions and those after
    /// them: the gain may be that of the neighbours.
    #[text(
        "the load changed: {} {before_cpus:.2} CPUs before the promotions and {after_cpus:.2} \
         after them; the gain may come from that",
        load_source(*number)
    )]
    #[help(
        "repeat the run while no other program starts or ends; tune --baseline -- CMD interleaves \
         runs"
    )]
    LoadChanged {
        /// Number that changed.
        number: LoadNumber,
        /// Its value before, in CPUs.
        before_cpus: f64,
        /// Its value after, in CPUs.
        after_cpus: f64,
    },
    /// The process forks: the first write to a huge page after a fork splits it.
    #[text(
        "the process forked {} meanwhile; the first write to a huge page after a fork splits it, \
         and parent and child may hold both copies",
        counted(*forks, "time", "times")
    )]
    #[help("after the last fork, tune again; hugepilot daemon --promote NAME does so by itself")]
    Forks {
        /// Forks while it was sampled.
        forks: u64,
    },
    /// The process waited for children before it was sampled, and forked none since. These may have
    /// been forks, as of a server that writes a snapshot each hour.
    #[text(
        "the process had children before it was sampled; if these were forks, as for a snapshot, \
         the first write to a huge page after the next one splits it"
    )]
    #[help("see whether it forks again: --for 600s; hugepilot daemon --promote NAME watches that")]
    MayFork,
    /// Some runs did not end with success.
    #[text(
        "{failed} of {runs} {} {} without success; the time of a failed run means little",
        variant_name(*variant), if *runs == 1 { "run ended" } else { "runs ended" }
    )]
    RunsFailed {
        /// The variant.
        variant: Variant,
        /// Runs that failed.
        failed: u64,
        /// Runs of this variant.
        runs: u64,
    },
    /// Runs left processes running, which were ended.
    #[text(
        "{} runs left {} running; hugepilot ended them",
        variant_name(*variant), counted(*processes, "process", "processes")
    )]
    ProcessesLeft {
        /// The variant.
        variant: Variant,
        /// These processes.
        processes: u64,
    },
}

/// The cause of most samples without an address.
fn no_address(none: f64, undecoded: Option<f64>, unresolved: Option<f64>) -> &'static str {
    let is_most = |part: f64| part > none / 2.0;
    match undecoded.zip(unresolved) {
        Some((_, unresolved)) if is_most(unresolved) => {
            "the registers do not give the addresses of the program's loads"
        }
        Some((undecoded, _)) if is_most(undecoded) => {
            "the program's code could not be read or decoded"
        }
        Some((undecoded, unresolved)) if is_most(none - undecoded - unresolved) => {
            "the program computes more than it stalls"
        }
        _ => {
            "the program computes more than it stalls, the registers do not give the addresses of \
             its loads, or its code could not be read"
        }
    }
}

/// An interval of a share, or that the gain may be zero.
fn uncertain_share(interval: Option<Interval>) -> String {
    interval.map_or_else(
        || "the gain may be zero".to_owned(),
        |Interval { low, high }| format!("{:.0} to {:.0} %", low * 100.0, high * 100.0),
    )
}

/// The sign that a progress metric is a rate, after "and".
const fn rate_sign(sign: RateSign) -> &'static str {
    match sign {
        RateSign::Pattern => "its pattern names a rate",
        RateSign::RoseDespiteGain => "it rose, although the trial showed a gain",
        RateSign::Rose => "it rose after the promotions",
    }
}

/// Why a progress metric has no value.
fn no_progress(lines: u64, matches: u64) -> String {
    match (lines, matches) {
        (0, _) => "the program wrote no line".to_owned(),
        (_, 0) => {
            format!("none of {} matches --progress-regex", counted(lines, "line", "lines"))
        }
        _ => {
            let matches = counted(matches, "line matches", "lines match");
            format!("{matches} --progress-regex, but not with a number")
        }
    }
}

/// The user of the CPUs of a load.
const fn load_source(number: LoadNumber) -> &'static str {
    match number {
        LoadNumber::OtherCpus => "other processes used",
        LoadNumber::StolenCpus => "the hypervisor took",
    }
}

/// The name of a variant in sentences.
const fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Baseline => "baseline",
        Variant::Tuned => "tuned",
        Variant::AllHuge => "all-huge",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_most_samples_without_an_address_is_named_alone() {
        let text = |undecoded_ratio, unresolved_ratio| {
            TuneWarning::FewAddresses { none_ratio: 0.9, undecoded_ratio, unresolved_ratio }.text()
        };
        for (undecoded, unresolved, cause) in [
            (Some(0.0), Some(0.5), "90 % of the samples have no address: the registers do not"),
            (Some(0.5), Some(0.0), "no address: the program's code could not be read or decoded"),
            (Some(0.1), Some(0.1), "no address: the program computes more than it stalls"),
            (Some(0.4), Some(0.4), "computes more than it stalls, the registers do not"),
            (Some(0.0), None, "computes more than it stalls, the registers do not"),
        ] {
            let text = text(undecoded, unresolved);
            assert!(text.contains(cause), "{text}");
        }
    }
}
