//! When to work and when to rest: the two watermarks, pressure, and the back-off where nothing is left to free. Pure.

use hugepilot_record::daemon::Why;
use hugepilot_units::{Bytes, Nanos, Share};

/// The first pause after work that freed nothing.
const FIRST_PAUSE: Nanos = Nanos::seconds(5);
/// The longest; each pause in vain is twice the one before.
const LONGEST_PAUSE: Nanos = Nanos::seconds(300);
/// A pause ends early when use rose by this much of the limit: then there is something new to look at, and it matters.
const RISE_THAT_WAKES: f64 = 0.02;
/// To free less than this part of what was wanted is not worth a look at all huge pages: pauses go on growing.
const WORTH_A_LOOK: f64 = 0.01;
/// Memory use is looked at no more often than this.
const SHORTEST_LOOK: Nanos = Nanos::millis(50);

/// Memory in use at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// In use, as far as it could not be had back without swapping or killing.
    pub used: Bytes,
    /// All there is; [`Bytes::MAX`] where nothing limits it.
    pub limit: Bytes,
    /// The part in use of the limit at which processes are killed, 0 to 1: `limit` may be one that only throttles them
    /// (`memory.high`).
    pub hard_use: f64,
    /// PSI `some` of the last ten seconds, 0 to 1; `None` where the kernel keeps none.
    pub psi: Option<f64>,
}

impl Reading {
    /// The part in use. Nothing is in use of no limit.
    pub fn use_ratio(&self) -> f64 {
        if self.is_limited() { self.used.ratio_of(self.limit) } else { 0.0 }
    }
    /// Whether there is anything to hold use against.
    pub fn is_limited(&self) -> bool {
        self.limit != Bytes::MAX
    }
}

/// The marks that use is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marks {
    /// Work begins here.
    pub high: Share,
    /// And ends below this.
    pub low: Share,
    /// From this use of the hard limit on time matters more than quiet: soon somebody is killed.
    pub critical: Share,
    /// From this much waiting on, work begins between `low` and `high` already.
    pub psi: Share,
}

