//! `daemon --debloat`: holds memory use between two watermarks by splitting huge pages that waste memory.
//!
//! Look at memory use → above high? → sample, take the census, plan → split until below low → rest. What decides is pure and
//! in files of its own: the marks and the back-off (`watermark`), the CPU budget (`budget`), and what was split before
//! (`history`). What it needs of the machine is a [`World`], so that a test owns the memory and the time. State is only
//! memory of the past: whoever kills the daemon at any moment leaves nothing to be put right.

mod budget;
mod config;
mod history;
mod keys;
mod machine;
#[cfg(test)]
mod tests;
mod watermark;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hugepilot_kernel::{KernelError, Target};
use hugepilot_record::daemon::{Event, Line, SCHEMA, Seen, Totals};
use hugepilot_record::{Pid, ProcessId};
use hugepilot_units::{Nanos, Region};

use crate::ManagerError;
use budget::Budget;
use history::{History, Key};
use watermark::{Gate, Step};

pub use config::Config;
pub use keys::Wrong;
pub use machine::{Control, Machine};
pub use watermark::{Marks, Reading};

/// What the user wants by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Nothing new.
    Nothing,
    /// Read the configuration again. Told until [`World::reload`] is called.
    Reload,
    /// Stop. Told for ever.
    Stop,
}

/// All that the daemon may ask of the machine. [`Machine`] is the real one; the tests simulate one.
pub trait World {
    /// The clock: nanoseconds of `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;
    /// Seconds since 1970, for the log.
    fn unix_seconds(&self) -> f64;
    /// CPU time of our own process, all threads.
    fn cpu_time(&self) -> Nanos;
    /// Waits so long, or until the user wants something.
    fn wait(&self, time: Nanos);
    /// What the user wants.
    fn asked(&self) -> ControlRequest;
    /// The configuration as it is by now.
    ///
    /// # Errors
    /// Why it cannot be taken.
    fn reload(&self) -> Result<Config, String>;
    /// Memory in use. Well under a millisecond.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn memory(&self) -> Result<Reading, KernelError>;
    /// Why nothing may be split now, whatever the process; `None` when it may.
    fn forbidden(&self) -> Option<String>;
    /// The processes that may be worth a look now, and those that may not be looked at. `each` is asked before every process
    /// and says whether to go on: one takes microseconds, but tens of milliseconds where there is much memory on base pages.
    ///
    /// # Errors
    /// When processes cannot be listed.
    fn processes(
        &self,
        config: &Config,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<ProcessList, KernelError>;
    /// Whether this very process still runs.
    fn lives(&self, key: Key) -> bool;
    /// Samples the processes for `time`, and says for each how often it waited for each of its regions; `None` for one that
    /// could not be sampled. `each` says whether to go on.
    ///
    /// # Errors
    /// [`ManagerError::Sample`].
    fn observe(
        &self,
        processes: &[Rc<dyn Target>],
        time: Nanos,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Option<BTreeMap<Region, u32>>>, ManagerError>;
    /// Why khugepaged makes huge again what is split, and what to change; `None` where it does not. `advised`: the program asked
    /// for huge pages there.
    fn khugepaged(&self, advised: bool) -> Option<String>;
    /// Who makes regions huge again, by which setting, and what to change. `advised`: the program asked for huge pages there.
    fn who_collapses(&self, advised: bool) -> String;
}

/// What [`World::processes`] found.
#[derive(Default)]
pub struct ProcessList {
    /// Processes to take from.
    pub targets: Vec<Rc<dyn Target>>,
    /// Processes left alone, and why.
    pub left: Vec<(ProcessId, String)>,
}

/// Watches and works until asked to stop. `log` gets every line.
///
/// # Errors
/// When memory use cannot be read, or processes cannot be listed.
pub fn daemon(
    world: &dyn World,
    config: Config,
    log: &mut dyn FnMut(&Line),
) -> Result<Totals, ManagerError> {
    let mut daemon = Daemon::new(world, config, log);
    let mut seen = world.memory()?;
    daemon.say_started(&seen);
    loop {
        match world.asked() {
            ControlRequest::Stop => break,
            ControlRequest::Reload => daemon.reload(&seen),
            ControlRequest::Nothing => {}
        }
        seen = daemon.step()?;
        let (marks, now, interval) = (daemon.config.marks(), world.now(), daemon.config.interval);
        let time = daemon.gate.next_look(&marks, &seen, now, interval);
        if world.asked() == ControlRequest::Nothing {
            world.wait(time);
        }
    }
    let totals = daemon.totals();
    daemon.say(&seen, Event::Stopped(totals));
    Ok(totals)
}

/// Where sums began, and what they are so far.
#[derive(Clone, Copy)]
struct Since {
    now: Nanos,
    cpu: Nanos,
    sums: Totals,
}

impl Since {
    fn begin(world: &dyn World) -> Self {
        Self { now: world.now(), cpu: world.cpu_time(), sums: Totals::default() }
    }
    fn totals(&self, world: &dyn World) -> Totals {
        Totals {
            seconds: (world.now() - self.now).as_seconds(),
            cpu_seconds: (world.cpu_time() - self.cpu).as_seconds(),
            ..self.sums
        }
    }
}

struct Daemon<'a> {
    world: &'a dyn World,
    config: Config,
    gate: Gate,
    budget: Budget,
    history: History,
    /// Whether there was a limit when last looked.
    limited: bool,
    /// Processes that were said to be left alone.
    told: BTreeSet<Key>,
    /// Start time and pid of the process whose huge page was split last: the next plan starts with
    /// the process after it.
    last_served: Option<(u64, Pid)>,
    /// Whether it was said that khugepaged may undo the work.
    warned: bool,
    /// Since the start, and since the stretch of work under way began.
    life: Since,
    stretch: Since,
    log: &'a mut dyn FnMut(&Line),
}

impl<'a> Daemon<'a> {
    fn new(world: &'a dyn World, config: Config, log: &'a mut dyn FnMut(&Line)) -> Self {
        let budget = Budget::new(config.cpu, world.now(), world.cpu_time());
        let since = Since::begin(world);
        Self {
            world,
            config,
            gate: Gate::new(),
            budget,
            history: History::default(),
            limited: true,
            told: BTreeSet::new(),
            last_served: None,
            warned: false,
            life: since,
            stretch: since,
            log,
        }
    }

