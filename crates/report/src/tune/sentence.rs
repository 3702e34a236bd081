//! Sentences of `tune`: causes, warnings, and lines of the report.

mod no_verdict;
mod runs;

use hugepilot_record::tune::{
    Certainty, Interval, LoadNumber, NoMetric, NoTrial, Performance, RateSign, TrialReport,
    TrialVerdict, TuneReport, TuneWarning,
};
use hugepilot_record::{Pid, Stop};
use hugepilot_units::Bytes;

use runs::{processes_left, runs_failed};

use super::metric::as_fast;
pub(super) use hugepilot_record::sentence::whole_percent as percent;

use crate::sentence::Sentence;
use crate::table::{self, counted};

/// A size, or that it is unknown.
pub(super) fn size(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string())
}

/// The line about the speedup with all memory on huge pages, with the number of its values and its
/// certainty.
pub(super) fn all_huge(report: &TuneReport) -> Option<String> {
    let claim = as_fast(report, report.all_huge_speedup?);
    let (before, after) = (values(report.baseline), values(report.all_huge));
    let by = match report.all_huge_speedup_interval {
        Some(interval) => windows(interval, after),
        None => {
            format!("{before} untuned and {}", counted(after, "all-huge value", "all-huge values"))
        }
    };
    let (interval, certainty) =
        (report.all_huge_speedup_interval, report.all_huge_speedup_certainty);
    Some(format!("all huge: {}\n", with_certainty(claim, &by, interval, certainty)))
}

pub(super) fn values(performance: Option<Performance>) -> u64 {
    performance.map_or(0, |one| one.values)
}

/// An interval and the number of windows behind it.
pub(super) fn windows(Interval { low, high }: Interval, count: u64) -> String {
    format!("{low:.2}–{high:.2}, {}", counted(count, "window", "windows"))
}

/// A claim about a speedup with its evidence, and whether it can be chance. An interval shows that
/// by itself.
pub(super) fn with_certainty(
    claim: String,
    by: &str,
    interval: Option<Interval>,
    certainty: Option<Certainty>,
) -> String {
    let doubt = match certainty {
        Some(Certainty::Certain) if interval.is_some() => "",
        Some(Certainty::Certain) => "; certain: they do not overlap",
        Some(Certainty::Uncertain) => "; uncertain: it can be chance",
        Some(Certainty::LoadChanged) => "; uncertain: the load of the machine changed",
        Some(Certainty::LoadUnknown) => "; uncertain: the load of the machine is unknown",
        Some(Certainty::FewValues) => "; that proves nothing: five of each are needed",
        None => return claim,
    };
    format!("{claim} ({by}{doubt})")
}

/// The line about the share of the all-huge gain.
pub(super) fn gain_share(report: &TuneReport) -> Option<String> {
    let share = table::percent(report.all_huge_gain_ratio?);
    let interval = report.all_huge_gain_interval.map_or_else(String::new, |interval| {
        format!(" ({:.1}–{})", interval.low * 100.0, table::percent(interval.high))
    });
    Some(format!("share of the all-huge gain: {share}{interval}\n"))
}

/// The line about the trial, or why there was none; `None` if the question did not come up.
pub(crate) fn trial(no_trial: Option<NoTrial>, trial: Option<TrialReport>) -> Option<String> {
    if let Some(cause) = no_trial {
        let began = matches!(cause, NoTrial::NonePromoted { .. } | NoTrial::PairsChanged { .. });
        let lacking = if began { "trial without a result" } else { "no trial" };
        return Some(format!("{lacking}: {}", cause.text()));
    }
    let trial = trial?;
    let result = match (trial.verdict, trial.high_speedup) {
        (TrialVerdict::Gain, _) => "gain".to_owned(),
        (TrialVerdict::NoGain, _) => "no gain".to_owned(),
        (TrialVerdict::Open, Some(high)) => format!("open, at most {high:.2}x as fast"),
        (TrialVerdict::Open, None) if trial.samples.is_none() => {
            "ended before its first reading".to_owned()
        }
        (TrialVerdict::Open, None) => "open".to_owned(),
    };
    let ratio = match (trial.ratio, trial.low_ratio, trial.high_ratio) {
        (Some(ratio), Some(low), Some(high)) => format!(
            ": a stall on a huge page takes {ratio:.2} ({low:.2}–{high:.2}) of its time on base \
             pages"
        ),
        _ => String::new(),
    };
    let check = match trial.confirmed {
        Some(true) => "; confirmed with both halves on huge pages",
        Some(false) => "; void: the halves differed later, so the program changed its phase",
        None if is_unconfirmed(Some(trial)) => {
            "; not confirmed: no reading with both halves on huge pages"
        }
        None => "",
    };
    Some(format!("trial: {result}{ratio}; {}{check}", evidence(&trial)))
}

