//! Recipes against an oracle. An interpreter that follows the processor manual and shares no code
//! with the module runs random programs. Every address of a recipe is compared with the accessed
//! one.

#[path = "machine/mod.rs"]
mod machine;

use std::collections::HashMap;

use hugepilot_code::{Boundary, analyse};
use hugepilot_record::Provenance;
use machine::assemble::Program;
use machine::generate::{changing, followable, load, load_through, op};
use machine::{Machine, Op, START};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8000) }
}

/// Initial registers, a seed for the contents of memory, and the direction of each branch.
fn machine_state() -> impl Strategy<Value = Machine> {
    (any::<[u64; 16]>(), any::<u64>()).prop_map(|(regs, seed)| Machine::new(regs, seed))
}

/// Instructions, a load, perhaps one more and a consumer of the load. The sample is at the end.
fn straight_line() -> impl Strategy<Value = Vec<Op>> {
    let after = prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(op(), 0..2)];
    (prop::collection::vec(op(), 0..14), load(), after, any::<bool>()).prop_map(
        |(mut ops, load, after, used)| {
            let consumer = load.consumer();
            ops.push(load);
            ops.extend(after);
            ops.extend(Some(consumer).filter(|_| used));
            ops
        },
    )
}

/// Instructions that can be followed, and a load into its own base or index: only earlier ones
/// determine its address.
fn clobbering_line() -> impl Strategy<Value = Vec<Op>> {
    let loads = (load(), any::<bool>()).prop_map(|(load, index)| load.into_own_address(index));
    (prop::collection::vec(followable(), 2..12), loads).prop_map(|(mut ops, load)| {
        ops.push(load);
        ops
    })
}

/// A load, a change of its base, and a consumer of the load: only the inverse of the change gives
/// its address.
fn changed_line() -> impl Strategy<Value = Vec<Op>> {
    let loads = (0..16_usize, 0..16_usize)
        .prop_flat_map(|(base, to)| (load_through(base, to), changing(base)));
    (prop::collection::vec(op(), 0..3), loads).prop_map(|(mut ops, (load, change))| {
        ops.extend([load, change, load.consumer()]);
        ops
    })
}

/// Returns the provenance at the end of a straight line; an error if the address is wrong.
fn check_line(ops: &[Op], mut machine: Machine) -> Result<Provenance, TestCaseError> {
    let program = Program::assemble(ops);
    let mut accessed = HashMap::new();
    for (at, op) in ops.iter().enumerate() {
        if let Some(address) = machine.run(op) {
            accessed.insert(program.ip(at), address);
        }
    }
    let end = program.ip(ops.len());
    let recipe = analyse(&program.code, START, Boundary::Function, end);
    if matches!(recipe.provenance, Provenance::Exact | Provenance::Recomputed) {
        let claimed = recipe.address(&machine.sample(end)).map(|address| address.get());
        let truth = accessed.get(&recipe.accessing_ip).copied();
        prop_assert_eq!(claimed, truth, "{:?} at {:#x}", recipe, recipe.accessing_ip);
    }
    Ok(recipe.provenance)
}

/// Runs a loop that ends in a branch to its start, and checks every address after an execution of
/// the load with index `at`. Returns the provenance.
fn check_loop(
    ops: &[Op],
    at: usize,
    mut machine: Machine,
    trust_next: bool,
) -> Result<Provenance, TestCaseError> {
    let program = Program::assemble(ops);
    let ip = program.ip(at + 1);
    let recipe = analyse(&program.code, START, Boundary::Function, ip);
    if recipe.accessing_ip != program.ip(at) {
        return Ok(Provenance::None);
    }
    let mut awaited = None;
    let mut pc = 0;
    for _ in 0..300 {
        let Some(next) = ops.get(pc) else { break };
        let address = machine.run(next);
        pc = machine.next_pc(next, pc);
        if address.is_none() || program.ip(pc) != ip {
            continue;
        }
        let claimed = recipe.address(&machine.sample(ip)).map(|claimed| claimed.get());
        match recipe.provenance {
            Provenance::Exact | Provenance::Recomputed => {
                prop_assert_eq!(claimed, address, "{:?}", recipe)
            }
            Provenance::Next if trust_next => {
                prop_assert!(
                    awaited.is_none() || awaited == address,
                    "{:?}: {:x?}",
                    recipe,
                    (awaited, address)
                );
                awaited = claimed;
            }
            _ => {}
        }
    }
    Ok(recipe.provenance)
}

