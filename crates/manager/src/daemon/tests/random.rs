//! Random machines on which the daemon promotes and splits: no region flaps between both, and each
//! decision is made again from its round.

use hugepilot_policy::daemon::Rule;
use hugepilot_policy::debloat::round::SplitRow;
use hugepilot_policy::explain::{Explainer, Shown};
use hugepilot_policy::round::{Row, is_split};
use hugepilot_record::ActOutcome;
use hugepilot_testkit::Rng;

use super::promotion::{allowing, bloated_program, machine};
use super::*;
use crate::engine::tests::number;
use crate::engine::tests::world::FIRST;

/// Rounds that the test runs at least, unless `HUGEPILOT_ROUNDS` has another number.
const ROUNDS: u64 = 200;
const COOL_DOWN: Nanos = Nanos::seconds(60);

#[test]
fn no_region_flaps_between_promotions_and_splits() {
    let wanted = number("HUGEPILOT_ROUNDS").unwrap_or(ROUNDS);
    let first = number("HUGEPILOT_SEED").unwrap_or(0);
    let (mut rounds, mut seed, mut made) = (0, first, [0; 3]);
    while rounds < wanted {
        let mut checked = Checked::new(seed);
        let (sim, config) = random_machine(seed);
        daemon(&sim, config, &mut checked).unwrap();
        let report = checked.explainer.finish(0);
        assert!(report.is_reproduced(), "seed {seed}: rounds {:?}", report.differing_rounds);
        rounds += report.rounds;
        for (sum, count) in made.iter_mut().zip(checked.made) {
            *sum += count;
        }
        seed += 1;
    }
    eprintln!("{rounds} rounds of {} machines, changes {made:?}", seed - first);
    assert!(made.iter().all(|&count| count > 0), "{made:?}");
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Promoted,
    Demoted,
    Split,
}

/// Checks each change of a region against the last one.
struct Checked {
    seed: u64,
    explainer: Explainer,
    last: BTreeMap<(Pid, Region), (Nanos, Change)>,
    made: [u64; 3],
}

impl Checked {
    fn new(seed: u64) -> Self {
        let shown = Shown { round: Some(0), regions: None };
        let explainer = Explainer::new(shown, None);
        Self { seed, explainer, last: BTreeMap::new(), made: [0; 3] }
    }

    /// Only a trial takes a region back that was promoted within the cool-down.
    fn note(&mut self, pid: Pid, region: Region, at: Nanos, change: Change) {
        self.made[change as usize] += 1;
        let Some((before, last)) = self.last.insert((pid, region), (at, change)) else { return };
        let is_taken_back = (last, change) == (Change::Promoted, Change::Demoted);
        let (seed, gap) = (self.seed, at - before);
        let is_calm = is_taken_back || gap >= COOL_DOWN;
        assert!(is_calm, "seed {seed}: {pid} {region:?}: {last:?}, {gap} later {change:?}");
    }
}

impl Log for Checked {
    fn line(&mut self, _: &DaemonLine) {}

    fn round(&mut self, goal: &Goal, round: &JournalRound) {
        self.explainer.add(goal, round);
        match round {
            JournalRound::Tune(round) => {
                for Row { decision, outcome, .. } in &round.rows {
                    let (pid, at) = (decision.process.pid, outcome.begun.unwrap_or_default());
                    let acts = outcome.attempts.acts.iter();
                    for act in acts.filter(|act| act.outcome == ActOutcome::Verified) {
                        self.note(pid, act.region, at, Change::Promoted);
                    }
                    for act in outcome.demotions.iter().filter(|act| is_split(act)) {
                        self.note(pid, act.region, at, Change::Demoted);
                    }
                }
            }
            JournalRound::Debloat(round) => {
                for SplitRow { seen, outcome: outcomes } in &round.rows {
                    for act in outcomes.acts.iter().filter(|act| is_split(act)) {
                        self.note(seen.census.process.pid, act.region, round.time, Change::Split);
                    }
                }
            }
            JournalRound::Daemon(_) => {}
        }
    }
}

/// Machine with up to three programs that may be promoted, beside others whose memory use changes
/// in steps.
fn random_machine(seed: u64) -> (Sim, Config) {
    let mut rng = Rng::new(seed);
    let programs: Vec<_> = (0..1 + rng.bits() % 3)
        .map(|pid| {
            let (regions, zeros) = (40 + rng.bits() % 60, rng.bits() % 500);
            let (target, _) = bloated_program(1 + pid as i32, regions, zeros);
            target.script.borrow_mut().extend((0..300).map(|_| match rng.bits() % 30 {
                0 => Script::Fail(Errno::EAGAIN),
                1 => Script::FakeSuccess,
                2 => Script::Slow(Nanos::millis(rng.bits() % 60)),
                _ => Script::Succeed,
            }));
            (target, 0.4 + 0.7 * rng.unit())
        })
        .collect();
    let uses: Vec<f64> =
        (0..20).map(|_| [50.0, 300.0, 600.0, 800.0][(rng.bits() % 4) as usize]).collect();
    let mut sim = machine(programs, move |second| uses[(second / 40.0) as usize % uses.len()]);
    sim.fakes = sim.programs.iter().map(|(target, _)| Rc::clone(target)).collect();
    sim.seconds = 600;
    let rng = RefCell::new(rng.clone());
    sim.meanwhile = Box::new(move |sim| disturb(sim, &mut rng.borrow_mut()));
    (sim, Config { cool_down: COOL_DOWN, ..allowing(Rule::default()) })
}

/// khugepaged collapses a region again, or the program touches one.
fn disturb(sim: &Sim, rng: &mut Rng) {
    let fake = &sim.fakes[rng.bits() as usize % sim.fakes.len()];
    let region = Region::new(FIRST + rng.bits() % fake.pages.borrow().len() as u64);
    match rng.bits() % 8 {
        0 => fake.make_huge_again(region, rng.bits() % 500),
        1 => {
            let mut pages = fake.pages.borrow_mut();
            pages.entry(region).and_modify(|pages| pages.resident = 512);
        }
        _ => {}
    }
}
