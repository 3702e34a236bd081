//! Memory pressure: holds memory until an amount of it is left, in a closed loop.
//!
//! The loop follows the memory that is left, not the memory that is held, because other processes
//! change it by hundreds of MiB. The memory of the program for which it is made counts as left to
//! it.

mod step;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hugepilot_kernel::own_memory::MemoryBound;
use hugepilot_kernel::stall_trigger::StallTrigger;
use hugepilot_kernel::{OwnMemory, Root, memory, usage};
use hugepilot_record::{Errno, Pid};
use hugepilot_reports::lab::weather::{
    PRESSURE_SCHEMA, PressureKind, PressureReport, Shortfall, WeatherRefusal, WeatherWarning,
};
use hugepilot_units::Bytes;

use crate::condition::{Condition, TICK};
use crate::holder::Holder;
use crate::{LabError, PageCacheFill, Result};

pub use step::{Act, DANGER, Level, Observation, STEP, step};

/// Least memory that a pressure by locked memory leaves.
pub const FLOOR: Bytes = Bytes::gib(1);
/// The same for page cache, which the kernel reclaims by itself.
pub const FREE_FLOOR: Bytes = Bytes::mib(256);
/// Time without stalls after which memory is held again.
const CALM: Duration = Duration::from_secs(10);
/// Time to wait for a level that varies.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requested pressure.
#[derive(Clone, Debug)]
pub struct PressureConfig {
    /// [`PressureKind::Mlock`] or [`PressureKind::PageCache`].
    pub kind: PressureKind,
    /// Memory to leave, the footprint of the program included.
    pub leave: Bytes,
    /// Footprint that is part of it, for the report.
    pub footprint: Option<Bytes>,
    /// NUMA node, for locked memory.
    pub node: Option<u32>,
    /// Whether the memory that is held stays the same once the level is reached, whatever others
    /// use. It ends in danger.
    pub fixed: bool,
    /// Executable of the holder: see [`crate::holder`].
    pub executable: PathBuf,
}

/// Pressure that holds. Dropping it frees the memory.
#[derive(Debug)]
pub struct Pressure {
    config: PressureConfig,
    level: Level,
    stock: Stock,
    held: Bytes,
    trigger: Option<StallTrigger>,
    stalled: Option<Instant>,
    /// Steps that were released because processes stalled.
    yielded: u64,
    report: PressureReport,
}

/// Means by which memory is held.
#[derive(Debug)]
enum Stock {
    Locked(Holder),
    Cached(PageCacheFill),
}

impl Pressure {
    /// Holds memory until the level is reached: 10 GiB a second of base pages at best, 0.5 GiB on a
    /// busy machine. If it is not reached in time, the report has the cause.
    ///
    /// # Errors
    /// [`LabError::Refused`] for a level below [`FLOOR`] or above what is available, and beyond the
    /// limits of this process; [`LabError::Interrupted`]; those of the holder.
    pub fn begin(config: PressureConfig, stopped: &dyn Fn() -> bool) -> Result<Self> {
        let (root, began) = (Root::live(), Instant::now());
        let (left, _) = left(&root, &config, None)?;
        refuse(&config, left, OwnMemory::read(&root))?;
        let mut warnings = Vec::new();
        if memory::has_swap(&root)? {
            warnings.push(WeatherWarning::Swap);
        }
        let trigger = StallTrigger::memory(&root)
            .map_err(|error| {
                let cause = error.to_string();
                warnings.push(WeatherWarning::NoStallReports { cause });
            })
            .ok();
        let stock = match config.kind {
            PressureKind::PageCache => Stock::Cached(PageCacheFill::temporary()?),
            _ => Stock::Locked(Holder::start(&config.executable)?),
        };
        let report = PressureReport {
            schema: PRESSURE_SCHEMA.to_owned(),
            kind: config.kind,
            requested_bytes: config.leave,
            left_bytes: left,
            held_bytes: Bytes::ZERO,
            footprint_bytes: config.footprint,
            node: config.node,
            step_bytes: STEP,
            seconds: 0.0,
            shortfall: None,
            warnings,
        };
        let level = Level { leave: config.leave };
        let (held, stalled, yielded) = (Bytes::ZERO, None, 0);
        let mut pressure = Self { config, level, stock, held, trigger, stalled, yielded, report };
        pressure.reach(stopped)?;
        pressure.report.seconds = began.elapsed().as_secs_f64();
        Ok(pressure)
    }

    /// The level as it was reached.
    pub const fn report(&self) -> &PressureReport {
        &self.report
    }

    /// Memory that was released so far because processes stalled on memory.
    pub fn yielded(&self) -> Bytes {
        STEP.times(self.yielded)
    }

    /// Memory that is held now.
    pub const fn held(&self) -> Bytes {
        self.held
    }

    fn reach(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let (mut patience, mut most) = (Instant::now() + PATIENCE, Bytes::ZERO);
        loop {
            if stopped() {
                return Err(LabError::Interrupted);
            }
            let seen = self.observe(None, Duration::ZERO)?;
            self.report.left_bytes = seen.left;
            self.report.held_bytes = self.held;
            match step(self.level, seen) {
                Act::Hold if self.level.is_reached(seen.left) => return Ok(()),
                _ if Instant::now() > patience => {
                    self.report.shortfall = Some(Shortfall::Unsteady);
                    return Ok(());
                }
                act if self.act(act)? => {}
                _ => std::thread::sleep(TICK),
            }
            if self.held > most {
                (patience, most) = (Instant::now() + PATIENCE, self.held);
            }
        }
    }