/// Whether the gain of a trial was not checked.
pub(super) fn is_unconfirmed(trial: Option<TrialReport>) -> bool {
    trial.is_some_and(|trial| trial.verdict == TrialVerdict::Gain && trial.confirmed.is_none())
}

/// The help for a trial without its check; `None` if a cause that has its own line ended the tune.
pub(super) fn confirm_help(report: &TuneReport) -> Option<&'static str> {
    let is_run = report.tuned.is_some_and(|tuned| tuned.seconds.is_some())
        || matches!(report.no_metric, Some(NoMetric::OfProgram { .. }));
    match () {
        () if !is_unconfirmed(report.trial) => None,
        () if report.target_ended || is_run => Some("help: give the program more work\n"),
        () if report.stopped.is_some() => None,
        () => Some("help: give the tune more time: --for 60s\n"),
    }
}

/// The pairs, samples and time of a trial, as far as they are known.
fn evidence(trial: &TrialReport) -> String {
    let pairs = trial.pairs.map(|pairs| counted(pairs, "pair", "pairs") + ", ");
    let samples = trial.samples.map(|samples| counted(samples, "sample", "samples") + ", ");
    let [pairs, samples] = [pairs, samples].map(Option::unwrap_or_default);
    format!("{pairs}{samples}{:.1} s", trial.seconds)
}

/// The cause, if regions were promoted and neither a metric nor runs gave their gain.
pub(super) fn unmeasured(report: &TuneReport) -> Option<String> {
    if report.verified_regions == 0 || report.speedup.is_some() {
        return None;
    }
    if report.tuned.is_some_and(|tuned| tuned.seconds.is_some()) {
        // With a baseline, failed runs have warnings.
        return report.baseline.is_none().then(|| "no untuned run; use --baseline".to_owned());
    }
    if let Some(cause @ NoMetric::OfProgram { .. }) = &report.no_metric {
        return Some(cause.text());
    }
    let has_no_values =
        |warning: &TuneWarning| matches!(warning, TuneWarning::NoProgressValues { .. });
    let cause = match () {
        () if report.target_ended => "the process ended too soon after the last promotion",
        () if report.warnings.iter().any(has_no_values) => "the progress metric has no value",
        () if lacks_time(report) => "the tune was interrupted",
        () => "no progress metric; use --progress-regex (with -p also --progress-file)",
    };
    Some(cause.to_owned())
}

/// Whether an interruption is the only known cause of a missing gain.
pub(super) fn lacks_time(report: &TuneReport) -> bool {
    let is_cut = matches!(report.no_metric, None | Some(NoMetric::FewWindows { .. }));
    is_cut && report.stopped == Some(Stop::Interrupted)
}

/// Returns the sentence for a process that ended during its tune.
fn ended(pid: Pid, verified_regions: u64) -> String {
    let freed = if verified_regions > 0 { " and freed its huge pages" } else { "" };
    format!("process {pid} ended before the tune did{freed}; the report covers the time until then")
}

/// Returns the sentence for a share of the all-huge gain with this interval.
fn uncertain_share(interval: Option<Interval>) -> String {
    let interval = interval.map_or_else(
        || "the gain may be zero".to_owned(),
        |Interval { low, high }| format!("{:.0} to {:.0} %", low * 100.0, high * 100.0),
    );
    format!("the share of the all-huge gain is uncertain: {interval}")
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

/// The sign that a progress metric is a rate, after "and".
const fn rate_sign(sign: RateSign) -> &'static str {
    match sign {
        RateSign::Pattern => "its pattern names a rate",
        RateSign::RoseDespiteGain => "it rose, although the trial showed a gain",
        RateSign::Rose => "it rose after the promotions",
    }
}

