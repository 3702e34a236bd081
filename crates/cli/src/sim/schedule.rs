//! Schedule out of a simulation.

use std::path::Path;

use anyhow::anyhow;
use hugepilot_kernel::proc::printable;
use hugepilot_record::PolicyName;
use hugepilot_record::schedule::{
    Schedule, ScheduleAction, ScheduleEvent, ScheduleHeader, ScheduleTime, ScheduledMapping,
};
use hugepilot_record::sim::SimInput;
use hugepilot_record::trace::TraceWarning;
use hugepilot_report::Sentence;
use hugepilot_trace::simulate::PolicyResult;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::new_file::Output;

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
        let help = "omit --skip, --window and --max-accesses".to_owned();
        return Err(failure("--schedule requires all accesses of the program")
            .because("its times are shares of the run")
            .with_help([help]));
    }
    Ok(())
}

/// Schedule that a simulation will write.
pub(super) struct Planned<'a> {
    path: &'a Path,
    policy: PolicyName,
    file: Output,
}

impl<'a> Planned<'a> {
    pub(super) fn create(path: &'a Path, policy: PolicyName) -> Result<Self, Failure> {
        let file = Output::create(path, "the schedule", "--schedule", true)?;
        Ok(Self { path, policy, file })
    }

    /// Writes the promotions and demotions of a simulation.
    ///
    /// # Errors
    /// A part of the program was simulated; more events than a schedule may have; the error of
    /// writing. There is no new file then.
    pub(super) fn write(self, result: &PolicyResult) -> Result<(), Failure> {
        let shown = printable(self.path.as_os_str().as_encoded_bytes());
        let failed = || Failure::new(format!("cannot write schedule {shown}"), Exit::Error);
        let input = &result.report.input;
        if let Some(cause) = missing(input) {
            let cause = format!("its times are shares of the run, and {cause}");
            return Err(failed().because(cause).with_help(help(input)));
        }
        let schedule = of(result, self.policy);
        schedule
            .and_then(|schedule| crate::schedule::write(&schedule, self.file))
            .map_err(|error| failed().because(format!("{error:#}")))
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
    if options.is_empty() {
        return vec!["simulate the program, or a complete trace of it, to its end".to_owned()];
    }
    let without = format!("trace the program without {}", options.join(" and "));
    vec![without, "simulate the program itself: -- CMD".to_owned()]
}

/// Returns the promotions and demotions of a simulated program, without those of regions at the
/// border of a mapping, which the kernel cannot promote.
fn of(result: &PolicyResult, policy: PolicyName) -> anyhow::Result<Schedule> {
    let simulated = &result.simulated;
    let header = ScheduleHeader {
        program: result.report.input.sources.first().cloned().unwrap_or_default(),
        source: concat!("hugepilot ", env!("CARGO_PKG_VERSION"), " sim").to_owned(),
        policy: policy.to_string(),
        accesses: Some(simulated.accesses),
        ..ScheduleHeader::default()
    };
    let mut schedule = Schedule::new(header).map_err(|problem| anyhow!("{problem}"))?;
    let places = simulated.layout.places(&simulated.footprint);
    for act in &result.acts {
        let place = places.of(act.region);
        let named = &places.mappings()[place.mapping];
        let Some(index) = place.inside else { continue };
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
    Ok(schedule)
}
