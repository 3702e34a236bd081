//! The one cause for all events of the processor on a machine without performance counters.

use hugepilot_events::ResolvedEvent;
use hugepilot_record::Errno;

use super::Place;
use super::code::Opening;
use crate::{Root, Unsupported, cpu};

/// Returns the cause if this machine counts not even cycles; `None` if it has counters, or if the
/// kernel hides them for another reason.
pub(super) fn no_counters(root: &Root) -> Option<Unsupported> {
    let this_thread = Place { tid: 0, cpu: -1 };
    let errno = Opening::cycles().try_open(this_thread).err()?;
    let is_absent = matches!(errno, Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP);
    is_absent.then(|| {
        let hypervisor = cpu::read(root).is_ok_and(|cpu| cpu.hypervisor);
        Unsupported::NoCounters { hypervisor }
    })
}

/// Gives all events of the cores the cause that `probe` returns, if none of them exists.
pub(super) fn join_causes(
    events: &[ResolvedEvent],
    missing: &mut [Option<Unsupported>],
    probe: impl FnOnce() -> Option<Unsupported>,
) {
    let is_of_core =
        |event: &ResolvedEvent| !event.code.is_software() && !event.code.is_system_wide();
    let of_core = || (0..events.len()).filter(|&at| is_of_core(&events[at]));
    let is_absent = |cause: &Option<Unsupported>| {
        matches!(cause, Some(Unsupported::NoSuchEvent { .. } | Unsupported::NoUnit { .. }))
    };
    if of_core().count() == 0 || !of_core().all(|at| is_absent(&missing[at])) {
        return;
    }
    if let Some(cause) = probe() {
        of_core().for_each(|at| missing[at] = Some(cause.clone()));
    }
}
