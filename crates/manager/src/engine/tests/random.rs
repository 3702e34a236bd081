//! Random machines: no limit is broken, no region flaps, equal regions never change places, and
//! each decision is made again from its line of a journal.

mod exchange;

use hugepilot_policy::Ledger;
use hugepilot_policy::tune::TunePhase;
use hugepilot_record::schedule::ScheduleAction;
use hugepilot_record::{PolicyName, Pressure};
use hugepilot_reports::tune::RegionState;

use exchange::make_equal;

use super::*;

/// Rounds that the test runs at least, unless `HUGEPILOT_ROUNDS` has another number.
const ROUNDS: u64 = 1500;

/// Programs of every kind under every policy, with failures, deaths and changes of phase. The seeds
/// are those from `HUGEPILOT_SEED` on.
#[test]
fn random_programs_break_no_limit_and_decisions_are_reproducible() {
    let wanted = number("HUGEPILOT_ROUNDS").unwrap_or(ROUNDS);
    let first = number("HUGEPILOT_SEED").unwrap_or(0);
    let (mut rounds, mut seed, mut made, mut exchanged, mut compared) = (0, first, 0, 0, 0);
    while rounds < wanted {
        let mut machine = Machine::new(seed);
        rounds += machine.run();
        made += machine.changes.values().map(|changes| changes.times.len()).sum::<usize>();
        exchanged += machine.exchanged;
        compared += machine.compared;
        seed += 1;
    }
    let machines = seed - first;
    eprintln!("{rounds} rounds of {machines} machines, {made} changes, {exchanged} exchanges");
    assert!(compared > rounds, "{compared} fates were compared");
}

/// In both machines, a region lost its huge page before `pcc` demoted it, and was promoted again
/// too soon.
#[test]
fn machines_that_once_broke_a_promise_keep_it() {
    for seed in [30_000_678, 40_001_585] {
        Machine::new(seed).run();
    }
}

/// Tries and changes of a region.
#[derive(Debug, Default)]
struct Changes {
    failures: u32,
    times: Vec<Nanos>,
    promoted: Nanos,
    demotions: u32,
}

impl Changes {
    /// Notes a demotion. After each one, the next promotion stays twice as long; returns the least
    /// time.
    fn demote(&mut self, now: Nanos, horizon: Nanos) -> Nanos {
        self.times.push(now);
        self.demotions += 1;
        Nanos::new(horizon.get() << (self.demotions - 1).min(6))
    }
}

