//! Attributes of `perf_event_open` for an event, and the places where it must be opened.

use std::os::fd::BorrowedFd;

use hugepilot_events::{DeviceEvent, EventCode, ResolvedEvent};
use hugepilot_record::Errno;
use perf_event_open_sys::bindings as sys;

use super::format::Layout;
use super::{CounterTarget, Place};
use crate::perf::pmu::{Pmu, Words};
use crate::sys::perf::EventFd;
use crate::{Root, Unsupported};

/// Event to open.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    kind: u32,
    words: Words,
    /// Processors to open it on, for a unit outside the cores; `None` for the places of the target.
    pub(super) cpus: Option<Vec<i32>>,
    /// Whether new threads inherit it.
    inherit: bool,
    /// Whether child processes do not.
    inherit_thread: bool,
    /// Whether kernel mode is not counted.
    user_only: bool,
    /// Whether user mode alone may be counted instead if the kernel denies kernel mode.
    may_be_user_only: bool,
    pub(super) layout: Layout,
}

impl Opening {
    /// Returns the events to open for `event`: one, or one for each unit.
    ///
    /// # Errors
    /// [`Unsupported`] if sysfs has no such unit, or the unit has no such event.
    pub(super) fn of(
        root: &Root,
        event: &ResolvedEvent,
        target: CounterTarget<'_>,
    ) -> Result<Vec<Self>, Unsupported> {
        let is_software = event.code.is_software();
        let is_process = !matches!(target, CounterTarget::System);
        let is_alone = matches!(target, CounterTarget::ProcessAlone(_));
        let opening = |kind, words, cpus: Option<Vec<i32>>| Self {
            kind,
            words,
            inherit: is_process && cpus.is_none(),
            inherit_thread: is_alone && cpus.is_none(),
            // A context switch happens in kernel mode, a page fault may.
            user_only: is_process && cpus.is_none() && !is_software,
            may_be_user_only: is_process && is_software && !happens_in_kernel(words[0]),
            cpus,
            layout: Layout::Group,
        };
        match &event.code {
            &EventCode::Fixed { kind, config, config1 } => {
                Ok(vec![opening(kind, [config, config1, 0], None)])
            }
            EventCode::Devices(events) => {
                let mut openings = Vec::new();
                for device in events {
                    for (kind, words, cpus) in units(root, device)? {
                        let is_core = !event.code.is_system_wide();
                        let cpus = if is_core { None } else { Some(cpus) };
                        openings.push(opening(kind, words, cpus));
                    }
                }
                Ok(openings)
            }
        }
    }

    /// Returns the generic event `cycles`, in user mode.
    pub(super) const fn cycles() -> Self {
        Self {
            kind: sys::PERF_TYPE_HARDWARE,
            words: [sys::PERF_COUNT_HW_CPU_CYCLES as u64, 0, 0],
            cpus: None,
            inherit: false,
            inherit_thread: false,
            user_only: true,
            may_be_user_only: false,
            layout: Layout::Group,
        }
    }

    /// Tries the event by itself. If the kernel denies kernel mode, cannot exclude child processes,
    /// or denies a common read of a group that is inherited, the event is changed to do without.
    pub(super) fn try_open(&mut self, place: Place) -> Result<(), Errno> {
        let mut result = self.open(place, None);
        if matches!(result, Err(Errno::EACCES | Errno::EPERM)) && self.may_be_user_only {
            self.user_only = true;
            result = self.open(place, None);
        }
        if matches!(result, Err(Errno::EINVAL)) && self.inherit_thread {
            self.inherit_thread = false;
            result = self.open(place, None);
        }
        if matches!(result, Err(Errno::EINVAL)) {
            self.layout = Layout::Single;
            result = self.open(place, None);
        }
        result.map(drop)
    }

    /// Opens the event, as a member of the group of `leader`.
    pub(super) fn open(
        &self,
        place: Place,
        leader: Option<BorrowedFd<'_>>,
    ) -> Result<EventFd, Errno> {
        // Members of a group without a common read would each count apart.
        if leader.is_some() && self.layout == Layout::Single {
            return Err(Errno::EINVAL);
        }
        EventFd::open(&self.attributes(), place.tid, place.cpu, leader)
    }

    /// Returns type, config words and processors.
    #[cfg(test)]
    pub(super) fn parts(self) -> (u32, Words, Option<Vec<i32>>) {
        (self.kind, self.words, self.cpus)
    }

    fn attributes(&self) -> sys::perf_event_attr {
        let [config, config1, config2] = self.words;
        let mut attr = sys::perf_event_attr::default();
        attr.size = u32::try_from(size_of::<sys::perf_event_attr>()).unwrap_or(0);
        attr.type_ = self.kind;
        attr.config = config;
        attr.__bindgen_anon_3.config1 = config1;
        attr.__bindgen_anon_4.config2 = config2;
        attr.read_format = self.layout.read_format();
        attr.set_inherit(self.inherit.into());
        attr.set_inherit_thread(self.inherit_thread.into());
        attr.set_exclude_kernel(self.user_only.into());
        attr.set_exclude_hv(self.user_only.into());
        attr
    }
}

/// Whether an event of the kernel counts nothing in user mode: context switches and migrations.
fn happens_in_kernel(config: u64) -> bool {
    let config = u32::try_from(config).unwrap_or(u32::MAX);
    [
        sys::PERF_COUNT_SW_CONTEXT_SWITCHES,
        sys::PERF_COUNT_SW_CPU_MIGRATIONS,
        sys::PERF_COUNT_SW_CGROUP_SWITCHES,
    ]
    .contains(&config)
}

/// Returns type, config words and processors of each unit that `device` names.
fn units(root: &Root, device: &DeviceEvent) -> Result<Vec<(u32, Words, Vec<i32>)>, Unsupported> {
    let units = Pmu::instances(root, &device.unit);
    if units.is_empty() {
        let unit = device.unit.clone();
        return Err(Unsupported::NoUnit { unit });
    }
    let encoded = |pmu: &Pmu| {
        let named = pmu.event(root, &device.terms);
        let terms = named.as_deref().unwrap_or(&device.terms);
        let words = pmu.encode(terms).ok_or_else(|| Unsupported::UnitTerms {
            unit: device.unit.clone(),
            terms: device.terms.clone(),
        })?;
        Ok((pmu.kind, words, pmu.cpus(root)))
    };
    units.iter().map(encoded).collect()
}
