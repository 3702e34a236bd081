//! Cost of `top`: when to look, how much to read, which processes to sample, and how fast.
//!
//! A look lists all processes. What that costs follows from their number, so the pause after it
//! does, too. Reads of huge pages and new samplers cost more, so each look does only as much of
//! them as the budget leaves. Pure: callers pass the times.

use std::cmp::Reverse;

use hugepilot_policy::daemon::CpuBudget;
use hugepilot_units::{Nanos, Share};

/// CPU budget that `top` keeps, as a share of one core. Savings of ten seconds come on top once,
/// and starting a sampler may overdraw it, so that any minute stays below 1 %.
const SHARE: f64 = 0.006;
/// Share that is advertised and tested.
pub const LIMIT: f64 = 0.01;
/// Share of the budget for lists of processes.
const LIST_PART: f64 = 0.5;
/// Share of the largest savings that starting a sampler requires.
const START_SAMPLER: f64 = 0.25;
/// Minimum of optional work in a look, so that it always proceeds.
const MIN_WORK: Nanos = Nanos::millis(1);
/// Own CPU time for one sample, measured: 10 to 20 µs.
const SAMPLE_COST_SECONDS: f64 = 20e-6;
/// Share of the budget for samples, if all CPUs run sampled programs.
const SAMPLING_PART: f64 = 0.5;
/// Limits on the sampling rate. Less gives no share in a minute; more gives no better one.
const RATES: (f64, f64) = (5.0, 100.0);
/// Processes that are sampled at once: ring buffers of more exceed the memory that users may lock.
pub const MAX_SAMPLED: usize = 4;
/// Samples after which another process takes the place of a sampled one.
pub const ENOUGH_SAMPLES: u64 = 400;
/// CPU use below which a process has too few stalls to matter.
pub const MIN_CPU: f64 = 0.01;

/// Account of the CPU time that looks cost.
#[derive(Debug)]
pub struct LookBudget {
    account: CpuBudget,
    /// Interval that the user wants.
    interval: Nanos,
}

impl LookBudget {
    /// Opens the account.
    pub fn new(interval: Nanos, now: Nanos, cpu: Nanos) -> Self {
        Self { account: CpuBudget::new(Share::ratio(SHARE), now, cpu), interval }
    }

    /// Returns the interval that the user wants.
    pub const fn interval(&self) -> Nanos {
        self.interval
    }

    /// Changes the interval.
    pub const fn set_interval(&mut self, interval: Nanos) {
        self.interval = interval;
    }

    /// Returns the pause after a look, of which listing the processes cost `list`: the interval, or
    /// longer until its cost is earned. Lists take at most half of the budget, so that samples get
    /// the rest.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn pause(&mut self, now: Nanos, cpu: Nanos, list: Nanos) -> Nanos {
        let earned = Nanos::new((list.as_seconds() / (SHARE * LIST_PART) * 1e9) as u64);
        self.account.pause(now, cpu).max(earned).max(self.interval)
    }

    /// Returns the CPU time for optional reads of this look: half of the savings that samplers do
    /// not need.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn work(&mut self, now: Nanos, cpu: Nanos) -> Nanos {
        self.account.pause(now, cpu);
        let saved = (self.account.saved() - START_SAMPLER).max(0.0);
        let seconds = saved * CpuBudget::saved_seconds(SHARE) / 2.0;
        Nanos::new((seconds * 1e9).round() as u64).max(MIN_WORK)
    }

    /// Whether another process may be sampled: its code must be read first, which costs
    /// milliseconds.
    pub fn may_start_sampler(&self) -> bool {
        self.account.saved() > START_SAMPLER
    }

    /// Whether samplers must end, because samples cost more than expected.
    pub fn must_stop_samplers(&self) -> bool {
        self.account.saved() < -1.0
    }

    /// Grants the largest savings, for a command that looks for a few seconds only.
    pub fn refill(&mut self) {
        self.account.refill();
    }

    /// Cancels the debt, for work that the user requested.
    pub fn forgive(&mut self) {
        self.account.forgive();
    }
}

/// Returns the samples per second of CPU time of each thread, which cost at most half of the budget
/// if `cpus` CPUs run sampled programs.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub fn sampling_rate(cpus: usize) -> u32 {
    let affordable = SHARE * SAMPLING_PART / SAMPLE_COST_SECONDS / cpus.max(1) as f64;
    affordable.clamp(RATES.0, RATES.1) as u32
}

/// Process that could be sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingCandidate {
    /// CPU time per elapsed time.
    pub cpu_ratio: f64,
    /// Recent samples.
    pub samples: u64,
    /// Whether it is sampled now.
    pub is_sampled: bool,
}

/// Selects candidates to sample, by index: those that use the most CPU time and have the fewest
/// samples. One that is sampled keeps its place until it has [`ENOUGH_SAMPLES`].
#[allow(clippy::cast_precision_loss)]
pub fn to_sample(candidates: &[SamplingCandidate]) -> Vec<usize> {
    let rank = |candidate: &SamplingCandidate| {
        let keeps = candidate.is_sampled && candidate.samples < ENOUGH_SAMPLES;
        let seen = candidate.samples as f64 / ENOUGH_SAMPLES as f64;
        let stay = if candidate.is_sampled { 1.2 } else { 1.0 };
        (keeps, candidate.cpu_ratio * stay / (1.0 + seen))
    };
    let busy = |index: &usize| candidates[*index].cpu_ratio >= MIN_CPU;
    let mut order: Vec<usize> = (0..candidates.len()).filter(busy).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (rank(&candidates[a]), rank(&candidates[b]));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    order.truncate(MAX_SAMPLED);
    order.sort_unstable();
    order
}