/// A machine with random programs, and what happened to its regions.
struct Machine {
    seed: u64,
    rng: Rng,
    goal: TuneGoal,
    engine: Engine<Simulated>,
    changes: BTreeMap<(Pid, Region), Changes>,
    /// Lazily freed pages of each region before the round.
    lazily_freed: BTreeMap<(Pid, Region), u64>,
    /// Lazily freed memory that the promotions of a process took from the kernel.
    taken: BTreeMap<Pid, Bytes>,
    /// Fate of each region, by process, and the time at which its memory was last read.
    ledgers: BTreeMap<Pid, (Nanos, Ledger)>,
    /// Regions whose fate was compared with the pagemap.
    compared: u64,
    /// Whether all regions of a program are equally hot, and a budget is for a part of them.
    is_equal: bool,
    /// Last time at which hot memory moved.
    moved: Nanos,
    /// Demotions for hotter regions.
    exchanged: u64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = 1 + i32::try_from(rng.bits() % 3).unwrap();
        let mut programs: Vec<Program> =
            (1..=count).map(|pid| random_program(pid, &mut rng)).collect();
        let mut goal = random_goal(seed, &mut rng);
        let is_equal = goal.policy == Policy::Heat && (seed / 16).is_multiple_of(2);
        if is_equal {
            programs.truncate(1);
            make_equal(&mut programs[0], &mut goal, &mut rng);
        }
        let engine = engine(Simulated::of(programs), goal.clone());
        let (changes, lazily_freed, taken, ledgers) = Default::default();
        let (moved, exchanged, compared) = (Nanos::ZERO, 0, 0);
        let mut machine = Self {
            seed,
            rng,
            goal,
            engine,
            changes,
            lazily_freed,
            taken,
            ledgers,
            compared,
            is_equal,
            moved,
            exchanged,
        };
        machine.note_lazily_freed();
        machine
    }

    /// Runs all rounds, and one more after an interruption. Returns their number.
    fn run(&mut self) -> u64 {
        let mut rounds = 0;
        while let Some(round) = self.engine.round(END, END).unwrap() {
            rounds += 1;
            self.check(&round);
            self.disturb();
            self.note_lazily_freed();
            self.engine.world.interrupted = self.rng.bits().is_multiple_of(200);
        }
        self.engine.world.interrupted = true;
        if let Some(round) = self.engine.abandon().unwrap() {
            rounds += 1;
            assert!(round.decisions().all(|one| one.promote.is_empty()));
            self.check(&round);
        }
        rounds
    }

    fn check(&mut self, round: &Round) {
        check_decision(&self.goal, round);
        self.check_limits(round);
        self.check_lazily_freed(round);
        self.check_shortage(round);
        self.check_exchange(round);
        self.check_ledger(round);
        self.count(round);
        let (seed, max_tries) = (self.seed, self.goal.max_tries);
        for (key, changes) in &self.changes {
            if let Policy::Schedule(rules) = &self.goal.policy {
                // A schedule may change a region as often as it says.
                let events = u32::try_from(rules.events()).unwrap();
                let (times, failures) = (changes.times.len() as u32, changes.failures);
                let is_within = times <= events && failures <= max_tries * events;
                assert!(is_within, "seed {seed}: {key:?}: {changes:?}");
                continue;
            }
            assert!(changes.failures <= max_tries, "seed {seed}: {key:?} failed: {changes:?}");
            let cool_down = |three: &[Nanos]| three[2] - three[0] >= self.goal.horizon;
            assert!(changes.times.windows(3).all(cool_down), "seed {seed}: {key:?}: {changes:?}");
        }
    }

    /// The budget, and the memory that promotions may add, hold for all processes together.
    fn check_limits(&self, round: &Round) {
        let seed = self.seed;
        let (mut resident, mut added) = (Bytes::ZERO, Bytes::ZERO);
        for program in self.engine.world.programs.values() {
            let id = &program.target.id;
            let past = round.state.of(id).cloned().unwrap_or_default();
            let seen = round.rows.iter().map(|row| &row.seen).find(|process| process.id == *id);
            resident += seen.map_or(past.resident, |process| process.memory.resident());
            added += past.added;
        }
        let verified = |(decision, outcome): (&ProcessDecision, &ProcessOutcome)| -> Vec<Bytes> {
            let acts = outcome.attempts.acts.iter();
            let verified = acts.filter(|act| act.outcome == ActOutcome::Verified);
            let planned = verified.map(|act| {
                decision.promote.iter().find(|one| one.region == act.region).unwrap().added
            });
            planned.collect()
        };
        let new: Vec<Bytes> = round.decisions().zip(round.outcomes()).flat_map(verified).collect();
        let new_added: Bytes = new.iter().copied().sum();
        // A program that ended in this round took its resident memory with it.
        let programs = &self.engine.world.programs;
        let stays = |process: &ProcessSnapshot| programs.contains_key(&process.id.pid);
        if new.is_empty() || !round.rows.iter().map(|row| &row.seen).all(stays) {
            return;
        }
        // Without new memory, the limit may have fallen below what was added before.
        let most = self.goal.max_added.unwrap().of(resident);
        assert!(
            new_added == Bytes::ZERO || added + new_added <= most,
            "seed {seed}: {added} and {new_added} of {most} added"
        );
        let alive = |program: &&Program| program.target.state.get() == TargetState::Alive;
        let alive = programs.values().filter(alive);
        let huge = SIZES.huge.times(alive.map(|program| program.huge().len() as u64).sum());
        if let Some(budget) = self.goal.budget {
            assert!(huge <= budget.of(resident), "seed {seed}: {huge} of {budget}");
        }
    }

    fn note_lazily_freed(&mut self) {
        let programs = self.engine.world.programs.iter();
        let pages = programs.flat_map(|(&pid, program)| {
            let pages = program.target.pages.borrow();
            let freed = pages.values().map(|one| ((pid, one.region), one.lazily_freed));
            freed.collect::<Vec<_>>()
        });
        self.lazily_freed = pages.collect();
    }

    /// The promotions take no more lazily freed memory than they may add.
    fn check_lazily_freed(&mut self, round: &Round) {
        let mut new = Bytes::ZERO;
        for Row { decision, outcome, .. } in &round.rows {
            let pid = decision.process.pid;
            let acts = outcome.attempts.acts.iter();
            for act in acts.filter(|act| act.outcome == ActOutcome::Verified) {
                let freed = SIZES.base.times(self.lazily_freed[&(pid, act.region)]);
                *self.taken.entry(pid).or_insert(Bytes::ZERO) += freed;
                new += freed;
            }
        }
        let programs = &self.engine.world.programs;
        self.taken.retain(|pid, _| programs.contains_key(pid));
        let taken: Bytes = self.taken.values().copied().sum();
        let resident = programs.keys().filter_map(|pid| {
            let seen =
                round.rows.iter().map(|row| &row.seen).find(|process| process.id.pid == *pid);
            let past = || round.state.processes().map(|past| past.resident).max();
            seen.map(|process| process.memory.resident()).or_else(past)
        });
        let most = self.goal.max_added.unwrap().of(resident.sum());
        let seed = self.seed;
        assert!(new == Bytes::ZERO || taken <= most, "seed {seed}: {taken} of {most} taken");
    }

    /// Once a round has read pages of the ledger, it knows which are huge.
    fn check_ledger(&mut self, round: &Round) {
        for row in &round.rows {
            let (pid, memory) = (row.seen.id.pid, &row.seen.memory);
            if round.state.of(&row.seen.id).is_none() {
                self.ledgers.remove(&pid);
            }
            let (read, ledger) = self.ledgers.entry(pid).or_default();
            let is_read = std::mem::replace(read, memory.time) != memory.time;
            ledger.note_memory(memory);
            ledger.add(row, false);
            let Some(program) = self.engine.world.programs.get(&pid) else { continue };
            let is_alive = program.target.state.get() == TargetState::Alive;
            if !is_alive || !is_read {
                continue;
            }
            let pages = program.target.pages.borrow();
            for one in ledger.selected().filter(|one| one.state.is_some()) {
                let region = SIZES.region_of(one.start);
                // A policy reads only the pages that it needs.
                let is_tried = row.changes().any(|change| change.region == region);
                if !memory.pages.contains_key(&region) && !is_tried {
                    continue;
                }
                let is_huge = pages.get(&region).is_some_and(|pages| pages.huge);
                let is_known = one.state == Some(RegionState::Huge);
                assert_eq!(is_known, is_huge, "seed {}: {pid}, {one:?}", self.seed);
                self.compared += 1;
            }
        }
    }

    /// Nothing is promoted under memory pressure, nor into the reserve.
    fn check_shortage(&self, round: &Round) {
        for Row { decision, outcome, .. } in &round.rows {
            let Some(program) = self.engine.world.programs.get(&decision.process.pid) else {
                continue;
            };
            let (target, guard) = (&program.target, Guard::default());
            let pressure = target.pressure.get().unwrap_or_default();
            let is_short = guard.limits.is_pressed(pressure)
                || guard.limits.headroom_skip(target.headroom.get(), SIZES.huge).is_some();
            let acts = outcome.attempts.acts.len();
            assert!(!is_short || acts == 0, "seed {}: {acts} promotions, {pressure:?}", self.seed);
        }
    }

    fn count(&mut self, round: &Round) {
        for Row { decision, outcome, .. } in &round.rows {
            let pid = decision.process.pid;
            let Some(begun) = outcome.begun else { continue };
            for act in &outcome.attempts.acts {
                let changes = self.changes.entry((pid, act.region)).or_default();
                if act.outcome == ActOutcome::Verified {
                    changes.times.push(begun);
                    changes.promoted = begun;
                } else {
                    changes.failures += 1;
                }
            }
            let past = round.state.of(&decision.process);
            let watches = past.is_some_and(|past| matches!(past.phase, TunePhase::Watching { .. }));
            for act in outcome.demotions.iter().filter(|act| is_split(act)) {
                let changes = self.changes.entry((pid, act.region)).or_default();
                let least = changes.demote(begun, self.goal.horizon);
                let is_exchange = self.goal.policy == Policy::Heat && watches;
                let stayed = begun - changes.promoted;
                let (seed, region) = (self.seed, act.region);
                assert!(!is_exchange || stayed >= least, "seed {seed}: {region:?}: {changes:?}");
            }
        }
    }

    /// Memory becomes short or contended. A program changes its hot memory, frees or touches some,
    /// starts another program, or ends.
    fn disturb(&mut self) {
        let (rng, world) = (&mut self.rng, &mut self.engine.world);
        let (event, mut restarted) = (rng.bits() % 60, Vec::new());
        if matches!(event, 1 | 3) {
            // Samples of a program that started before count for the one that it replaced.
            self.moved = world.now();
        }
        for (&pid, program) in &mut world.programs {
            let target = &program.target;
            match event {
                0 => {
                    let mut headroom = target.headroom.get();
                    headroom.system = Bytes::gib(rng.bits() % 60);
                    target.headroom.set(headroom);
                }
                1 => program.heat.reverse(),
                2 if rng.bits().is_multiple_of(8) => target.state.set(TargetState::Gone),
                3 if rng.bits().is_multiple_of(4) => {
                    restarted.push(pid);
                    change_pages(target, rng, true);
                }
                4..=9 => change_pages(target, rng, false),
                10 => target.pressure.set(Some(Pressure {
                    some_avg10: rng.unit() * 15.0,
                    full_avg10: rng.unit() * 3.0,
                })),
                11..=15 => target.pressure.set(None),
                _ => {}
            }
        }
        for pid in restarted {
            self.changes.retain(|(changed, _), _| *changed != pid);
            self.taken.remove(&pid);
            let now = self.engine.world.now();
            self.engine.world.restart(pid, now);
            self.engine.world.restarted.push(pid);
        }
    }
}

