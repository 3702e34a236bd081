//! Watermarks: when work starts and ends, and the back-off if nothing is left to free. Pure.

use hugepilot_reports::daemon::WorkCause;
use hugepilot_units::{Bytes, Nanos, Share};
use serde::{Deserialize, Serialize};

/// First pause after work that freed nothing.
const FIRST_PAUSE: Nanos = Nanos::seconds(5);
/// Longest pause; each one doubles until something is freed.
const LONGEST_PAUSE: Nanos = Nanos::seconds(300);
/// Rise of use, as a share of the limit, that ends a pause early: there is new memory to scan.
const RISE_THAT_WAKES: f64 = 0.02;
/// Share of the requested bytes below which freed bytes do not justify a scan: pauses keep growing.
const WORTH_A_SCAN: f64 = 0.01;
/// Shortest interval between reads of memory use.
const SHORTEST_INTERVAL: Nanos = Nanos::millis(50);

/// Memory use at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Memory that cannot be reclaimed without swapping or killing.
    pub used: Bytes,
    /// Memory of the system, or the limit of the cgroup; [`Bytes::MAX`] without a limit.
    pub limit: Bytes,
    /// Use of the limit at which processes are killed, 0 to 1. `limit` may only throttle them
    /// (`memory.high`).
    pub hard_use: f64,
    /// PSI `some` of the last ten seconds, 0 to 1; `None` without PSI.
    pub psi: Option<f64>,
}

impl Reading {
    /// Returns `used` relative to `limit`; 0 without a limit.
    pub fn use_ratio(&self) -> f64 {
        if self.is_limited() { self.used.ratio_of(self.limit) } else { 0.0 }
    }
    /// Whether memory is limited.
    pub fn is_limited(&self) -> bool {
        self.limit != Bytes::MAX
    }
}

/// Watermarks of memory use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watermarks {
    /// Use that starts work.
    pub high: Share,
    /// Use below which work ends.
    pub low: Share,
    /// Use of the hard limit from which the CPU budget is exceeded: the kernel is about to kill.
    pub critical: Share,
    /// Memory pressure that starts work between `low` and `high` already.
    pub psi: Share,
}

impl Watermarks {
    /// Whether use is below the low watermark.
    pub fn is_low(&self, reading: &Reading) -> bool {
        reading.use_ratio() < self.low.get()
    }
    /// Whether the CPU budget may be exceeded.
    pub fn is_critical(&self, reading: &Reading) -> bool {
        reading.hard_use >= self.critical.get()
    }
    /// Whether use reaches the critical watermark within `rest`, if it rises as from `first` to
    /// `then` in `took`.
    pub fn will_be_critical(
        &self,
        first: &Reading,
        then: &Reading,
        took: Nanos,
        rest: Nanos,
    ) -> bool {
        let per_second = (then.hard_use - first.hard_use).max(0.0) / took.as_seconds().max(1e-3);
        then.hard_use + per_second * rest.as_seconds() >= self.critical.get()
    }
    fn start(&self, reading: &Reading) -> Option<WorkCause> {
        if reading.use_ratio() >= self.high.get() {
            Some(WorkCause::High)
        } else if reading.psi.is_some_and(|psi| psi >= self.psi.get()) && !self.is_low(reading) {
            Some(WorkCause::Pressure)
        } else {
            None
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Resting,
    Working,
    /// Nothing is left to free. The next scan is at `until`, or if use rises well above `used`.
    BackingOff {
        until: Nanos,
        used: Bytes,
    },
}

/// Next step of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateStep {
    /// Rest.
    Rest,
    /// Start work.
    Begin(WorkCause),
    /// Continue work.
    GoOn,
    /// End work.
    End,
}

/// State of the daemon between the watermarks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    phase: Phase,
    /// Last pause; zero after work that freed enough.
    pause: Nanos,
    /// Time and use of the last reading.
    last: Option<(Nanos, Bytes)>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Returns the state before the first reading.
    pub const fn new() -> Self {
        Self { phase: Phase::Resting, pause: Nanos::ZERO, last: None }
    }

    /// Whether nothing is to be freed.
    pub fn is_resting(&self) -> bool {
        self.phase == Phase::Resting
    }