    fn observe(&mut self, program: Option<Pid>, wait: Duration) -> Result<Observation> {
        let stalls = self.trigger.as_ref().map(|trigger| trigger.wait(wait));
        // A trigger that fails no longer guards; available memory does.
        let is_stalling = matches!(stalls, Some(Ok(true)));
        if is_stalling {
            self.stalled = Some(Instant::now());
        }
        let root = Root::live();
        let (left, available) = left(&root, &self.config, program)?;
        let own = OwnMemory::read(&root);
        let room = if own.bound == MemoryBound::System { Bytes::MAX } else { own.room() };
        let is_calm = self.stalled.is_none_or(|at| at.elapsed() > CALM);
        Ok(Observation { left, available, held: self.held, room, is_stalling, is_calm })
    }

    /// Takes or releases a step. Returns whether it did; a step that the kernel refuses counts as a
    /// stall.
    fn act(&mut self, act: Act) -> Result<bool> {
        let done = match (&mut self.stock, act) {
            (_, Act::Hold) => return Ok(false),
            (Stock::Locked(holder), Act::Take) => {
                let node = self.config.node.map_or_else(String::new, |node| format!(" {node}"));
                holder.ask(&format!("lock {}{node}", STEP.get())).map(drop)
            }
            (Stock::Locked(holder), Act::Release) => holder.ask("release").map(drop),
            (Stock::Cached(fill), Act::Take) => fill.read_on(STEP).map(drop),
            (Stock::Cached(fill), Act::Release) => fill.drop_last(STEP),
        };
        match done {
            Err(LabError::Holder { errno: Errno::ENOMEM | Errno::EAGAIN, .. }) => {
                self.stalled = Some(Instant::now());
                return Ok(false);
            }
            done => done?,
        }
        self.held = if act == Act::Take { self.held + STEP } else { self.held - STEP };
        Ok(true)
    }
}

impl Condition for Pressure {
    fn keep(&mut self, program: Option<Pid>) -> Result<()> {
        if let Stock::Locked(holder) = &mut self.stock {
            holder.check()?;
        }
        // Many steps in a row, if much changed; a tick bounds them.
        let until = Instant::now() + TICK;
        while Instant::now() < until {
            let seen = self.observe(program, Duration::ZERO)?;
            if self.config.fixed {
                let available = seen.available;
                return if available < DANGER {
                    Err(LabError::Danger { available })
                } else {
                    Ok(())
                };
            }
            let act = step(self.level, seen);
            self.yielded += u64::from(act == Act::Release && seen.is_stalling);
            if !self.act(act)? {
                break;
            }
        }
        Ok(())
    }
}

/// Memory that is left to the program or to all, and available memory.
fn left(root: &Root, config: &PressureConfig, program: Option<Pid>) -> Result<(Bytes, Bytes)> {
    let info = match config.node {
        Some(node) => memory::node_info(root, node)?,
        None => memory::mem_info(root)?,
    };
    let base = if config.kind == PressureKind::PageCache { info.free } else { info.available };
    let own = program.map(|pid| usage::unreclaimable(root, &usage::family(root, pid)));
    Ok((base + own.unwrap_or(Bytes::ZERO), info.available))
}

/// # Errors
/// [`LabError::Refused`] for a level that is not safe or not possible.
fn refuse(config: &PressureConfig, left: Bytes, own: OwnMemory) -> Result<()> {
    let requested_bytes = config.leave;
    let cached = config.kind == PressureKind::PageCache;
    let floor_bytes = if cached { FREE_FLOOR } else { FLOOR };
    let wanted_bytes = left - requested_bytes;
    let room_bytes = own.room();
    let is_bound = own.bound != MemoryBound::System && !cached && wanted_bytes > room_bytes;
    Err(LabError::Refused(if requested_bytes < floor_bytes {
        WeatherRefusal::BelowFloor { requested_bytes, floor_bytes }
    } else if requested_bytes > left {
        WeatherRefusal::AboveAvailable { requested_bytes, left_bytes: left }
    } else if is_bound {
        WeatherRefusal::NoRoom { wanted_bytes, room_bytes }
    } else {
        return Ok(());
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_refused_below_the_floor_above_what_is_left_and_beyond_own_limits() {
        let config = |kind, leave| PressureConfig {
            kind,
            leave,
            footprint: None,
            node: None,
            fixed: false,
            executable: PathBuf::new(),
        };
        let system = OwnMemory::system(Bytes::gib(8));
        let bound = MemoryBound::Cgroup { limit: Bytes::gib(2) };
        let group = OwnMemory { bound, available: Bytes::gib(2), reserve: Bytes::mib(512) };
        let verdict = |kind, leave, own| match refuse(&config(kind, leave), Bytes::gib(8), own) {
            Err(LabError::Refused(refusal)) => format!("{refusal:?}"),
            other => format!("{other:?}"),
        };
        use PressureKind::{Mlock, PageCache};
        for (kind, mib, own, expected) in [
            (Mlock, 1024, system, "Ok"),
            (Mlock, 1023, system, "BelowFloor"),
            (PageCache, 256, system, "Ok"),
            (PageCache, 255, system, "BelowFloor"),
            (Mlock, 8193, system, "AboveAvailable"),
            (Mlock, 7168, group, "Ok"),
            (Mlock, 6144, group, "NoRoom"),
            (PageCache, 6144, group, "Ok"),
        ] {
            let found = verdict(kind, Bytes::mib(mib), own);
            assert!(found.starts_with(expected), "{kind:?} {mib}: {found}");
        }
    }
}