/// Some regions lose their huge pages, or get other pages; all of them do in a new program.
fn change_pages(target: &hugepilot_kernel::fake::FakeTarget, rng: &mut Rng, all: bool) {
    for pages in target.pages.borrow_mut().values_mut() {
        if all || rng.bits().is_multiple_of(20) {
            pages.huge = false;
            pages.resident = if rng.bits().is_multiple_of(2) { rng.bits() % 513 } else { 512 };
            let freed = rng.bits() % 200 * u64::from(rng.bits().is_multiple_of(3));
            pages.lazily_freed = freed.min(pages.resident);
        }
    }
}

fn random_goal(seed: u64, rng: &mut Rng) -> TuneGoal {
    let promoting: Vec<PolicyName> =
        PolicyName::ALL.into_iter().filter(|name| name.promotes()).collect();
    let name = promoting[usize::try_from(seed).unwrap() % promoting.len()];
    let mut policy = Policy::of(name).unwrap_or_else(|| random_schedule(rng));
    match &mut policy {
        Policy::Pcc(rules) => {
            rules.promotions = 1 + (rng.bits() % 200) as usize;
            rules.entries = 1 + (rng.bits() % 200) as usize;
            if rng.bits().is_multiple_of(2) {
                (rules.selection, rules.bias) = (Selection::RoundRobin, vec!["2".to_owned()]);
            }
        }
        Policy::Khugepaged(rules) => {
            rules.pages_to_scan = rng.bits() % 100_000;
            rules.scan_sleep = Nanos::millis(rng.bits() % 12_000);
        }
        Policy::Hawkeye(rules) => rules.promotions = (rng.bits() % 100) as usize,
        _ => {}
    }
    let budget = match rng.bits() % 4 {
        0 => Some(Amount::Share(Share::ratio(rng.unit()))),
        1 => Some(Amount::Bytes(SIZES.huge.times(rng.bits() % 300))),
        _ => None,
    };
    TuneGoal {
        policy,
        budget,
        max_added: Some(Share::ratio(if rng.bits().is_multiple_of(2) { 0.01 } else { rng.unit() })),
        keep: rng.bits().is_multiple_of(4),
        horizon: Nanos::seconds(2 + rng.bits() % 60),
        observe: Nanos::millis(500 + rng.bits() % 3000),
        regions_per_round: 1 + (rng.bits() % 512) as usize,
        persistent: rng.bits().is_multiple_of(2),
        seed,
        ..TuneGoal::default()
    }
}