/// Orders processes whose huge pages are due to be read: never read first, then by age and size.
/// `age` counts looks since the last read, `None` if there was none.
pub fn read_order(processes: &[(Option<u64>, u64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by_key(|&index| {
        let (age, bytes) = processes[index];
        (age.is_some(), Reverse(age.unwrap_or(0).saturating_mul(bytes.max(1))), Reverse(bytes))
    });
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(cpu_ratio: f64, samples: u64, is_sampled: bool) -> SamplingCandidate {
        SamplingCandidate { cpu_ratio, samples, is_sampled }
    }

    #[test]
    fn the_pause_is_the_interval_until_looks_cost_more_than_the_share() {
        let (second, none) = (Nanos::seconds(1), Nanos::ZERO);
        let mut budget = LookBudget::new(Nanos::seconds(2), Nanos::ZERO, Nanos::ZERO);
        assert_eq!(budget.pause(second, Nanos::millis(8), none), Nanos::seconds(2));
        // 58 ms are left of 60: 52 ms more leave 6 ms, and 100 ms overdraw by 94 ms.
        assert_eq!(budget.pause(second, Nanos::millis(60), none), Nanos::seconds(2));
        let pause = budget.pause(second, Nanos::millis(160), none).as_seconds();
        assert!((pause - 94.0 / 6.0).abs() < 1e-6, "{pause}");
        assert!(budget.must_stop_samplers() && !budget.may_start_sampler());
        budget.forgive();
        assert_eq!(budget.pause(second, Nanos::millis(160), none), Nanos::seconds(2));
        assert!(!budget.may_start_sampler(), "no debt, no savings");
        budget.refill();
        assert!(budget.may_start_sampler());
        assert!(!budget.must_stop_samplers());
    }

    #[test]
    fn lists_of_many_processes_are_rare() {
        let mut budget = LookBudget::new(Nanos::seconds(2), Nanos::ZERO, Nanos::ZERO);
        let list = Nanos::millis(20);
        let pause = budget.pause(Nanos::ZERO, list, list).as_seconds();
        assert!((pause - 20.0 / 3.0).abs() < 1e-6, "20 ms are 0.3 % of 6.7 s: {pause}");
    }

    #[test]
    fn optional_work_leaves_what_a_sampler_needs_and_is_never_zero() {
        let mut budget = LookBudget::new(Nanos::seconds(2), Nanos::ZERO, Nanos::ZERO);
        assert_eq!(budget.work(Nanos::ZERO, Nanos::ZERO), Nanos::new(22_500_000));
        assert_eq!(budget.work(Nanos::ZERO, Nanos::millis(40)), Nanos::new(2_500_000));
        assert_eq!(budget.work(Nanos::ZERO, Nanos::millis(500)), Nanos::millis(1));
    }

    #[test]
    fn more_cpus_get_a_lower_rate() {
        // 0.3 % of a core are 150 samples of 20 us per second.
        assert_eq!([1, 2, 4, 8, 1000].map(sampling_rate), [100, 75, 37, 18, 5]);
    }

    #[test]
    fn busy_processes_with_few_samples_are_sampled() {
        let mut all = vec![candidate(0.9, 0, false); 3];
        all.push(candidate(0.001, 0, false));
        assert_eq!(to_sample(&all), [0, 1, 2], "an idle one is not");
        // The first three were sampled long enough, and others wait.
        let mut all = vec![candidate(1.0, 400, true); 3];
        all.extend(vec![candidate(0.9, 0, false); 2]);
        assert_eq!(to_sample(&all).len(), MAX_SAMPLED);
        assert!([3, 4].iter().all(|index| to_sample(&all).contains(index)));
        // One that has just begun stays.
        let begun = [
            candidate(0.02, 5, true),
            candidate(1.0, 0, false),
            candidate(1.0, 0, false),
            candidate(1.0, 0, false),
            candidate(1.0, 0, false),
        ];
        assert!(to_sample(&begun).contains(&0));
    }

    #[test]
    fn unread_processes_come_first_then_old_and_large_ones() {
        let processes = [(Some(1), 100), (None, 1), (Some(9), 50), (None, 7)];
        assert_eq!(read_order(&processes), [3, 1, 2, 0]);
    }

    proptest! {
        /// Whatever looks cost, a minute of them stays below the limit, but for the last one.
        #[test]
        fn any_minute_stays_below_the_limit(
            millis in prop::collection::vec(0_u64..200, 1..200), interval in 100_u64..5000,
        ) {
            let (mut now, mut cpu) = (Nanos::ZERO, Nanos::ZERO);
            let mut budget = LookBudget::new(Nanos::millis(interval), now, cpu);
            for cost in millis {
                now = now + budget.pause(now, cpu, Nanos::ZERO);
                let minutes = (now.as_seconds() / 60.0).max(1.0);
                prop_assert!(cpu.as_seconds() <= LIMIT * 60.0 * minutes + 1e-6);
                (now, cpu) = (now + Nanos::millis(cost), cpu + Nanos::millis(cost));
            }
        }
    }
}