    /// Determines the next step from a reading at `now`.
    pub fn step(&mut self, marks: &Watermarks, reading: &Reading, now: Nanos) -> GateStep {
        if self.phase == Phase::Resting {
            let Some(cause) = marks.start(reading) else { return GateStep::Rest };
            self.phase = Phase::Working;
            return GateStep::Begin(cause);
        }
        if marks.is_low(reading) {
            *self = Self { last: self.last, ..Self::new() };
            return GateStep::End;
        }
        if let Phase::BackingOff { until, used } = self.phase {
            let rise = (reading.used - used).ratio_of(reading.limit);
            if now < until && rise < RISE_THAT_WAKES {
                return GateStep::Rest;
            }
            self.phase = Phase::Working;
        }
        GateStep::GoOn
    }

    /// Starts a pause because nothing is left to free, and returns its length.
    pub fn give_up(&mut self, reading: &Reading, now: Nanos) -> Nanos {
        let doubled = (self.pause + self.pause).max(FIRST_PAUSE);
        self.pause = doubled.min(LONGEST_PAUSE);
        self.phase = Phase::BackingOff { until: now + self.pause, used: reading.used };
        self.pause
    }

    /// Resets the pauses if enough of `wanted` was freed.
    pub fn freed(&mut self, freed: Bytes, wanted: Bytes) {
        if freed > Bytes::ZERO && freed.as_f64() >= WORTH_A_SCAN * wanted.as_f64() {
            self.pause = Nanos::ZERO;
        }
    }

    /// Whether too little was freed since the last pause.
    pub fn gave_up(&self) -> bool {
        self.pause > Nanos::ZERO
    }