    /// Looks, and does what is to be done. Returns the last look.
    fn step(&mut self) -> Result<Reading, ManagerError> {
        let seen = self.world.memory()?;
        if seen.is_limited() != self.limited {
            self.limited = seen.is_limited();
            self.say(&seen, Event::Limit { lifted: !self.limited });
        }
        let marks = self.config.marks();
        match self.gate.step(&marks, &seen, self.world.now()) {
            Step::Rest => return Ok(seen),
            Step::End => {
                self.say_idle(&seen);
                return Ok(seen);
            }
            Step::Begin(why) => {
                self.stretch = Since::begin(self.world);
                self.say(&seen, Event::Working { why });
            }
            Step::GoOn => {}
        }
        let seen = self.work(seen)?;
        // Work that reached its end is over, also when use has risen again by the next look.
        if marks.is_low(&seen) && self.gate.step(&marks, &seen, self.world.now()) == Step::End {
            self.say_idle(&seen);
        }
        Ok(seen)
    }

    /// Takes the new configuration, or says why not. Budget and history go on.
    fn reload(&mut self, seen: &Reading) {
        let read = self.world.reload().and_then(|config| {
            if config.cgroup == self.config.cgroup {
                Ok(config)
            } else {
                Err("cgroup cannot change while the daemon runs: stop it and start it again"
                    .to_owned())
            }
        });
        let refused = match read {
            Ok(config) => {
                self.budget.set_share(config.cpu);
                self.config = config;
                None
            }
            Err(why) => Some(why),
        };
        self.say(seen, Event::Reloaded { refused });
    }

    fn totals(&self) -> Totals {
        self.life.totals(self.world)
    }

    fn say_started(&mut self, seen: &Reading) {
        let scope = self.config.cgroup.as_ref();
        let started = Event::Started {
            scope: scope
                .map_or_else(|| "system".to_owned(), |path| path.to_string_lossy().into_owned()),
            order: self.config.order.name().to_owned(),
            interval_seconds: self.config.interval.as_seconds(),
            cpu_budget_ratio: self.config.cpu,
            cool_down_seconds: self.config.cool_down.as_seconds(),
            max_recollapses: self.config.max_recollapses,
        };
        self.say(seen, started);
    }

    fn say_idle(&mut self, seen: &Reading) {
        self.say(seen, Event::Idle(self.stretch.totals(self.world)));
    }

    fn say(&mut self, seen: &Reading, event: Event) {
        let config = &self.config;
        let seen = Seen {
            use_ratio: seen.use_ratio(),
            used_bytes: seen.used,
            limit_bytes: seen.limit,
            hard_limit_use_ratio: seen.hard_use,
            psi_some_ratio: seen.psi,
            high_ratio: config.high,
            low_ratio: config.low,
            critical_ratio: config.critical,
            psi_start_ratio: config.psi,
            dry_run: config.dry_run,
        };
        let unix_seconds = self.world.unix_seconds();
        (self.log)(&Line { schema: SCHEMA.to_owned(), unix_seconds, event, seen });
    }
}
