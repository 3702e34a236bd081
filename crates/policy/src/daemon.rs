//! Goal `daemon`: when it works, how much CPU time it may spend, and what it leaves alone.
//!
//! [`Gate`] turns readings of memory use into steps, [`CpuBudget`] into pauses. [`History`] is what
//! the daemon remembers of regions that it split or promoted.

mod cpu_budget;
mod history;
mod watermark;

pub use cpu_budget::CpuBudget;
pub use history::{CoolDown, History, Key, Recollapses, by_start, key_of, next_after};
pub use watermark::{Gate, Reading, Step, Watermarks};