/// Returns the sentence for a progress metric without a value.
fn no_progress(lines: u64, matches: u64) -> String {
    let cause = match (lines, matches) {
        (0, _) => "the program wrote no line".to_owned(),
        (_, 0) => {
            format!("none of {} matches --progress-regex", counted(lines, "line", "lines"))
        }
        _ => {
            let matches = counted(matches, "line matches", "lines match");
            format!("{matches} --progress-regex, but not with a number")
        }
    };
    format!("no progress metric: {cause}")
}

fn not_found(events: u64) -> String {
    let events = counted(events, "event", "events");
    format!("the process does not have the mapping of {events} of the schedule")
}

fn resized(events: u64) -> String {
    let events = counted(events, "event", "events");
    format!(
        "the mapping of {events} of the schedule differs here in size by more than a region; it \
         may be other memory"
    )
}

/// Returns the sentence for a process that forks.
fn forked(forks: u64) -> String {
    format!(
        "the process forked {} meanwhile; the first write to a huge page after a fork splits it, \
         and parent and child may hold both copies",
        counted(forks, "time", "times")
    )
}

/// Returns the sentence for a load that changed beside a tune.
fn load_changed(number: LoadNumber, before_cpus: f64, after_cpus: f64) -> String {
    let who = match number {
        LoadNumber::OtherCpus => "other processes used",
        LoadNumber::StolenCpus => "the hypervisor took",
    };
    format!(
        "the load changed: {who} {before_cpus:.2} CPUs before the promotions and {after_cpus:.2} \
         after them; the gain may come from that"
    )
}

fn contradicted(low: f64, high: f64) -> String {
    format!(
        "stalls took {low:.2} to {high:.2} of their time on huge pages in the trial, far from \
         what the calibration of this machine allows"
    )
}

impl Sentence for TuneWarning {
    fn text(&self) -> String {
        match self {
            Self::TargetEnded { pid, verified_regions } => ended(*pid, *verified_regions),
            Self::FewSamples { samples } => {
                format!("only {}; shares are rough", counted(*samples, "sample", "samples"))
            }
            Self::FewAddresses { none_ratio, undecoded_ratio, unresolved_ratio } => format!(
                "{} of the samples have no address: {}",
                percent(*none_ratio),
                no_address(*none_ratio, *undecoded_ratio, *unresolved_ratio)
            ),
            Self::SamplesLost { samples } => {
                format!("the kernel lost {}", counted(*samples, "sample", "samples"))
            }
            Self::SamplingThrottled { times } => format!(
                "the kernel throttled sampling {} (perf_cpu_time_max_percent); shares still hold",
                counted(*times, "time", "times")
            ),
            Self::OtherProcesses { target_ratio } => format!(
                "only {} of the samples are of the target; the others are of processes that it \
                 started",
                percent(*target_ratio)
            ),
            Self::NotCalibrated => "no prediction: this machine is not calibrated (--calibration \
                                    off, too little free memory, or no free huge pages)"
                .to_owned(),
            Self::SamplesAreNotTime => "no prediction: the sampler counts page walks, and their \
                                        share is not a share of time"
                .to_owned(),
            Self::NotVerified { promotions } => format!(
                "{} not counted: the kernel reported success, but the pagemap shows no huge page",
                counted(*promotions, "promotion is", "promotions are")
            ),
            Self::MappingsNotFound { events } => not_found(*events),
            Self::MappingsResized { events } => resized(*events),
            Self::HiddenMemoryLimit { cgroup } => hidden_limit(cgroup),
            Self::NoProgressValues { lines, matches } => no_progress(*lines, *matches),
            Self::ProgressRegexWithoutGroup => {
                "--progress-regex has no group: the whole match is read as the number".to_owned()
            }
            Self::MetricReadAsTime { sign } => {
                format!("the progress metric is read as a time, and {}", rate_sign(*sign))
            }
            Self::NoAllHuge { stopped } => {
                format!("no comparison with all memory on huge pages: {}", stopped.text())
            }
            Self::UncertainShare { interval } => uncertain_share(*interval),
            Self::CalibrationContradicted { low_ratio, high_ratio } => {
                contradicted(*low_ratio, *high_ratio)
            }
            Self::MachineBusy => {
                "the machine was very slow or busy; the speedups are in doubt".to_owned()
            }
            Self::LoadChanged { number, before_cpus, after_cpus } => {
                load_changed(*number, *before_cpus, *after_cpus)
            }
            Self::Forks { forks } => forked(*forks),
            Self::MayFork => {
                "the process had children before it was sampled; if these were forks, as for a \
                 snapshot, the first write to a huge page after the next one splits it"
                    .to_owned()
            }
            Self::RunsFailed { variant, failed, runs } => runs_failed(*variant, *failed, *runs),
            Self::ProcessesLeft { variant, processes } => processes_left(*variant, *processes),
        }
    }

