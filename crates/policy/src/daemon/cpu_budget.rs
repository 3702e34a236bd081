//! CPU budget: a share of one core, with savings for a quick start. Pure: callers pass the times.

use hugepilot_units::{Nanos, Share};

/// Seconds of unused budget that are saved: ten idle seconds at 10 % allow one second of CPU time.
const SAVED_FOR: f64 = 10.0;

/// Account of CPU time. Over any time, CPU time stays within its share plus earlier savings.
#[derive(Debug)]
pub struct CpuBudget {
    share: f64,
    /// CPU seconds that may be spent now; negative if overdrawn.
    left: f64,
    /// Time and CPU time of the last call.
    last: (Nanos, Nanos),
}

impl CpuBudget {
    /// Opens the account with full savings.
    pub fn new(share: Share, now: Nanos, cpu: Nanos) -> Self {
        Self { share: share.get(), left: share.get() * SAVED_FOR, last: (now, cpu) }
    }

    /// Changes the share. Savings and debts stay, up to the savings that the new share permits.
    pub fn set_share(&mut self, share: Share) {
        self.share = share.get();
        self.left = self.left.min(self.share * SAVED_FOR);
    }

    /// Returns the pause before more work; zero if there is budget.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn pause(&mut self, now: Nanos, cpu: Nanos) -> Nanos {
        let (time, spent) = ((now - self.last.0).as_seconds(), (cpu - self.last.1).as_seconds());
        self.last = (now, cpu);
        self.left = (self.left + time * self.share - spent).min(self.share * SAVED_FOR);
        if self.left >= 0.0 {
            return Nanos::ZERO;
        }
        Nanos::new((-self.left / self.share * 1e9).min(1e18).ceil() as u64)
    }

    /// Returns the largest savings of an account with this share, in CPU seconds.
    pub const fn saved_seconds(share: f64) -> f64 {
        share * SAVED_FOR
    }

    /// Returns the saved share of the largest possible savings, at the last call of
    /// [`Self::pause`]; negative if overdrawn.
    pub fn saved(&self) -> f64 {
        self.left / (self.share * SAVED_FOR)
    }

    /// Grants the largest savings.
    pub const fn refill(&mut self) {
        self.left = self.share * SAVED_FOR;
    }

    /// Cancels the debt, because the time was needed.
    pub fn forgive(&mut self) {
        self.left = self.left.max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Nanos = Nanos::seconds(1);

    #[test]
    fn savings_are_spent_first_and_then_the_share_holds() {
        let mut budget = CpuBudget::new(Share::percent(10.0), Nanos::ZERO, Nanos::ZERO);
        assert_eq!(budget.pause(Nanos::ZERO, SECOND), Nanos::ZERO, "a second is saved");
        let pause = budget.pause(Nanos::ZERO, SECOND + Nanos::millis(10));
        assert!((pause.as_seconds() - 0.1).abs() < 1e-6, "10 ms take 100 ms to earn: {pause}");
        assert_eq!(budget.pause(pause + Nanos::new(1000), SECOND + Nanos::millis(10)), Nanos::ZERO);
    }

    #[test]
    fn a_forgiven_debt_causes_no_pause() {
        let mut budget = CpuBudget::new(Share::percent(10.0), Nanos::ZERO, Nanos::ZERO);
        assert!(budget.pause(Nanos::ZERO, Nanos::seconds(5)) > Nanos::seconds(30));
        budget.forgive();
        assert_eq!(budget.pause(Nanos::ZERO, Nanos::seconds(5)), Nanos::ZERO);
    }

    #[test]
    fn a_smaller_share_saves_less_and_debts_stay() {
        let mut budget = CpuBudget::new(Share::percent(10.0), Nanos::ZERO, Nanos::ZERO);
        budget.set_share(Share::percent(1.0));
        let pause = budget.pause(Nanos::ZERO, Nanos::millis(200));
        assert!((pause.as_seconds() - 10.0).abs() < 0.01, "0.1 s was left of the saving: {pause}");
    }

    proptest! {
        /// With the returned pauses, CPU time stays within share, savings and one piece.
        #[test]
        fn the_share_is_kept(
            percent in 1.0..50.0_f64,
            pieces in prop::collection::vec((1_u64..50, 0_u64..200), 1..300),
        ) {
            let share = Share::percent(percent);
            let (mut now, mut cpu) = (Nanos::ZERO, Nanos::ZERO);
            let mut budget = CpuBudget::new(share, now, cpu);
            for (work, idle) in pieces {
                now = now + budget.pause(now, cpu) + Nanos::millis(idle);
                (now, cpu) = (now + Nanos::millis(work), cpu + Nanos::millis(work));
                let allowed = share.get() * (now.as_seconds() + SAVED_FOR) + 0.05;
                let spent = cpu.as_seconds();
                prop_assert!(spent <= allowed + 1e-6, "{spent} of {allowed}");
            }
        }
    }
}