impl Marks {
    /// Whether there is nothing to do any more.
    pub fn is_low(&self, seen: &Reading) -> bool {
        seen.use_ratio() < self.low.get()
    }
    /// Whether the CPU budget counts no more.
    pub fn is_critical(&self, seen: &Reading) -> bool {
        seen.hard_use >= self.critical.get()
    }
    /// Whether use will have come to the critical mark in `rest`, if it rises on as it did from `first` to `then` in `took`.
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
    fn start(&self, seen: &Reading) -> Option<Why> {
        if seen.use_ratio() >= self.high.get() {
            Some(Why::High)
        } else if seen.psi.is_some_and(|psi| psi >= self.psi.get()) && !self.is_low(seen) {
            Some(Why::Pressure)
        } else {
            None
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Resting,
    Working,
    /// Nothing is left to free. Look again at `until`, or when use rose much above `used`.
    Waiting {
        until: Nanos,
        used: Bytes,
    },
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Rest,
    /// A stretch of work begins.
    Begin(Why),
    /// It goes on.
    GoOn,
    /// It is over.
    End,
}

/// Where the daemon stands between the marks.
#[derive(Debug)]
pub(super) struct Gate {
    phase: Phase,
    /// The last pause; zero when the last work freed enough to be worth it.
    pause: Nanos,
    /// The last look: when, and what was in use.
    last: Option<(Nanos, Bytes)>,
}

impl Gate {
    pub(super) const fn new() -> Self {
        Self { phase: Phase::Resting, pause: Nanos::ZERO, last: None }
    }

    /// What to do about what is seen `now`.
    pub(super) fn step(&mut self, marks: &Marks, seen: &Reading, now: Nanos) -> Step {
        if self.phase == Phase::Resting {
            let Some(why) = marks.start(seen) else { return Step::Rest };
            self.phase = Phase::Working;
            return Step::Begin(why);
        }
        if marks.is_low(seen) {
            *self = Self { last: self.last, ..Self::new() };
            return Step::End;
        }
        if let Phase::Waiting { until, used } = self.phase {
            let rise = (seen.used - used).ratio_of(seen.limit);
            if now < until && rise < RISE_THAT_WAKES {
                return Step::Rest;
            }
            self.phase = Phase::Working;
        }
        Step::GoOn
    }

    /// There is nothing to free: rest, longer each time. Returns how long.
    pub(super) fn give_up(&mut self, seen: &Reading, now: Nanos) -> Nanos {
        let doubled = (self.pause + self.pause).max(FIRST_PAUSE);
        self.pause = doubled.min(LONGEST_PAUSE);
        self.phase = Phase::Waiting { until: now + self.pause, used: seen.used };
        self.pause
    }

    /// So much of what was wanted was freed: when that was worth it, the next pause is a short one again.
    pub(super) fn freed(&mut self, freed: Bytes, wanted: Bytes) {
        if freed > Bytes::ZERO && freed.as_f64() >= WORTH_A_LOOK * wanted.as_f64() {
            self.pause = Nanos::ZERO;
        }
    }

    /// Whether nothing worth it was freed since we last gave up.
    pub(super) fn gave_up(&self) -> bool {
        self.pause > Nanos::ZERO
    }

    /// How long until the next look: `interval`, or half the time in which use would reach the next mark if it rises on as it
    /// did since the last look.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn next_look(
        &mut self,
        marks: &Marks,
        seen: &Reading,
        now: Nanos,
        interval: Nanos,
    ) -> Nanos {
        let last = self.last.replace((now, seen.used));
        let Some((before, used)) = last else { return interval };
        let per_second = (seen.used - used).as_f64() / (now - before).as_seconds().max(1e-3);
        if per_second <= 0.0 || !seen.is_limited() {
            return interval;
        }
        let next = if seen.use_ratio() < marks.high.get() { marks.high } else { marks.critical };
        let left = (next.of(seen.limit) - seen.used).as_f64();
        let soon = Nanos::new((left / per_second / 2.0 * 1e9).min(1e18) as u64);
        soon.clamp(SHORTEST_LOOK.min(interval), interval)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marks() -> Marks {
        let [high, low, critical, psi] = [80.0, 65.0, 92.0, 20.0].map(Share::percent);
        Marks { high, low, critical, psi }
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
        use Step::{Begin, End, GoOn, Rest};
        let begin = Begin(Why::High);
        assert_eq!(steps, [Rest, Rest, begin, GoOn, GoOn, GoOn, End, Rest, Rest, begin, End]);
    }

    #[test]
    fn pressure_begins_work_above_low_only() {
        let pressed = |percent, psi| Reading { psi: Some(psi), ..reading(percent) };
        let step = |seen| Gate::new().step(&marks(), &seen, Nanos::ZERO);
        assert_eq!(step(pressed(70, 0.2)), Step::Begin(Why::Pressure));
        assert_eq!(step(pressed(70, 0.19)), Step::Rest);
        assert_eq!(step(pressed(64, 0.9)), Step::Rest);
        assert_eq!(step(pressed(80, 0.9)), Step::Begin(Why::High));
    }

    #[test]
    fn pauses_double_up_to_five_minutes_and_start_again_after_success() {
        let (mut gate, mut now, mut pauses) = (Gate::new(), Nanos::ZERO, Vec::new());
        assert_eq!(gate.step(&marks(), &reading(85), now), Step::Begin(Why::High));
        for _ in 0..8 {
            let pause = gate.give_up(&reading(85), now);
            pauses.push(pause.as_seconds());
            assert_eq!(gate.step(&marks(), &reading(85), now + pause - Nanos::new(1)), Step::Rest);
            now = now + pause;
            assert_eq!(gate.step(&marks(), &reading(85), now), Step::GoOn);
        }
        assert_eq!(pauses, [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]);
        gate.freed(Bytes::kib(19), Bytes::mib(2));
        assert_eq!(gate.give_up(&reading(85), now), Nanos::seconds(300), "less than 1 % of it");
        gate.freed(Bytes::kib(21), Bytes::mib(2));
        assert_eq!(gate.give_up(&reading(85), now), Nanos::seconds(5));
        gate.freed(Bytes::ZERO, Bytes::ZERO);
        assert!(gate.gave_up(), "nothing is nothing");
    }

    #[test]
    fn a_rise_ends_a_pause_and_low_ends_the_work() {
        let mut gate = Gate::new();
        gate.step(&marks(), &reading(85), Nanos::ZERO);
        gate.give_up(&reading(85), Nanos::ZERO);
        assert_eq!(gate.step(&marks(), &reading(86), Nanos::ZERO), Step::Rest);
        assert_eq!(gate.step(&marks(), &reading(87), Nanos::ZERO), Step::GoOn);
        gate.give_up(&reading(87), Nanos::ZERO);
        assert_eq!(gate.step(&marks(), &reading(64), Nanos::ZERO), Step::End);
        assert!(!gate.gave_up(), "a new stretch begins with a short pause");
    }

    #[test]
    fn the_faster_use_rises_the_sooner_the_next_look() {
        let interval = Nanos::seconds(1);
        let second = |first, then| {
            let mut gate = Gate::new();
            assert_eq!(gate.next_look(&marks(), &reading(first), Nanos::ZERO, interval), interval);
            gate.next_look(&marks(), &reading(then), interval, interval)
        };
        assert_eq!(second(50, 50), interval);
        assert_eq!(second(50, 51), interval, "29 seconds to go");
        assert_eq!(second(60, 70), Nanos::millis(500), "a second to go");
        assert_eq!(second(60, 79), Nanos::millis(50));
        assert_eq!(second(80, 86), Nanos::millis(500), "from high on to critical");
        assert_eq!(second(70, 60), interval);
    }

    #[test]
    fn what_comes_is_seen_before_it_is_there() {
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
        assert_eq!(Gate::new().step(&marks(), &endless, Nanos::ZERO), Step::Rest);
    }

    #[test]
    fn what_is_only_throttled_is_work_and_not_critical() {
        let throttled = |percent, hard_use| Reading { hard_use, ..reading(percent) };
        assert_eq!(
            Gate::new().step(&marks(), &throttled(99, 0.5), Nanos::ZERO),
            Step::Begin(Why::High)
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
        /// Whatever use does: no work is asked for below low, and none begins below high without pressure.
        #[test]
        fn never_below_low(used in prop::collection::vec((0_u64..=100, 0_u8..3), 1..200)) {
            let (mut gate, mut now) = (Gate::new(), Nanos::ZERO);
            for (percent, then) in used {
                let step = gate.step(&marks(), &reading(percent), now);
                prop_assert!(step != Step::GoOn || percent >= 65);
                prop_assert!(!matches!(step, Step::Begin(_)) || percent >= 80);
                if matches!(step, Step::GoOn | Step::Begin(_)) {
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
