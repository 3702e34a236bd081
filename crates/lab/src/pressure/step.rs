//! Decision of the closed loop: hold a step more, release one, or neither. Pure.

use hugepilot_units::Bytes;

/// Step in which memory is held and released. Steps of 64 MiB take 0.1 s at most, and release as
/// fast as larger ones (measured on Linux 6.18).
pub const STEP: Bytes = Bytes::mib(64);
/// Available memory below which a step is released in any case: a program may use more than was
/// left to it.
pub const DANGER: Bytes = Bytes::mib(256);

/// Requested level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Memory to leave.
    pub leave: Bytes,
}

impl Level {
    /// Whether the level holds: within a step of the request.
    pub fn is_reached(self, left: Bytes) -> bool {
        left + half_step() >= self.leave && left < self.leave + STEP
    }
}

fn half_step() -> Bytes {
    Bytes::new(STEP.get() / 2)
}

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Memory that is left, that of the program included.
    pub left: Bytes,
    /// Available memory of the machine.
    pub available: Bytes,
    /// Memory that is held.
    pub held: Bytes,
    /// Memory that the limits of this process leave to it.
    pub room: Bytes,
    /// Whether processes stall on memory.
    pub is_stalling: bool,
    /// Whether they have not for some seconds.
    pub is_calm: bool,
}

/// Next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Hold a step more.
    Take,
    /// Release a step.
    Release,
    /// Keep what is held.
    Hold,
}

/// Decides the next action. It releases at the first stall, and when more than half a step less
/// than requested is left; it takes while at least a step too much is left. So it never alternates
/// by itself.
pub fn step(level: Level, seen: Observation) -> Act {
    let is_short = seen.left + half_step() < level.leave || seen.available < DANGER;
    let is_held = seen.held >= STEP;
    if (seen.is_stalling || is_short) && is_held {
        return Act::Release;
    }
    let has_room = seen.room >= STEP && seen.available >= DANGER + STEP + STEP;
    if !seen.is_stalling && seen.is_calm && has_room && seen.left >= level.leave + STEP {
        return Act::Take;
    }
    Act::Hold
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEVEL: Level = Level { leave: Bytes::gib(2) };

    fn seen(left: u64, held: u64) -> Observation {
        Observation {
            left: Bytes::mib(left),
            available: Bytes::mib(left),
            held: Bytes::mib(held),
            room: Bytes::MAX,
            is_stalling: false,
            is_calm: true,
        }
    }

    #[test]
    fn decisions_by_what_is_left() {
        let usual = |left, held| step(LEVEL, seen(left, held));
        assert_eq!(usual(2112, 0), Act::Take, "a whole step too much");
        assert_eq!(usual(2111, 0), Act::Hold, "less than a step");
        assert_eq!(usual(2016, 640), Act::Hold, "half a step too little");
        assert_eq!(usual(2015, 640), Act::Release);
        assert_eq!(usual(2015, 0), Act::Hold, "nothing to release");
    }

    #[test]
    fn stalls_danger_and_own_limits_come_first() {
        let with = |change: &dyn Fn(&mut Observation)| {
            let mut observation = seen(4096, 640);
            change(&mut observation);
            step(LEVEL, observation)
        };
        assert_eq!(with(&|_| ()), Act::Take);
        assert_eq!(with(&|seen| seen.is_stalling = true), Act::Release);
        assert_eq!(with(&|seen| seen.is_calm = false), Act::Hold);
        assert_eq!(with(&|seen| seen.room = Bytes::mib(63)), Act::Hold);
        // A program uses most of what is left to it.
        assert_eq!(with(&|seen| seen.available = Bytes::mib(383)), Act::Hold);
        assert_eq!(with(&|seen| seen.available = Bytes::mib(255)), Act::Release);
    }

    /// Machine of 8 GiB on which others change by at most a step between two decisions.
    struct Machine {
        others: u64,
        held: u64,
    }

    impl Machine {
        const TOTAL: u64 = 8192;

        fn decide(&mut self, is_stalling: bool) -> Act {
            let left = Self::TOTAL - self.others - self.held;
            let act = step(LEVEL, Observation { is_stalling, ..seen(left, self.held) });
            match act {
                Act::Take => self.held += 64,
                Act::Release => self.held -= 64,
                Act::Hold => {}
            }
            act
        }
    }

    proptest! {
        #[test]
        fn the_level_is_reached_and_kept(
            changes in prop::collection::vec((-64_i64..=64, prop::bool::weighted(0.05)), 0..300),
            others in 0_u64..6000,
        ) {
            let mut machine = Machine { others, held: 0 };
            for (change, is_stalling) in changes {
                machine.others = machine.others.saturating_add_signed(change).min(6100);
                machine.decide(is_stalling);
                let left = Machine::TOTAL - machine.others - machine.held;
                // Never far below the level, unless others use it.
                prop_assert!(left + 64 + 32 >= 2048 || machine.held == 0, "{left}");
            }
            // At rest it converges, then stays.
            let acts: Vec<Act> = (0..150).map(|_| machine.decide(false)).collect();
            prop_assert_eq!(acts.last(), Some(&Act::Hold));
            let at_rest = acts.iter().skip_while(|&&act| act != Act::Hold);
            prop_assert_eq!(at_rest.filter(|&&act| act != Act::Hold).count(), 0);
            let left = Bytes::mib(Machine::TOTAL - machine.others - machine.held);
            prop_assert!(LEVEL.is_reached(left) || machine.held == 0, "{}", left);
        }
    }
}