/// Events of random regions, some of which the programs do not have.
fn random_schedule(rng: &mut Rng) -> Policy {
    let program = Program::new(1, vec![1.0; 1 + (rng.bits() % 200) as usize]);
    let regions = program.heat.len() as u64;
    let events: Vec<_> = (0..rng.bits() % 300)
        .map(|_| {
            let is_promotion = !rng.bits().is_multiple_of(3);
            let action =
                if is_promotion { ScheduleAction::Promote } else { ScheduleAction::Demote };
            (rng.unit() * 40.0, action, rng.bits() % regions)
        })
        .collect();
    super::schedule::rules(&program, &events)
}

fn random_program(pid: i32, rng: &mut Rng) -> Program {
    let regions = 1 + usize::try_from(rng.bits() % 200).unwrap();
    let skew = 6.0 * rng.unit();
    let mut program = Program::new(pid, (0..regions).map(|_| rng.unit().powf(skew)).collect());
    (program.ratio, program.stalls) = (0.3 + 0.8 * rng.unit(), 0.99 * rng.unit());
    program.is_sampled = !rng.bits().is_multiple_of(8);
    for pages in program.target.pages.borrow_mut().values_mut() {
        pages.resident = if rng.bits().is_multiple_of(4) { 100 + rng.bits() % 413 } else { 512 };
    }
    let script = (0..rng.bits() % 300).map(|_| match rng.bits() % 40 {
        0 => Script::Fail(Errno::EAGAIN),
        1 => Script::FakeSuccess,
        2 => Script::Slow(Nanos::millis(rng.bits() % 60)),
        3 => Script::Fail(Errno::ENOMEM),
        4 => Script::Fail(Errno::EINVAL),
        _ => Script::Succeed,
    });
    program.target.script.borrow_mut().extend(script);
    program
}

/// The decision is made again from the round's line in a journal.
fn check_decision(goal: &TuneGoal, round: &Round) {
    let line = serde_json::to_string(round).unwrap();
    let read: Round = serde_json::from_str(&line).unwrap();
    // Rounds are too long to print.
    assert!(&read == round, "round {} is read as another one", round.number);
    let again = read.again(goal);
    let is_same = again.decisions().eq(round.decisions());
    assert!(is_same, "round {} is decided in another way", round.number);
    let after = |round: &Round| round.rows.iter().map(|row| row.after.clone()).collect::<Vec<_>>();
    let is_next = after(&again) == after(round) && again.place == round.place;
    assert!(is_next, "round {} leads to another state", round.number);
}
