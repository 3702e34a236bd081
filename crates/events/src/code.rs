//! Codes of events, as `perf_event_open` takes them.

use std::fmt;

/// `perf_event_attr.type` of the kernel's generic events of processors.
pub(super) const HARDWARE: u32 = 0;
/// `perf_event_attr.type` of events of the kernel.
pub(super) const SOFTWARE: u32 = 1;
/// `perf_event_attr.type` of generic events of caches.
pub(super) const CACHE: u32 = 3;
/// `perf_event_attr.type` of the processor's own codes.
pub(super) const RAW: u32 = 4;

/// Code of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventCode {
    /// Event of a type that every kernel has.
    Fixed {
        /// `perf_event_attr.type`: 0 generic, 1 of the kernel, 3 generic of a cache, 4 raw.
        kind: u32,
        /// `perf_event_attr.config`.
        config: u64,
        /// `perf_event_attr.config1`.
        config1: u64,
    },
    /// Events of units that the kernel describes in sysfs. The value is their sum.
    Devices(Vec<DeviceEvent>),
}

/// Event of a unit in `/sys/bus/event_source/devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEvent {
    /// Name of the unit: `cpu`, `uncore_imc`. Units with an index count together: `uncore_imc_0`.
    pub unit: String,
    /// Terms of the unit's format: `event=0x4,umask=0x3`; or the name of an event of the unit.
    pub terms: String,
}

impl EventCode {
    /// Returns the code of a raw event.
    pub const fn raw(config: u64) -> Self {
        Self::Fixed { kind: RAW, config, config1: 0 }
    }
    /// Whether the kernel itself counts, without counters of the processor.
    pub const fn is_software(&self) -> bool {
        matches!(self, Self::Fixed { kind: SOFTWARE, .. })
    }
    /// Whether it is counted for the whole system only: events of units outside the cores.
    pub fn is_system_wide(&self) -> bool {
        let core = |unit: &str| {
            unit.starts_with("cpu") || unit.starts_with("armv") || unit.starts_with("software")
        };
        matches!(self, Self::Devices(events) if !events.iter().all(|event| core(&event.unit)))
    }
}

impl fmt::Display for EventCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { kind: RAW, config, config1: 0 } => write!(f, "r{config:x}"),
            Self::Fixed { kind: RAW, config, config1 } => {
                write!(f, "config={config:#x},config1={config1:#x}")
            }
            Self::Fixed { kind, config, .. } => write!(f, "type={kind},config={config:#x}"),
            Self::Devices(events) => {
                for (i, event) in events.iter().enumerate() {
                    let plus = if i == 0 { "" } else { "+" };
                    write!(f, "{plus}{}/{}/", event.unit, event.terms)?;
                }
                Ok(())
            }
        }
    }
}
