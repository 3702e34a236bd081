//! Daemon: promotes memory where that pays while memory is plentiful, and splits bloated huge pages
//! when it is short.
//!
//! It reads memory use. Above the high watermark it samples, takes the census and plans. Then it
//! splits until use is below the low watermark. Below the low watermark it tunes the processes that
//! the rules allow, a few at a time. Decisions are those of [`hugepilot_policy::daemon`] and of the
//! goals. [`System`] is its access to the machine, so tests control memory and time. It can be
//! killed at any moment: nothing then needs to be restored.

mod cgroups;
mod config;
mod facts;
mod forks;
mod keys;
mod machine;
mod promotion;
pub(crate) mod reserve;
mod scope;
#[cfg(test)]
pub(crate) mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{Forks, KernelError};
use hugepilot_policy::Calibration;
use hugepilot_policy::daemon::{
    Choice, CpuBudget, DaemonRound, Gate, GateStep, History, Key, ProcessFacts, Reading, Watermarks,
};
use hugepilot_policy::journal::JournalRound;
use hugepilot_policy::round::Goal;
use hugepilot_record::{Pid, ProcessId, RecollapseRisk};
use hugepilot_reports::daemon::{
    DaemonLine, Event, ExclusionCause, ExhaustedCause, MemoryUse, ReloadError, SCHEMA, Totals,
};
use hugepilot_units::{Bytes, Nanos};

use promotion::Promotion;
use scope::Scope;

use crate::sampling::NotSampled;
use crate::{ManagerError, engine};

pub use config::Config;
pub use facts::{FactsSource, MachineFacts};
pub use keys::ConfigError;
pub use machine::{Control, LiveSystem};

/// Request of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// No new request.
    Nothing,
    /// Read the configuration again; pending until [`System::reload`] is called.
    Reload,
    /// Stop; pending for ever.
    Stop,
}

