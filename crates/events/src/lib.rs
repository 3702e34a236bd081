//! Events of the processor and the kernel: metrics, their events on each processor, formulas.
//!
//! A name is a set of metrics (`tlb`), a metric (`dtlb_load_walks`), or an event: by perf's generic
//! names (`dTLB-load-misses`), by the vendor's (`DTLB_LOAD_MISSES.WALK_ACTIVE`), by its raw code
//! (`r1008`), or by a unit of the kernel with terms (`cpu/event=0x08,umask=0x10,cmask=1/`).
//! [`parse`] understands names, [`resolve()`] returns their events in groups.

#![forbid(unsafe_code)]

mod code;
mod design;
pub mod formula;
mod generic;
mod list;
mod metrics;
mod name;
mod native;
mod resolve;
mod scale;
mod sets;
#[cfg(test)]
mod tests;
mod text;

pub use code::{DeviceEvent, EventCode};
pub use design::{Design, ListedEvent, MemoryEvent};
pub use list::{EventList, EventSet, ListedMetric, SCHEMA, list};
pub use metrics::{METRICS, MetricDefinition, MetricSet, SETS};
pub use name::{EventError, NamedEvent, SetOrEvent, parse};
pub use resolve::{Resolved, ResolvedEvent, resolve};
pub use scale::{Certainty, EventReading};
pub use text::events_text;