/// A loop body with forward branches within the part before or after its load, closed by a backward
/// branch.
fn structured_loop() -> impl Strategy<Value = (Vec<Op>, usize)> {
    let part = || {
        (
            prop::collection::vec(op(), 0..7),
            prop::option::of((any::<prop::sample::Index>(), 1..4_usize)),
        )
    };
    (part(), load(), part()).prop_map(|((mut before, skip), load, (after, skip_after))| {
        if let Some((from, by)) = skip {
            skip_within(&mut before, from, by, 0);
        }
        let at = before.len();
        before.push(load);
        let (mut tail, base) = (after, at + 1);
        // Not right after the load: the sample would be at a branch, which is equally good, but the
        // skip could end there.
        if let Some((from, by)) = skip_after.filter(|_| !tail.is_empty()) {
            skip_within(&mut tail, from, by, base);
        }
        before.extend(tail);
        before.push(Op::Branch { to: 0 });
        (before, at)
    })
}

fn skip_within(ops: &mut Vec<Op>, from: prop::sample::Index, by: usize, base: usize) {
    let from = from.index(ops.len() + 1);
    ops.insert(from, Op::Branch { to: base + (from + 1 + by).min(ops.len() + 1) });
}

/// Any instructions with branches from anywhere to anywhere.
fn tangle() -> impl Strategy<Value = (Vec<Op>, usize)> {
    let branches =
        prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..4);
    (prop::collection::vec(op(), 1..12), load(), any::<prop::sample::Index>(), branches).prop_map(
        |(mut ops, load, at, branches)| {
            let at = at.index(ops.len());
            ops.insert(at, load);
            for (from, to) in branches {
                let (from, to) = (from.index(ops.len()), to.index(ops.len()));
                if from != at {
                    ops[from] = Op::Branch { to };
                }
            }
            (ops, at)
        },
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn claims_about_straight_lines_are_true(ops in straight_line(), machine in machine_state()) {
        check_line(&ops, machine)?;
    }

    #[test]
    fn claims_about_overwritten_addresses_are_true(
        ops in clobbering_line(),
        machine in machine_state(),
    ) {
        check_line(&ops, machine)?;
    }

    #[test]
    fn claims_about_changed_addresses_are_true(ops in changed_line(), machine in machine_state()) {
        check_line(&ops, machine)?;
    }

    #[test]
    fn claims_about_loops_are_true((ops, at) in structured_loop(), machine in machine_state()) {
        check_loop(&ops, at, machine, true)?;
    }

    #[test]
    fn claims_about_tangled_code_are_true((ops, at) in tangle(), machine in machine_state()) {
        check_loop(&ops, at, machine, false)?;
    }
}

/// Returns the share of `cases` programs, in percent, whose outcome is in `wanted`.
fn share<T>(
    cases: u32,
    programs: impl Strategy<Value = T>,
    wanted: &[Provenance],
    check: impl Fn(&T, Machine) -> Result<Provenance, TestCaseError>,
) -> u32 {
    let mut runner = TestRunner::deterministic();
    let mut found = 0;
    for _ in 0..cases {
        let program = programs.new_tree(&mut runner).unwrap().current();
        let machine = machine_state().new_tree(&mut runner).unwrap().current();
        found += u32::from(wanted.contains(&check(&program, machine).unwrap()));
    }
    found * 100 / cases
}

/// Most programs give addresses: a module that never gives one is never wrong.
#[test]
fn most_addresses_are_found() {
    use Provenance::{Exact, Next, Recomputed};
    let line = |ops: &Vec<Op>, machine| check_line(ops, machine);
    let exact = share(2000, straight_line(), &[Exact], line);
    let recomputed = share(2000, clobbering_line(), &[Recomputed], line);
    let undone = share(2000, changed_line(), &[Recomputed], line);
    let in_loop = |(ops, at): &(Vec<Op>, usize), machine| check_loop(ops, *at, machine, true);
    let looped = share(2000, structured_loop(), &[Exact, Recomputed], in_loop);
    let next = share(2000, structured_loop(), &[Next], in_loop);
    let summary = format!(
        "lines: {exact} % exact, {recomputed} % of overwritten and {undone} % of changed addresses \
         recomputed; loops: {looped} % found, {next} % next"
    );
    assert!(exact >= 65 && recomputed >= 20 && undone >= 50, "{summary}");
    assert!(looped >= 75 && next >= 7, "{summary}");
}