/// Access of the daemon to the machine. [`LiveSystem`] is the real one; tests simulate one.
pub trait System {
    /// Some processes, sampled for the rounds of a tune.
    type Watched<'w>: engine::TuneWorld
    where
        Self: 'w;
    /// Some processes, for a round of splits.
    type Opened<'w>: engine::World
    where
        Self: 'w;
    /// Reads what rules need of each process with at least `min_resident` of resident memory.
    /// A process costs some ten microseconds, and more `with_cgroups`: otherwise, none is read.
    ///
    /// # Errors
    /// If processes cannot be listed.
    fn facts(
        &self,
        min_resident: Bytes,
        with_cgroups: bool,
    ) -> Result<Vec<ProcessFacts>, KernelError>;
    /// Reads what a process shows of its forks.
    fn forks(&self, process: &ProcessId) -> Forks;
    /// Returns the processes that forked lately, also those of which the child has ended.
    fn forked(&self) -> BTreeSet<Pid> {
        BTreeSet::new()
    }
    /// Starts to sample processes for the rounds of a tune. Also returns those that cannot be
    /// sampled. Those that ended are skipped.
    ///
    /// # Errors
    /// [`ManagerError::Sample`] if none can be sampled.
    fn watch(
        &self,
        processes: &[ProcessId],
    ) -> Result<(Self::Watched<'_>, Vec<NotSampled>), ManagerError>;
    /// Holds huge pages of up to this size for regions that will lack them, and frees what is more.
    fn keep_reserve(&self, _size: Bytes) {}
    /// Whether the facts that promotion needs are known. The first call begins to measure them, in
    /// another process that takes memory.
    fn is_calibrated(&self) -> bool;
    /// Ends that measurement: memory is short.
    fn stop_calibrating(&self);
    /// Returns the model of this machine.
    fn calibration(&self) -> Calibration;
    /// Returns the time of `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;
    /// Returns seconds since 1970, for the log.
    fn unix_seconds(&self) -> f64;
    /// Returns the CPU time of this process, all threads.
    fn cpu_time(&self) -> Nanos;
    /// Waits for `time`, or until there is a request.
    fn wait(&self, time: Nanos);
    /// Returns the pending request.
    fn asked(&self) -> ControlRequest;
    /// Reads the configuration again.
    ///
    /// # Errors
    /// [`ReloadError`] if the file cannot be read, or has an error.
    fn reload(&self) -> Result<Config, ReloadError>;
    /// Lists the cgroups with a limit of their own inside the scope of the daemon.
    fn limited_cgroups(&self) -> Vec<String> {
        Vec::new()
    }
    /// Makes a cgroup the object of [`System::memory`] and [`System::processes`]; the whole scope
    /// of the daemon if `None`.
    fn select(&self, _cgroup: Option<&str>) {}
    /// Reads memory use, in well under a millisecond.
    ///
    /// # Errors
    /// If the kernel does not report it.
    fn memory(&self) -> Result<Reading, KernelError>;
    /// Returns the cause for which no huge page of any process may be split now.
    fn forbidden(&self) -> Option<ExhaustedCause>;
    /// Lists processes that may have enough bloat, and excluded ones. `each` is called before every
    /// process and returns whether to continue. A process costs microseconds, or tens of
    /// milliseconds if it has much memory on base pages.
    ///
    /// # Errors
    /// If processes cannot be listed.
    fn processes(
        &self,
        config: &Config,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<ProcessList, KernelError>;
    /// Whether this process still runs.
    fn lives(&self, key: Key) -> bool;
    /// Opens processes for a round of splits, and starts to sample them if they are to be
    /// `sampled`. If there are too many, it samples the largest.
    ///
    /// # Errors
    /// [`ManagerError::Sample`] if none can be sampled.
    fn open(
        &self,
        processes: &[ProcessId],
        sampled: bool,
    ) -> Result<Self::Opened<'_>, ManagerError>;
    /// Reads the settings by which khugepaged re-collapses split regions; `None` if it does not.
    /// `advised`: whether the program requested huge pages there.
    fn recollapse_risk(&self, advised: bool) -> Option<RecollapseRisk>;
}

/// Processes of a scan.
#[derive(Default)]
pub struct ProcessList {
    /// Processes to debloat, in the order of their start.
    pub processes: Vec<ProcessId>,
    /// Excluded processes with their causes.
    pub excluded: Vec<(ProcessId, ExclusionCause)>,
}

/// Receives what the daemon does.
pub trait Log {
    /// Receives an event.
    fn line(&mut self, line: &DaemonLine);
    /// Receives processes before they are sampled, or their huge pages are read.
    fn sampled(&mut self, _processes: &[ProcessId]) {}
    /// Receives a round that is over, and its goal.
    fn round(&mut self, _goal: &Goal, _round: &JournalRound) {}
}

impl<F: FnMut(&DaemonLine)> Log for F {
    fn line(&mut self, line: &DaemonLine) {
        self(line);
    }
}

/// Watches and works until a request to stop. `log` receives every line.
///
/// # Errors
/// If memory use cannot be read, or processes cannot be listed.
pub fn daemon<S: System>(
    system: &S,
    config: Config,
    log: &mut dyn Log,
) -> Result<Totals, ManagerError> {
    let mut daemon = Daemon::new(system, config, log);
    let mut reading = system.memory()?;
    daemon.log_started(&reading);
    loop {
        match system.asked() {
            ControlRequest::Stop => break,
            ControlRequest::Reload => daemon.reload(&reading),
            ControlRequest::Nothing => {}
        }
        let (all, next) = daemon.pass()?;
        reading = all;
        if daemon.config.once && daemon.is_pass_done(&reading) {
            daemon.note_scarce(&reading);
            break;
        }
        daemon.promote(&reading, next);
        let left = next - system.now();
        if left > Nanos::ZERO && system.asked() == ControlRequest::Nothing {
            system.wait(left);
        }
    }
    daemon.end_work(&reading);
    let totals = daemon.totals();
    daemon.log(&reading, Event::Stopped(totals));
    Ok(totals)
}

/// Sums since a moment.
#[derive(Clone, Copy)]
struct Since {
    now: Nanos,
    cpu: Nanos,
    sums: Totals,
}

impl Since {
    fn begin(system: &impl System) -> Self {
        Self { now: system.now(), cpu: system.cpu_time(), sums: Totals::default() }
    }
    fn totals(&self, system: &impl System) -> Totals {
        Totals {
            seconds: (system.now() - self.now).as_seconds(),
            cpu_seconds: (system.cpu_time() - self.cpu).as_seconds(),
            ..self.sums
        }
    }
}

struct Daemon<'a, S: System> {
    system: &'a S,
    config: Config,
    /// Cgroup of the current step; `None` for the whole scope of the daemon.
    cgroup: Option<String>,
    /// Its state, and that of the others.
    scope: Scope,
    scopes: BTreeMap<Option<String>, Scope>,
    budget: CpuBudget,
    history: History,
    promotion: Promotion<'a, S>,
    /// Whether the last reading had a limit.
    limited: bool,
    /// Processes whose exclusion was logged.
    logged: BTreeSet<Key>,
    /// Whether the risk of re-collapse was logged.
    warned: bool,
    /// Sums since the start of the daemon.
    life: Since,
    log: &'a mut dyn Log,
}

impl<'a, S: System> Daemon<'a, S> {
    fn new(system: &'a S, config: Config, log: &'a mut dyn Log) -> Self {
        let budget = CpuBudget::new(config.cpu, system.now(), system.cpu_time());
        let since = Since::begin(system);
        Self {
            system,
            config,
            cgroup: None,
            scope: Scope::begin(since),
            scopes: BTreeMap::new(),
            budget,
            history: History::default(),
            promotion: Promotion::new(),
            limited: true,
            logged: BTreeSet::new(),
            warned: false,
            life: since,
            log,
        }
    }