    /// Returns the time until the next reading: `interval`, or half the time in which use would
    /// reach the next watermark at its current rise.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn next_reading(
        &mut self,
        marks: &Watermarks,
        reading: &Reading,
        now: Nanos,
        interval: Nanos,
    ) -> Nanos {
        let last = self.last.replace((now, reading.used));
        let Some((before, used)) = last else { return interval };
        let per_second = (reading.used - used).as_f64() / (now - before).as_seconds().max(1e-3);
        if per_second <= 0.0 || !reading.is_limited() {
            return interval;
        }
        let next = if reading.use_ratio() < marks.high.get() { marks.high } else { marks.critical };
        let left = (next.of(reading.limit) - reading.used).as_f64();
        let soon = Nanos::new((left / per_second / 2.0 * 1e9).min(1e18) as u64);
        soon.clamp(SHORTEST_INTERVAL.min(interval), interval)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marks() -> Watermarks {
        let [high, low, critical, psi] = [80.0, 65.0, 92.0, 20.0].map(Share::percent);
        Watermarks { high, low, critical, psi }
    }
    fn reading(percent: u64) -> Reading {
        let hard_use = Share::percent(percent as f64).get();
        Reading { used: Bytes::mib(percent), limit: Bytes::mib(100), hard_use, psi: None }
    }

    #[test]
    fn work_goes_on_from_high_to_below_low() {
        let mut gate = Gate::new();
        let used = [50, 79, 80, 79, 66, 65, 64, 70, 79, 85, 10];
        let steps = used.map(|percent| gate.step(&marks(), &reading(percent), Nanos::ZERO));
        use GateStep::{Begin, End, GoOn, Rest};
        let begin = Begin(WorkCause::High);
        assert_eq!(steps, [Rest, Rest, begin, GoOn, GoOn, GoOn, End, Rest, Rest, begin, End]);
    }

    #[test]
    fn pressure_begins_work_above_low_only() {
        let pressed = |percent, psi| Reading { psi: Some(psi), ..reading(percent) };
        let step = |reading| Gate::new().step(&marks(), &reading, Nanos::ZERO);
        assert_eq!(step(pressed(70, 0.2)), GateStep::Begin(WorkCause::Pressure));
        assert_eq!(step(pressed(70, 0.19)), GateStep::Rest);
        assert_eq!(step(pressed(64, 0.9)), GateStep::Rest);
        assert_eq!(step(pressed(80, 0.9)), GateStep::Begin(WorkCause::High));
    }

    #[test]
    fn pauses_double_up_to_five_minutes_and_start_again_after_success() {
        let (mut gate, mut now, mut pauses) = (Gate::new(), Nanos::ZERO, Vec::new());
        assert_eq!(gate.step(&marks(), &reading(85), now), GateStep::Begin(WorkCause::High));
        for _ in 0..8 {
            let pause = gate.give_up(&reading(85), now);
            pauses.push(pause.as_seconds());
            assert_eq!(
                gate.step(&marks(), &reading(85), now + pause - Nanos::new(1)),
                GateStep::Rest
            );
            now = now + pause;
            assert_eq!(gate.step(&marks(), &reading(85), now), GateStep::GoOn);
        }
        assert_eq!(pauses, [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]);
        gate.freed(Bytes::kib(19), Bytes::mib(2));
        assert_eq!(gate.give_up(&reading(85), now), Nanos::seconds(300), "less than 1 % of it");
        gate.freed(Bytes::kib(21), Bytes::mib(2));
        assert_eq!(gate.give_up(&reading(85), now), Nanos::seconds(5));
        gate.freed(Bytes::ZERO, Bytes::ZERO);
        assert!(gate.gave_up(), "0 of 0 bytes do not count");
    }

    #[test]
    fn a_rise_ends_a_pause_and_low_ends_the_work() {
        let mut gate = Gate::new();
        gate.step(&marks(), &reading(85), Nanos::ZERO);
        gate.give_up(&reading(85), Nanos::ZERO);
        assert_eq!(gate.step(&marks(), &reading(86), Nanos::ZERO), GateStep::Rest);
        assert_eq!(gate.step(&marks(), &reading(87), Nanos::ZERO), GateStep::GoOn);
        gate.give_up(&reading(87), Nanos::ZERO);
        assert_eq!(gate.step(&marks(), &reading(64), Nanos::ZERO), GateStep::End);
        assert!(!gate.gave_up(), "a new stretch begins with a short pause");
    }

    #[test]
    fn the_faster_use_rises_the_sooner_the_next_reading() {
        let interval = Nanos::seconds(1);
        let second = |first, then| {
            let mut gate = Gate::new();
            assert_eq!(
                gate.next_reading(&marks(), &reading(first), Nanos::ZERO, interval),
                interval
            );
            gate.next_reading(&marks(), &reading(then), interval, interval)
        };
        assert_eq!(second(50, 50), interval);
        assert_eq!(second(50, 51), interval, "29 seconds to go");
        assert_eq!(second(60, 70), Nanos::millis(500), "a second to go");
        assert_eq!(second(60, 79), Nanos::millis(50));
        assert_eq!(second(80, 86), Nanos::millis(500), "from high on to critical");
        assert_eq!(second(70, 60), interval);
    }

    #[test]
    fn critical_use_is_predicted() {
        let will = |first, then, rest| {
            let (took, rest) = (Nanos::seconds(1), Nanos::seconds(rest));
            marks().will_be_critical(&reading(first), &reading(then), took, rest)
        };
        assert!(will(80, 84, 3), "4 % a second");
        assert!(!will(80, 84, 1));
        assert!(!will(84, 80, 100) && !will(84, 84, 100));
        assert!(will(92, 92, 0), "it is");
    }

    #[test]
    fn no_limit_is_never_full() {
        let endless =
            Reading { used: Bytes::gib(1), limit: Bytes::MAX, hard_use: 0.0, psi: Some(1.0) };
        assert_eq!(Gate::new().step(&marks(), &endless, Nanos::ZERO), GateStep::Rest);
    }

    #[test]
    fn throttled_use_starts_work_and_is_not_critical() {
        let throttled = |percent, hard_use| Reading { hard_use, ..reading(percent) };
        assert_eq!(
            Gate::new().step(&marks(), &throttled(99, 0.5), Nanos::ZERO),
            GateStep::Begin(WorkCause::High)
        );
        assert!(
            !marks().is_critical(&throttled(99, 0.5)) && marks().is_critical(&throttled(50, 0.92))
        );
        let soon = |then| {
            marks().will_be_critical(
                &throttled(90, 0.5),
                &then,
                Nanos::seconds(1),
                Nanos::seconds(1),
            )
        };
        assert!(!soon(throttled(99, 0.5)) && soon(throttled(90, 0.75)));
    }

    proptest! {
        /// Whatever use does: no work below low, and none starts below high without pressure.
        #[test]
        fn never_below_low(used in prop::collection::vec((0_u64..=100, 0_u8..3), 1..200)) {
            let (mut gate, mut now) = (Gate::new(), Nanos::ZERO);
            for (percent, then) in used {
                let step = gate.step(&marks(), &reading(percent), now);
                prop_assert!(step != GateStep::GoOn || percent >= 65);
                prop_assert!(!matches!(step, GateStep::Begin(_)) || percent >= 80);
                if matches!(step, GateStep::GoOn | GateStep::Begin(_)) {
                    match then {
                        0 => drop(gate.give_up(&reading(percent), now)),
                        1 => gate.freed(Bytes::mib(1), Bytes::mib(1)),
                        _ => {}
                    }
                }
                now = now + Nanos::seconds(1);
            }
        }
    }
}
