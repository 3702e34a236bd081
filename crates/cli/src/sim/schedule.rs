//! Schedule out of a simulation.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::anyhow;
use hugepilot_kernel::proc::printable_path;
use hugepilot_policy::round::Round;
use hugepilot_record::schedule::{
    Schedule, ScheduleAction, ScheduleEvent, ScheduleHeader, ScheduleTime, ScheduledMapping,
};
use hugepilot_record::trace::TraceWarning;
use hugepilot_record::{ProcessDecision, SkipReason};
use hugepilot_render::{Sentence, counted};
use hugepilot_reports::sim::{SimInput, SimPolicyReport};
use hugepilot_reports::{more_decisions, smallest_budget};
use hugepilot_trace::simulate::PolicyResult;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::new_file::Output;
use crate::output::Progress;

/// Tests whether a schedule of these sources is possible.
///
/// # Errors
/// Several sources, mappings that no process has, or a part of the program, whose times are other
/// shares of the run.
pub(super) fn check(names: &[String], has_synthetic: bool, is_part: bool) -> Result<(), Failure> {
    let failure = |what: &str| Failure::new(what, Exit::Error);
    if names.len() > 1 {
        let help = "simulate the programs one by one for their schedules".to_owned();
        return Err(failure("--schedule is that of one program")
            .because(format!("{} sources are named", names.len()))
            .with_help([help]));
    }
    if has_synthetic {
        let help = "simulate the program that will run: -- hugepilot graph run bfs kronecker:20";
        return Err(failure("--schedule requires a program or its trace")
            .because("the mappings of --graph and --pattern are in no process")
            .with_help([help.to_owned()]));
    }
    if is_part {
        let help = "omit --from-phase, --to-phase, --skip, --window and --max-accesses".to_owned();
        return Err(failure("--schedule requires all accesses of the program")
            .because("its times are shares of the run")
            .with_help([help]));
    }
    Ok(())
}

/// Schedule that a simulation will write.
pub(super) struct Planned<'a> {
    path: &'a Path,
    policy: &'static str,
    file: Output,
}

impl<'a> Planned<'a> {
    pub(super) fn create(path: &'a Path, policy: &'static str) -> Result<Self, Failure> {
        let file = Output::create(path, "the schedule", "--schedule", true)?;
        Ok(Self { path, policy, file })
    }

    /// Writes the promotions and demotions of a simulation, and notes what the file lacks.
    ///
    /// # Errors
    /// A part of the program was simulated; no promotion can be replayed; more events than a
    /// schedule may have; the error of writing. There is no new file then.
    pub(super) fn write(self, result: &PolicyResult, last: &LastDecision) -> Result<(), Failure> {
        let shown = printable_path(self.path);
        let failed = || Failure::new(format!("cannot write schedule {shown}"), Exit::Error);
        let input = &result.report.input;
        if let Some(cause) = missing(input) {
            let cause = format!("its times are shares of the run, and {cause}");
            return Err(failed().because(cause).with_help(help(input)));
        }
        let failure = |error: anyhow::Error| failed().because(format!("{error:#}"));
        let (schedule, promotions) = of(result, self.policy).map_err(failure)?;
        if let Some((cause, help)) = promotions.missing(&result.report, last) {
            return Err(failed().because(cause).with_help(help));
        }
        let size = crate::schedule::write(&schedule, self.file).map_err(failure)?;
        let progress = Progress::new();
        if promotions.written < promotions.all() {
            progress.keep(&format!("note: {promotions}"));
        }
        progress.keep(&format!("{shown}: {size}"));
        progress.keep(&format!(
            "replay it: sudo hugepilot tune --schedule {shown} --schedule-time TIME -- CMD, with \
             the run time of CMD"
        ));
        Ok(())
    }
}

/// Why a simulation lacks accesses of its program; `None` if it has all.
fn missing(input: &SimInput) -> Option<String> {
    if let Some(cut) = input.cut.first() {
        return Some(format!("the trace is cut at byte {}", cut.byte));
    }
    let interrupted = || (!input.complete).then(|| "the simulation was interrupted".to_owned());
    parts(input).next().map(Sentence::text).or_else(interrupted)
}

fn parts(input: &SimInput) -> impl Iterator<Item = &TraceWarning> {
    input.warnings.iter().map(|one| &one.warning).filter(|warning| warning.is_part())
}

/// How to get all accesses of the program.
fn help(input: &SimInput) -> Vec<String> {
    let options: Vec<&str> = parts(input).filter_map(TraceWarning::option).collect();
    if parts(input).any(|part| matches!(part, TraceWarning::TooManyMappings { .. })) {
        return vec!["tune the program itself: hugepilot tune -- CMD".to_owned()];
    }
    if options.is_empty() {
        return vec!["simulate the program, or a complete trace of it, to its end".to_owned()];
    }
    let without = format!("trace the program without {}", options.join(" and "));
    vec![without, "simulate the program itself: -- CMD".to_owned()]
}

/// Help for mappings without whole regions. One of 4 MiB has one, wherever it begins.
const LARGER: &str = "simulate a larger input, with a mapping of 4MiB or more";

/// Regions that the last decision of a policy had in view.
#[derive(Debug, Default)]
pub(super) struct LastDecision {
    eligible: u64,
    /// Stalls on skipped regions, by reason.
    skipped: BTreeMap<SkipReason, u64>,
}

impl LastDecision {
    pub(super) fn note(&mut self, round: &Round) {
        *self = Self::default();
        for ProcessDecision { eligible, skipped_stalls, .. } in round.decisions() {
            self.eligible += eligible;
            for (&reason, stalls) in skipped_stalls {
                *self.skipped.entry(reason).or_insert(0) += stalls;
            }
        }
    }

