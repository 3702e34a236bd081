//! Simulators of what huge pages change: TLBs, the promotion candidate cache, page reuse.
//!
//! Accesses become [`AccessRun`]s, consecutive accesses of a thread to one base page, in batches. A
//! [`Batch`] feeds any number of simulators: a [`Machine`] has TLBs and candidate caches ([`Pcc`])
//! per thread, [`Reuse`] has stack and time distances. There is no clock, no I/O and no hidden
//! randomness: the same accesses give the same results.
//!
//! ```
//! use hugepilot_sim::{Batch, Footprint, Machine, MachineConfig, Preset};
//!
//! let preset = Preset::built_in("haswell").expect("a name of Preset::names");
//! let (mut footprint, mut machine) = (Footprint::new(), Machine::new(MachineConfig::new(preset)));
//! let mut batch = Batch::default();
//! footprint.add(0, 0, (0..4096).map(|page| page * 4096), &mut batch);
//! machine.run(&batch);
//! assert_eq!(machine.counts().walks, 4096);
//! ```

#![forbid(unsafe_code)]

mod array;
mod cost;
mod former;
mod hierarchy;
mod layout;
mod lru;
mod machine;
mod memory;
#[cfg(test)]
mod oracle;
mod pages;
#[cfg(test)]
mod paper;
mod pattern;
mod pcc;
mod placement;
mod preset;
mod reuse;
mod runs;
mod set;
mod tuned;

pub use array::SetIndex;
pub use cost::CostModel;
pub use hierarchy::Coalescing;
pub use layout::{Layout, MAX_LAYOUT, NamedMapping, Place, Places};
pub use machine::{CandidateRules, CandidateTables, Counts, Machine, MachineConfig, merge};
pub use memory::MemoryUse;
pub use pages::{BASE_PER_REGION, BASE_SHIFT, PageClass, base_page, place_of};
pub use pattern::{PATTERN_START, Pattern, PatternKind};
pub use pcc::{MAX_PCC_ENTRIES, Pcc, PccConfig, PccReplacement, Ranked};
pub use placement::{MappingChange, PlacedArea, Placement};
pub use preset::{Preset, PresetError, Tlb, WalkCache, WaysOf};
pub use reuse::{
    Histogram, MissRatio, NEAR, PageReuse, Reuse, ReuseConfig, ReuseKind, ReuseOfPages,
    ReuseOfRegions,
};
pub use runs::{
    AccessRun, Batch, Footprint, MAX_PROCESSES, MAX_REGIONS, PageBits, RegionId, RegionPages, Turn,
    count,
};
pub use set::Replacement;
pub use tuned::{Coverage, TunedAct, TunedConfig, TunedMachine, View};