    /// Reads memory use, and works if necessary. Returns the last reading.
    fn step(&mut self) -> Result<Reading, ManagerError> {
        let reading = self.system.memory()?;
        if self.cgroup.is_none() && reading.is_limited() != self.limited {
            self.limited = reading.is_limited();
            self.log(&reading, Event::Limit { lifted: !self.limited });
        }
        let marks = self.config.watermarks();
        match self.pass_gate(&marks, &reading) {
            GateStep::Rest => return Ok(reading),
            GateStep::End => {
                self.log_idle(&reading);
                return Ok(reading);
            }
            GateStep::Begin(cause) => {
                self.scope.stretch = Since::begin(self.system);
                // Promotions do not use up what splits need. Many cgroups do not lift the budget.
                if self.cgroup.is_none() {
                    self.budget.forgive();
                }
                self.log(&reading, Event::Working { cause });
            }
            GateStep::GoOn => {}
        }
        let reading = self.work(reading)?;
        // Completed work is over even if use rises again before the next reading.
        if marks.is_low(&reading) && self.pass_gate(&marks, &reading) == GateStep::End {
            self.log_idle(&reading);
        }
        Ok(reading)
    }

    /// Determines the next step. The journal has all but the rests.
    fn pass_gate(&mut self, marks: &Watermarks, reading: &Reading) -> GateStep {
        let (gate, now) = (self.scope.gate.clone(), self.system.now());
        let step = self.scope.gate.step(marks, reading, now);
        if step != GateStep::Rest {
            let (marks, reading, next) = (*marks, *reading, self.scope.gate.clone());
            let cgroup = self.cgroup.clone();
            self.log_choice(now, Choice::Step { cgroup, marks, reading, gate, step, next });
        }
        step
    }

    /// Adds a decision of the daemon to the journal.
    fn log_choice(&mut self, time: Nanos, choice: Choice) {
        let round = DaemonRound { time, choice };
        self.log.round(&Goal::Daemon, &JournalRound::Daemon(Box::new(round)));
    }

    /// Accepts the new configuration, or logs why not. Budget and history stay.
    fn reload(&mut self, reading: &Reading) {
        let read = self.system.reload().and_then(|config| {
            let same = config.cgroup == self.config.cgroup;
            if same { Ok(config) } else { Err(ReloadError::CgroupChanged) }
        });
        let error = match read {
            Ok(config) => {
                self.budget.set_share(config.cpu);
                if config.rules != self.config.rules || config.dry_run != self.config.dry_run {
                    self.end_work(reading);
                    self.promotion.change_rules(&self.config.rules, &config.rules);
                }
                self.config = config;
                self.forget_waiting();
                None
            }
            Err(error) => Some(error),
        };
        self.log(reading, Event::Reloaded { error });
    }

    /// Whether nothing is left to do in one pass: memory is not short, or nothing more can be
    /// freed; and each process in turn was tuned.
    fn is_pass_done(&self, reading: &Reading) -> bool {
        let is_freed = |gate: &Gate| gate.is_resting() || gate.gave_up();
        let is_freed =
            is_freed(&self.scope.gate) && self.scopes.values().all(|scope| is_freed(&scope.gate));
        is_freed && (!self.may_promote(reading) || self.promotion.is_pass_done())
    }

    fn totals(&self) -> Totals {
        self.life.totals(self.system)
    }

    fn log_started(&mut self, reading: &Reading) {
        let scope = self.config.cgroup.as_ref();
        let started = Event::Started {
            scope: scope
                .map_or_else(|| "system".to_owned(), |path| path.to_string_lossy().into_owned()),
            order: self.config.order.name().to_owned(),
            interval_seconds: self.config.interval.as_seconds(),
            cpu_budget_ratio: self.config.cpu,
            cool_down_seconds: self.config.cool_down.as_seconds(),
            max_recollapses: self.config.max_recollapses,
            promotion_rules: self.config.allowed() as u64,
        };
        self.log(reading, started);
    }

    fn log_idle(&mut self, reading: &Reading) {
        self.log(reading, Event::Idle(self.scope.stretch.totals(self.system)));
    }

    fn log(&mut self, reading: &Reading, event: Event) {
        let config = &self.config;
        let memory = MemoryUse {
            use_ratio: reading.use_ratio(),
            used_bytes: reading.used,
            limit_bytes: reading.limit,
            hard_limit_use_ratio: reading.hard_use,
            psi_some_ratio: reading.psi,
            high_ratio: config.high,
            low_ratio: config.low,
            critical_ratio: config.critical,
            psi_start_ratio: config.psi,
            dry_run: config.dry_run,
        };
        let unix_seconds = self.system.unix_seconds();
        let cgroup = self.cgroup.as_ref().map(|name| printable(name.as_bytes()));
        self.log.line(&DaemonLine {
            schema: SCHEMA.to_owned(),
            unix_seconds,
            cgroup,
            event,
            memory,
        });
    }
}
