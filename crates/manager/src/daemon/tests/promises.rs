//! Properties that hold whatever other processes do: watermarks, re-collapses, CPU budget.

use proptest::prelude::*;

use super::*;

/// Longest work between two checks of the budget.
const PIECE: Nanos = Nanos::millis(25);

/// Finds the first reading at which CPU time exceeds `share`, with ten seconds saved, since use was
/// last critical.
fn overspent(readings: &[TimedReading], share: Share) -> Option<(Nanos, f64, f64)> {
    let mut since = *readings.first()?;
    readings.iter().find_map(|reading| {
        if reading.used >= Bytes::mib(920) {
            since = *reading;
        }
        let spent = (reading.cpu - since.cpu).as_seconds();
        let seconds = (reading.at - since.at).as_seconds() + 10.0;
        let allowed = share.get() * seconds + PIECE.as_seconds();
        (spent > allowed).then_some((reading.at, spent, allowed))
    })
}

#[test]
fn an_exceeded_budget_is_detected() {
    let reading = |second, cpu_ms, mib| TimedReading {
        at: Nanos::seconds(second),
        cpu: Nanos::millis(cpu_ms),
        used: Bytes::mib(mib),
    };
    let share = Share::percent(1.0);
    let calm = [reading(0, 0, 800), reading(10, 200, 850), reading(20, 300, 700)];
    assert_eq!(overspent(&calm, share), None);
    let hasty = [reading(0, 0, 800), reading(10, 300, 850)];
    assert!(overspent(&hasty, share).is_some());
    let critical = [reading(0, 0, 800), reading(10, 900, 920), reading(11, 1000, 910)];
    assert_eq!(overspent(&critical, share), None);
    assert!(overspent(&[critical[1], reading(11, 1200, 910)], share).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_promises_hold(
        zeros in prop::collection::vec(10_u64..500, 1..4),
        start in 400.0..800.0_f64,
        slope in 0.0..1.5_f64,
        again_every in 1_u64..400,
        percent in 1.0..10.0_f64,
    ) {
        // Each split takes 22 ms, so 40 splits cost more than small budgets save.
        let slow = || vec![Script::Slow(Nanos::millis(20)); 1000];
        let fakes = zeros.iter().zip(1..);
        let fakes = fakes.map(|(&zeros, pid)| bloated(pid, 40, zeros).scripted(slow()));
        let mut sim = Sim::new(fakes.collect(), move |second| start + second * slope);
        let next = Cell::new(again_every);
        sim.meanwhile = Box::new(move |sim| {
            if sim.elapsed() < Nanos::seconds(next.get()) {
                return;
            }
            next.set(next.get() + again_every);
            for fake in &sim.fakes {
                let pages = fake.pages.borrow();
                let split = pages.values().filter(|pages| !pages.huge).map(|pages| pages.region);
                let split: Vec<_> = split.collect();
                drop(pages);
                split.into_iter().for_each(|region| fake.make_huge_again(region, 300));
            }
        });
        let share = Share::percent(percent);
        sim.seconds = 300;
        let lines = sim.run(Config { cpu: share, cool_down: Nanos::seconds(20), ..config() });
        for fake in &sim.fakes {
            let mut times = BTreeMap::<Region, usize>::new();
            fake.asked.borrow().iter().for_each(|&region| *times.entry(region).or_default() += 1);
            prop_assert!(times.values().all(|&times| times <= 3), "{times:?}");
        }
        for line in &lines {
            if let Event::Idle(_) = line.event {
                prop_assert!(line.memory.used_bytes + Bytes::mib(2) >= Bytes::mib(650), "{line:?}");
            }
        }
        prop_assert_eq!(overspent(&sim.readings.borrow(), share), None);
    }
}
