//! Metrics and events that can be counted on this machine.

use hugepilot_events::{EventList, list};
use hugepilot_record::Cpu;

use super::{CounterTarget, GroupCounters};
use crate::{Process, Root};

/// Returns the sets, metrics and events of `cpu`, each metric opened once on `process` to see
/// whether it can be counted here.
pub fn events_here(root: &Root, cpu: &Cpu, process: &Process) -> EventList {
    list(cpu, |event| {
        let target = if event.code.is_system_wide() {
            CounterTarget::System
        } else {
            CounterTarget::Process(process)
        };
        let events = std::slice::from_ref(event);
        match GroupCounters::open(root, target, events) {
            Ok(counters) => counters.missing().next().map(|(_, cause)| cause.to_string()),
            Err(cause) => Some(cause.to_string()),
        }
    })
}
