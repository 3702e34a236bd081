//! Exchanges of random machines, by the heat that their world has.

use super::*;

/// Equally hot regions and a budget for a part of them, over ten horizons.
#[test]
fn equal_regions_never_change_places() {
    let (mut seed, mut watched) = (50_000_000, 0);
    while watched < 12 {
        let mut machine = Machine::new(seed);
        if machine.is_equal {
            machine.run();
            assert_eq!(machine.exchanged, 0, "seed {seed}");
            watched += u32::from(machine.changes.values().any(|one| one.times.len() == 1));
        }
        seed += 1;
    }
}

impl Machine {
    /// Regions are demoted for hotter ones only, by the heat that the world has. Where it moved
    /// since the samples began, they may mislead.
    pub(super) fn check_exchange(&mut self, round: &Round) {
        if self.goal.policy != Policy::Heat {
            return;
        }
        let (mut lost, mut others): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        for Row { seen, decision, .. } in &round.rows {
            let Some(program) = self.engine.world.programs.get(&seen.id.pid) else { return };
            let past = round.state.of(&seen.id);
            let is_watching =
                past.is_some_and(|past| matches!(past.phase, TunePhase::Watching { .. }));
            if !is_watching || seen.window.since < self.moved {
                return;
            }
            // Shares of the CPU time of a program that is on base pages.
            let saves = program.stalls * (1.0 - program.ratio) / program.work_time();
            for (region, heat) in (FIRST..).map(Region::new).zip(&program.heat) {
                let is_huge = seen.memory.is_huge(region);
                if decision.demote.contains(&region) {
                    lost.push(heat * saves);
                } else if !is_huge {
                    others.push(heat * saves);
                }
            }
        }
        others.sort_by(|a, b| b.total_cmp(a));
        let (seed, exchanged) = (self.seed, lost.len());
        self.exchanged += exchanged as u64;
        let (lost, won): (f64, f64) = (lost.iter().sum(), others.iter().take(exchanged).sum());
        assert!(exchanged == 0 || won > 1.2 * lost, "seed {seed}: {exchanged}, {lost} for {won}");
    }
}

/// Makes the regions of a program equally hot, with a budget for a part of them, for ten horizons.
pub(super) fn make_equal(program: &mut Program, goal: &mut TuneGoal, rng: &mut Rng) {
    let regions = program.heat.len();
    program.heat = vec![1.0 / regions as f64; regions];
    (program.ratio, program.is_sampled) = (0.2 + 0.75 * rng.unit(), true);
    program.stalls = 0.3 + 0.7 * rng.unit();
    for pages in program.target.pages.borrow_mut().values_mut() {
        pages.resident = 512;
    }
    goal.budget = Some(Amount::Share(Share::ratio(0.2 + 0.6 * rng.unit())));
    goal.horizon = Nanos::millis(1000 + rng.bits() % 4000);
    goal.observe = Nanos::millis(500 + rng.bits() % 500);
}
