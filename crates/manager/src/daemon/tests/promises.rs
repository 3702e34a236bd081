//! What holds whatever others do: the marks, the cap on recollapses, and the CPU budget.

use proptest::prelude::*;

use super::*;

/// The longest work between two looks at the budget.
const PIECE: Nanos = Nanos::millis(25);

/// CPU time keeps within `share`, with ten seconds saved, from every moment of critical use to the next. The first look where it
/// does not.
fn overspent(looks: &[Look], share: Share) -> Option<(Nanos, f64, f64)> {
    let mut calm = *looks.first()?;
    looks.iter().find_map(|look| {
        if look.used >= Bytes::mib(920) {
            calm = *look;
        }
        let spent = (look.cpu - calm.cpu).as_seconds();
        let allowed = share.get() * ((look.at - calm.at).as_seconds() + 10.0) + PIECE.as_seconds();
        (spent > allowed).then_some((look.at, spent, allowed))
    })
}

#[test]
fn the_budget_is_missed_where_it_is_broken() {
    let look = |second, cpu_ms, mib| Look {
        at: Nanos::seconds(second),
        cpu: Nanos::millis(cpu_ms),
        used: Bytes::mib(mib),
    };
    let share = Share::percent(1.0);
    let calm = [look(0, 0, 800), look(10, 200, 850), look(20, 300, 700)];
    assert_eq!(overspent(&calm, share), None);
    let hasty = [look(0, 0, 800), look(10, 300, 850)];
    assert!(overspent(&hasty, share).is_some());
    let critical = [look(0, 0, 800), look(10, 900, 920), look(11, 1000, 910)];
    assert_eq!(overspent(&critical, share), None);
    assert!(overspent(&[critical[1], look(11, 1200, 910)], share).is_some());
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
        // Each split takes 22 ms, so that 40 of them cost more than what the smaller budgets save.
        let slow = || vec![Script::Slow(Nanos::millis(20)); 1000];
        let fakes = zeros.iter().zip(1..).map(|(&zeros, pid)| bloated(pid, 40, zeros).scripted(slow()));
        let mut sim = Sim::new(fakes.collect(), move |second| start + second * slope);
        let next = Cell::new(again_every);
        sim.meanwhile = Box::new(move |sim| {
            if sim.elapsed() < Nanos::seconds(next.get()) {
                return;
            }
            next.set(next.get() + again_every);
            for fake in &sim.fakes {
                let all: Vec<_> = fake.pages.borrow().values().filter(|p| !p.huge).map(|p| p.region).collect();
                all.into_iter().for_each(|region| fake.make_huge_again(region, 300));
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
                prop_assert!(line.seen.used_bytes + Bytes::mib(2) >= Bytes::mib(650), "{line:?}");
            }
        }
        prop_assert_eq!(overspent(&sim.looks.borrow(), share), None);
    }
}