    fn help(&self) -> Vec<String> {
        let help = match self {
            Self::FewSamples { .. } => "sample longer: --observe 30s",
            Self::SamplesLost { .. } => "sample less often: --rate 100",
            Self::HiddenMemoryLimit { .. } => HIDDEN_LIMIT_HELP,
            Self::MappingsNotFound { .. } | Self::MappingsResized { .. } => {
                "run the program with the input and the options of the traced run"
            }
            Self::NoProgressValues { lines: 0, .. } => {
                "check that the program writes its metric there, and does not keep it in a buffer"
            }
            Self::NoProgressValues { matches: 0, .. } => {
                "compare the pattern with the lines that the program writes"
            }
            Self::NoProgressValues { .. } | Self::ProgressRegexWithoutGroup => {
                "enclose the number in a group, such as 'Trial Time:\\s+([\\d.]+)'"
            }
            Self::MetricReadAsTime { .. } => {
                "if a larger value is better: --progress-higher-is-better"
            }
            Self::CalibrationContradicted { .. } => "measure it again: --calibration force",
            Self::MachineBusy => "repeat the run",
            Self::LoadChanged { .. } => {
                "repeat the run while no other program starts or ends; tune --baseline -- CMD \
                 interleaves runs"
            }
            Self::Forks { .. } | Self::MayFork => {
                "after the last fork, tune again; hugepilot daemon --promote NAME does so by itself"
            }
            Self::UncertainShare { .. } => "repeat the run while no other program is busy",
            Self::NoAllHuge { stopped } => return stopped.help(),
            _ => return Vec::new(),
        };
        vec![help.to_owned()]
    }
}

/// Returns the sentence for an invisible memory limit of `cgroup`.
pub(crate) fn hidden_limit(cgroup: &str) -> String {
    format!(
        "the memory limit of cgroup {cgroup} is not visible here; only the available memory of \
         the system limits huge pages"
    )
}

/// Help for [`hidden_limit`].
pub(crate) const HIDDEN_LIMIT_HELP: &str =
    "run hugepilot on the host, or mount the cgroup hierarchy under /sys/fs/cgroup";

#[cfg(test)]
mod tests {
    use hugepilot_record::tune::Performance;
    use hugepilot_stats::Spread;

    use super::*;
    use crate::table::Width;
    use crate::tune::tests::stopped;
    use crate::tune::tune_text;

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

    #[test]
    fn a_share_of_the_gain_has_its_interval_and_its_doubt() {
        let mut report = stopped();
        report.tuned =
            Some(Performance { ops_per_second: Spread::of(&[4.0]), ..Performance::default() });
        report.all_huge_gain_ratio = Some(0.97);
        let interval = Some(Interval { low: 0.6, high: 1.234 });
        report.all_huge_gain_interval = interval;
        let misread = TuneWarning::MetricReadAsTime { sign: RateSign::Pattern };
        report.warnings = vec![TuneWarning::UncertainShare { interval }, misread];
        let text = tune_text(&report, Width::UNLIMITED, false);
        assert!(text.contains("share of the all-huge gain: 97.0 % (60.0–123.4 %)\n"), "{text}");
        assert!(text.contains("all-huge gain is uncertain: 60 to 123 %\n"), "{text}");
        let help = "as a time, and its pattern names a rate\nhelp: if a larger value is better: \
                    --progress-higher-is-better\n";
        assert!(text.contains(help), "{text}");
    }
}
