//! Goal `daemon`: when it works, how much CPU time it may spend, and what it leaves alone.
//!
//! [`Gate`] turns readings of memory use into steps, [`CpuBudget`] CPU time into pauses. [`Turns`]
//! are the processes that the [rules](Rule) allow to promote, in their order. [`History`] holds the
//! regions that the daemon changed: nothing is promoted soon after it was split, nor split soon
//! after it was promoted.

mod cpu_budget;
mod history;
mod round;
mod rules;
mod turns;
mod watermark;

pub use cpu_budget::CpuBudget;
pub use history::{
    CoolDown, History, Key, Recollapses, RegionHistory, by_start, key_of, next_after,
};
pub use round::{Choice, DaemonRound};
pub use rules::{Permission, ProcessFacts, Rule, allowed_by};
pub use turns::{Scan, Turn, Turns};
pub use watermark::{Gate, GateStep, Reading, Watermarks};
