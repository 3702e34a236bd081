//! Address that an instruction of a loop accesses next.
//!
//! A pointer chase overwrites its own address: after `mov rax, [rax]` the old address is lost, but
//! the next one is known. So the loop is continued, symbolically, until it reaches the access
//! again.

use iced_x86::{FlowControl, Instruction};

use super::access::Access;
use super::effects::{Effects, is_barrier, jump_target};
use super::emulate::{Source, result};
use super::expression::{Expression, Exprs, NodeId};
use super::listing::Listing;
use super::regs::Gpr;

/// Limit of executed instructions.
const MAX_STEPS: u32 = 200;

/// Returns the address of the next execution of `access`, from the registers of the sample.
pub(super) fn next_address(
    listing: &Listing,
    access: &Access,
    effects: &mut Effects,
) -> Option<Expression> {
    let mut run = Run::new(listing, effects)?;
    let closing = run.until_closing_branch(access.at)?;
    run.until_access(access.at, closing)?;
    let root = access.place.address(&mut run.state)?;
    Some(run.state.exprs.finish(root))
}

/// Register values, as far as known.
struct State {
    exprs: Exprs,
    known: [Option<NodeId>; 16],
}

impl Source for State {
    fn read(&mut self, register: Gpr) -> Option<NodeId> {
        self.known[register.index()]
    }
    fn exprs(&mut self) -> &mut Exprs {
        &mut self.exprs
    }
}

struct Run<'a> {
    listing: &'a Listing,
    effects: &'a mut Effects,
    state: State,
    /// Index of the next instruction.
    at: usize,
    steps_left: u32,
    /// Untaken branches that may skip ahead: their targets, and the registers written since. A skip
    /// arrives with the old values, so none of these registers is known at the target.
    skips: Vec<(u64, u16)>,
}

impl<'a> Run<'a> {
    fn new(listing: &'a Listing, effects: &'a mut Effects) -> Option<Self> {
        let mut exprs = Exprs::default();
        let mut known = [None; 16];
        for register in Gpr::in_set(u16::MAX) {
            known[register.index()] = Some(exprs.register(register)?);
        }
        let (state, at) = (State { exprs, known }, listing.here);
        Some(Self { listing, effects, state, at, steps_left: MAX_STEPS, skips: Vec::new() })
    }

    /// Runs from the sample to the branch that goes back to or before the access, and takes it.
    /// Conditional forward branches are not taken: they leave the loop, or the registers that they
    /// skip become unknown.
    fn until_closing_branch(&mut self, access: usize) -> Option<usize> {
        let access_ip = self.listing.instructions[access].ip();
        loop {
            let instruction = self.arrive()?;
            match jump_target(instruction) {
                Some(target) if target <= access_ip => {
                    let closing = self.at;
                    // Counts down a register.
                    self.execute(instruction);
                    self.at = self.listing.index_of(target)?;
                    self.skips.clear();
                    return Some(closing);
                }
                Some(target) => self.pass(instruction, target, access + 1)?,
                None => self.execute(instruction),
            }
            self.at += 1;
        }
    }

    /// Runs from the head of the loop to the access.
    fn until_access(&mut self, access: usize, closing: usize) -> Option<()> {
        let (head, access_ip) = (self.at, self.listing.instructions[access].ip());
        let closing_ip = self.listing.instructions[closing].ip();
        while self.at < access {
            let instruction = self.arrive()?;
            match jump_target(instruction) {
                // Data decides whether the access is next.
                Some(target) if target > access_ip && target <= closing_ip => return None,
                Some(target) => self.pass(instruction, target, head)?,
                None => self.execute(instruction),
            }
            self.at += 1;
        }
        self.arrive().map(drop)
    }

    /// Returns the instruction at `at`, after dropping registers that a skip to it leaves unknown.
    fn arrive(&mut self) -> Option<&'a Instruction> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        let instruction = self.listing.instructions.get(self.at).filter(|ins| !ins.is_invalid())?;
        let ip = instruction.ip();
        for skip in self.skips.iter().filter(|skip| skip.0 == ip) {
            for register in Gpr::in_set(skip.1) {
                self.state.known[register.index()] = None;
            }
        }
        self.skips.retain(|skip| skip.0 != ip);
        let runs_on = !is_barrier(instruction) || jump_target(instruction).is_some();
        runs_on.then_some(instruction)
    }

    /// Continues after a conditional branch that is not taken. A backward branch, not before
    /// `first`, closes an inner loop with an unknown number of iterations, so the registers that it
    /// writes become unknown.
    fn pass(&mut self, instruction: &Instruction, target: u64, first: usize) -> Option<()> {
        if instruction.flow_control() != FlowControl::ConditionalBranch {
            return None;
        }
        self.execute(instruction);
        if target > instruction.ip() {
            self.skips.push((target, 0));
            return Some(());
        }
        let head = self.listing.index_of(target).filter(|&head| head >= first)?;
        for repeated in &self.listing.instructions[head..=self.at] {
            for register in Gpr::in_set(self.effects.written(repeated)) {
                self.state.known[register.index()] = None;
            }
        }
        Some(())
    }

    fn execute(&mut self, instruction: &Instruction) {
        let written = self.effects.written(instruction);
        for skip in &mut self.skips {
            skip.1 |= written;
        }
        let mut after = self.state.known;
        for register in Gpr::in_set(written) {
            let mark = self.state.exprs.mark();
            after[register.index()] = result(instruction, register, &mut self.state);
            if after[register.index()].is_none() {
                self.state.exprs.forget(mark);
            }
        }
        self.state.known = after;
    }
}
