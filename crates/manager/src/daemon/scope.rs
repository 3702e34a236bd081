//! Scopes: all that the daemon watches together, and each cgroup with a limit of its own.

use hugepilot_policy::daemon::{Gate, Reading};
use hugepilot_record::Pid;
use hugepilot_units::Nanos;

use super::{Daemon, Since, System};
use crate::ManagerError;

/// State of the work in one cgroup, or in the whole scope of the daemon.
pub(super) struct Scope {
    pub(super) gate: Gate,
    /// Sums since work started.
    pub(super) stretch: Since,
    /// Start time and pid of the process whose huge page was split last: the next plan starts with
    /// the process after it.
    pub(super) last_served: Option<(u64, Pid)>,
    /// Time of the next reading.
    due: Nanos,
}

impl Scope {
    pub(super) const fn begin(stretch: Since) -> Self {
        Self { gate: Gate::new(), stretch, last_served: None, due: Nanos::ZERO }
    }
}

impl<S: System> Daemon<'_, S> {
    /// Takes a step for the whole scope, then for each cgroup with a limit whose reading is due.
    /// Returns the last reading of the whole scope, and the time of the next pass.
    pub(super) fn pass(&mut self) -> Result<(Reading, Nanos), ManagerError> {
        let reading = self.timed_step()?;
        let mut next = self.scope.due;
        let cgroups = self.system.limited_cgroups();
        self.scopes.retain(|cgroup, _| cgroup.as_ref().is_none_or(|name| cgroups.contains(name)));
        for cgroup in cgroups {
            self.select(Some(cgroup));
            if self.scope.due <= self.system.now() {
                self.timed_step()?;
            }
            next = next.min(self.scope.due);
        }
        self.select(None);
        Ok((reading, next))
    }

    /// Takes a step, and determines the time of the next one.
    fn timed_step(&mut self) -> Result<Reading, ManagerError> {
        let reading = self.step()?;
        let (marks, now, interval) =
            (self.config.watermarks(), self.system.now(), self.config.interval);
        self.scope.due = now + self.scope.gate.next_reading(&marks, &reading, now, interval);
        Ok(reading)
    }

    /// Makes a cgroup, or the whole scope, the object of the next step.
    fn select(&mut self, cgroup: Option<String>) {
        if self.cgroup != cgroup {
            let new = self.scopes.remove(&cgroup);
            let new = new.unwrap_or_else(|| Scope::begin(Since::begin(self.system)));
            let before = std::mem::replace(&mut self.scope, new);
            self.scopes.insert(std::mem::replace(&mut self.cgroup, cgroup), before);
            self.system.select(self.cgroup.as_deref());
        }
    }

    /// Ends promotions, of which the whole scope is the object: processes are about to be split.
    pub(super) fn end_promotions(&mut self) -> Result<(), ManagerError> {
        let cgroup = self.cgroup.clone();
        self.select(None);
        let reading = self.system.memory()?;
        self.end_work(&reading);
        self.select(cgroup);
        Ok(())
    }
}
