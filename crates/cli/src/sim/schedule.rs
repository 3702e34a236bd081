//! Schedule out of a simulation.

use anyhow::anyhow;
use hugepilot_launch::simulate::PolicyResult;
use hugepilot_record::PolicyName;
use hugepilot_record::schedule::{
    Schedule, ScheduleAction, ScheduleEvent, ScheduleHeader, ScheduleTime, ScheduledMapping,
};
use hugepilot_units::{Bytes, PageSizes};

use crate::exit::Exit;
use crate::failure::Failure;

/// Returns the promotions and demotions of a simulated program, without those of regions at the
/// border of a mapping, which the kernel cannot promote.
pub(super) fn of(
    result: &PolicyResult,
    names: &[String],
    policy: PolicyName,
) -> anyhow::Result<Schedule> {
    if names.len() > 1 {
        let help = "simulate the programs one by one for their schedules";
        return Err(Failure::new("--schedule is that of one program", Exit::Error)
            .because(format!("{} sources were simulated", names.len()))
            .with_help([help.to_owned()])
            .into());
    }
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
    let sizes = PageSizes::X86_64;
    for act in &result.acts {
        let (at, _) = places.of(act.region);
        let named = &places.mappings()[at];
        let address = simulated.footprint.regions()[act.region as usize].address();
        let inside = sizes.regions_inside(named.mapping.range);
        let region = address / sizes.huge.get();
        let Some(index) = inside.clone().position(|one| one.get() == region) else { continue };
        let event = ScheduleEvent {
            at: ScheduleTime { accesses: Some(act.accesses), ..ScheduleTime::default() },
            action: if act.promotes { ScheduleAction::Promote } else { ScheduleAction::Demote },
            mapping: ScheduledMapping {
                name: named.mapping.name.clone(),
                ordinal: u32::try_from(named.ordinal)?,
                bytes: Bytes::new(named.mapping.range.len().get()),
            },
            index: index as u64,
        };
        schedule.push(event).map_err(|problem| anyhow!("{problem}"))?;
    }
    Ok(schedule)
}
