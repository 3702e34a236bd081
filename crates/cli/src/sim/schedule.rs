//! Schedule out of a simulation.

use std::path::Path;

use anyhow::anyhow;
use hugepilot_kernel::proc::printable;
use hugepilot_record::PolicyName;
use hugepilot_record::schedule::{
    Schedule, ScheduleAction, ScheduleEvent, ScheduleHeader, ScheduleTime, ScheduledMapping,
};
use hugepilot_record::sim::SimInput;
use hugepilot_trace::simulate::PolicyResult;

use crate::exit::Exit;
use crate::failure::Failure;

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

/// Tests whether the whole program was simulated.
///
/// # Errors
/// A part of it was.
pub(super) fn check_complete(input: &SimInput, path: &Path) -> Result<(), Failure> {
    if input.complete {
        return Ok(());
    }
    let cause = "the times of a schedule are shares of the run, and the simulation lacks its end: \
                 it was interrupted, a trace is cut, or the program was killed or replaced itself";
    let help = "simulate the program, or a complete trace of it, to its end";
    let shown = printable(path.as_os_str().as_encoded_bytes());
    Err(Failure::new(format!("cannot write schedule {shown}"), Exit::Error)
        .because(cause)
        .with_help([help.to_owned()]))
}

/// Returns the promotions and demotions of a simulated program, without those of regions at the
/// border of a mapping, which the kernel cannot promote.
pub(super) fn of(
    result: &PolicyResult,
    names: &[String],
    policy: PolicyName,
) -> anyhow::Result<Schedule> {
    let simulated = &result.simulated;
    let header = ScheduleHeader {
        program: names.first().cloned().unwrap_or_default(),
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
