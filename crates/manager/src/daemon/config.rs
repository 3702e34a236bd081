//! Configuration of the daemon, with its defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hugepilot_policy::{DebloatPolicy, Fairness, Order, Priority};
use hugepilot_record::ProcessId;
use hugepilot_units::{Bytes, Nanos, Share};

use super::keys::ConfigError;
use crate::debloat::{is_called, priority};
use crate::names::can_match;
use hugepilot_policy::daemon::{CoolDown, Permission, Rule, Watermarks};

/// Largest reserve.
const MAX_RESERVE: Bytes = Bytes::gib(1);

/// The configuration. [`Config::default`] is sound, and [`Config::print`] explains every key.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Cgroup to watch and debloat; `None` for the whole system.
    pub cgroup: Option<PathBuf>,
    /// Memory use that starts work.
    pub high: Share,
    /// Memory use below which work ends.
    pub low: Share,
    /// Use of the hard limit from which the CPU budget may be exceeded.
    pub critical: Share,
    /// Memory pressure (PSI `some`, ten seconds) that starts work above `low` already.
    pub psi: Share,
    /// Interval between reads of memory use; shorter while it rises fast.
    pub interval: Nanos,
    /// CPU budget, as a share of one core.
    pub cpu: Share,
    /// Order of huge pages.
    pub order: Order,
    /// How processes share; `None`: by weight if there are weights, else by the order.
    pub fairness: Option<Fairness>,
    /// Huge pages of one process in a row; `None`: by the order.
    pub quantum: Option<usize>,
    /// Sampling time before each plan, for the order `heat`.
    pub observe: Nanos,
    /// Minimum bloat of a huge page to split; `None`: by the order, 0 % for `emd` and `hawkeye`
    /// (EMD, section 4.2), 5 % for `exact` and `heat`.
    pub min_bloat: Option<Share>,
    /// Minimum memory in huge pages of a process to debloat.
    pub min_huge: Bytes,
    /// Memory that the daemon keeps on huge pages of its own, to free it when a hot region lacks a
    /// huge page.
    pub reserve: Bytes,
    /// Pids or names of processes to exclude.
    pub protect: Vec<String>,
    /// Pids or names of processes to debloat first.
    pub prefer: Vec<String>,
    /// Weights of processes by pid or name; the default is 1.
    pub weight: BTreeMap<String, f64>,
    /// Rest of a region after a split or a promotion; doubles with each re-collapse. Rest of a
    /// process after it was tuned; doubles without a gain.
    pub cool_down: Nanos,
    /// Re-collapses after which a region is excluded.
    pub max_recollapses: u32,
    /// Whether to decide and log only, and change nothing.
    pub dry_run: bool,
    /// Rules by which processes are promoted; the first that matches a process decides. Without
    /// one, nothing is promoted.
    pub rules: Vec<Rule>,
    /// Whether to end after one pass.
    pub once: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cgroup: None,
            // EMD (ISMM'25), section 4.5.
            high: Share::percent(80.0),
            low: Share::percent(65.0),
            critical: Share::percent(92.0),
            psi: Share::percent(20.0),
            interval: Nanos::seconds(1),
            cpu: Share::percent(10.0),
            order: Order::Heat,
            fairness: None,
            quantum: None,
            observe: Nanos::seconds(3),
            min_bloat: None,
            min_huge: Bytes::mib(64),
            reserve: Bytes::ZERO,
            protect: Vec::new(),
            prefer: Vec::new(),
            weight: BTreeMap::new(),
            cool_down: Nanos::seconds(600),
            max_recollapses: 3,
            dry_run: false,
            rules: Vec::new(),
            once: false,
        }
    }
}

impl Config {
    pub(super) fn watermarks(&self) -> Watermarks {
        Watermarks { high: self.high, low: self.low, critical: self.critical, psi: self.psi }
    }

    /// Returns the number of rules that allow promotion.
    pub(super) fn allowed(&self) -> usize {
        self.rules.iter().filter(|rule| rule.promote == Permission::Allow).count()
    }

    pub(super) fn cool_down(&self) -> CoolDown {
        CoolDown { time: self.cool_down, max_recollapses: self.max_recollapses }
    }

    /// Returns the policy of a round of splits in `order`.
    pub fn policy(&self, order: Order) -> DebloatPolicy {
        let mut policy = DebloatPolicy::new(order);
        policy.min_bloat = self.min_bloat.unwrap_or(policy.min_bloat);
        let by_weight = (!self.weight.is_empty()).then_some(Fairness::Weight);
        policy.fairness = self.fairness.or(by_weight).unwrap_or(policy.fairness);
        policy.quantum = self.quantum.unwrap_or(policy.quantum);
        policy.cool_down = Some(self.cool_down());
        policy
    }

    pub(super) fn priority(&self, id: &ProcessId) -> Priority {
        priority(id, &self.protect, &self.prefer)
    }

    pub(super) fn weight_of(&self, id: &ProcessId) -> f64 {
        self.weight.iter().find(|(who, _)| is_called(id, who)).map_or(1.0, |(_, &weight)| weight)
    }

    /// Checks the values, alone and together.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let within = |key, ok: bool| if ok { Ok(()) } else { Err(ConfigError::of(self, key)) };
        let share = |share: Share, least: f64| (least..=1.0).contains(&share.get());
        let time = |time: Nanos, least: u64, most: u64| {
            (Nanos::millis(least)..=Nanos::seconds(most)).contains(&time)
        };
        // Of two keys that contradict each other, the error names the one that the user set.
        let default = Self::default();
        let set = |key, is_default: bool, other| if is_default { other } else { key };
        within("high", share(self.high, 0.01))?;
        within("low", share(self.low, 0.01))?;
        within(set("high", self.high == default.high, "low"), self.high > self.low)?;
        let critical = set("critical", self.critical == default.critical, "high");
        within(critical, self.critical >= self.high)?;
        within("psi", share(self.psi, 0.001))?;
        within("interval", time(self.interval, 50, 60))?;
        within("cpu", share(self.cpu, 0.01))?;
        within("observe", time(self.observe, 100, 60))?;
        within("cool_down", time(self.cool_down, 1000, 7 * 24 * 3600))?;
        within("max_recollapses", (1..=20).contains(&self.max_recollapses))?;
        within("reserve", self.reserve <= MAX_RESERVE)?;
        within("quantum", self.quantum.is_none_or(|quantum| quantum >= 1))?;
        within(
            "fairness",
            self.weight.is_empty()
                || self.fairness.is_none_or(|fairness| fairness == Fairness::Weight),
        )?;
        let names = |mut names: std::slice::Iter<'_, String>| names.all(|who| can_match(who));
        within("protect", names(self.protect.iter()))?;
        within("prefer", names(self.prefer.iter()))?;
        within("weight", self.weight.keys().all(|who| can_match(who)))?;
        within("weight", self.weight.values().all(|weight| weight.is_finite() && *weight > 0.0))?;
        let is_lost = |rule: &&Rule| !rule.command.as_deref().is_none_or(can_match);
        self.rules.iter().find(is_lost).map_or(Ok(()), |rule| Err(ConfigError::of_command(rule)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_bloat_is_that_of_the_order_unless_configured() {
        let of = |config: Config| config.policy(config.order).min_bloat;
        let emd = Config { order: Order::EMD, ..Config::default() };
        assert_eq!(of(emd.clone()), Share::percent(0.0));
        assert_eq!(of(Config::default()), Share::percent(5.0));
        assert_eq!(of(Config { min_bloat: Some(Share::percent(7.0)), ..emd }), Share::percent(7.0));
    }
}