    /// Why a policy that decided promoted nothing, and help.
    fn without_promotion(&self, report: &SimPolicyReport) -> (String, Vec<String>) {
        let because = |cause: &str, help: String| {
            (format!("the policy promoted no region{cause}"), vec![help])
        };
        let most = self.skipped.iter().max_by_key(|(_, stalls)| **stalls);
        let most = most.filter(|(_, stalls)| self.eligible == 0 && **stalls > 0);
        match most {
            _ if report.run.policy == "prefix" => {
                because("", "list the mappings: hugepilot sim tlb --json".to_owned())
            }
            _ if report.frames == Some(0) => {
                let more = "give it huge pages: --frames 1 or more";
                because(": the machine has no huge page", more.to_owned())
            }
            _ if self.skipped.contains_key(&SkipReason::OverBudget) => {
                let least = smallest_budget(report);
                let more = format!("allow a huge page: --budget {least} or more");
                because(": the budget has no huge page", more)
            }
            Some((reason, _)) => {
                let help = match reason {
                    SkipReason::Unaligned => LARGER,
                    SkipReason::TooFewResident => {
                        "simulate a larger input, which uses 1MiB or more of a region"
                    }
                    _ => "list the mappings with page walks: hugepilot sim tlb",
                };
                let cause = format!(": none is eligible, most because {}", reason.text());
                because(&cause, help.to_owned())
            }
            None => {
                let more = more_decisions(report.input.accesses, report.interval);
                let other = if report.run.policy == "pcc" { "heat" } else { "pcc" };
                let other = format!("try another policy: hugepilot sim {other}");
                let help = more.into_iter().chain([other]).collect();
                ("the policy promoted no region".to_owned(), help)
            }
        }
    }
}

/// Promotions of a simulation, by their way into the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Promotions {
    written: u64,
    /// Those of regions at the border of a mapping, which the kernel cannot promote.
    at_border: u64,
    /// Those of regions outside of all mappings of a process, by which schedules know a region:
    /// also those in an array of a traced graph kernel.
    unmapped: u64,
}

impl Promotions {
    const fn all(self) -> u64 {
        self.written + self.at_border + self.unmapped
    }

    /// Why there is none to replay, and help; `None` if there is one.
    fn missing(
        self,
        report: &SimPolicyReport,
        last: &LastDecision,
    ) -> Option<(String, Vec<String>)> {
        let one = |help: &str| vec![help.to_owned()];
        let (cause, help) = match self {
            Self { written: 1.., .. } => return None,
            Self { unmapped: 1.., .. } => (
                "the trace does not have the mappings of the promoted regions",
                one("simulate the program itself: -- CMD, or a trace of it: hugepilot trace -o \
                     FILE -- CMD"),
            ),
            Self { at_border: 1.., .. } => {
                ("all promoted regions cross the border of a mapping", one(LARGER))
            }
            _ if report.rounds == 0 => (
                "no decision: the accesses are fewer than --interval",
                more_decisions(report.input.accesses, report.interval).into_iter().collect(),
            ),
            _ => return Some(last.without_promotion(report)),
        };
        Some((cause.to_owned(), help))
    }
}

impl fmt::Display for Promotions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = counted(self.all(), "promotion is", "promotions are");
        write!(f, "{} of {all} in the schedule", self.written)?;
        let mut separator = ';';
        for (count, one, several, place) in [
            (self.at_border, "region crosses", "regions cross", "the border of a mapping"),
            (self.unmapped, "region is", "regions are", "outside of all mappings"),
        ] {
            if count > 0 {
                write!(f, "{separator} {} {place}", counted(count, one, several))?;
                separator = ',';
            }
        }
        Ok(())
    }
}

/// Returns the promotions and demotions of a simulated program that can be replayed, and the number
/// of all promotions.
fn of(result: &PolicyResult, policy: &str) -> anyhow::Result<(Schedule, Promotions)> {
    let simulated = &result.simulated;
    let header = ScheduleHeader {
        program: result.report.input.sources.first().cloned().unwrap_or_default(),
        source: concat!("hugepilot ", env!("CARGO_PKG_VERSION"), " sim").to_owned(),
        policy: policy.to_owned(),
        accesses: Some(simulated.accesses),
        ..ScheduleHeader::default()
    };
    let mut schedule = Schedule::new(header).map_err(|problem| anyhow!("{problem}"))?;
    let mut promotions = Promotions::default();
    let places = simulated.layout.places(&simulated.footprint);
    for act in &result.acts {
        let place = places.of(act.region);
        let named = &places.mappings()[place.mapping];
        // As in /proc/PID/maps: a file, or [heap].
        let is_of_process = named.is_known() && named.mapping.name.starts_with(['/', '[']);
        let index = place.inside.filter(|_| is_of_process);
        let count = match index {
            Some(_) => &mut promotions.written,
            None if is_of_process => &mut promotions.at_border,
            None => &mut promotions.unmapped,
        };
        *count += u64::from(act.promotes);
        let Some(index) = index else { continue };
        let event = ScheduleEvent {
            at: ScheduleTime { accesses: Some(act.accesses), ..ScheduleTime::default() },
            action: if act.promotes { ScheduleAction::Promote } else { ScheduleAction::Demote },
            mapping: ScheduledMapping {
                name: named.mapping.name.clone(),
                ordinal: u32::try_from(named.ordinal)?,
                bytes: named.mapping.range.len(),
            },
            index,
        };
        schedule.push(event).map_err(|problem| anyhow!("{problem}"))?;
    }
    Ok((schedule, promotions))
}

#[cfg(test)]
mod tests;
