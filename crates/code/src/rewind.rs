//! Register values at an earlier point of the straight line to the sample.

use iced_x86::{Instruction, Mnemonic};

use super::effects::Effects;
use super::emulate::{Source, result, undo, whole_register};
use super::expression::{Exprs, NodeId};
use super::listing::Listing;
use super::regs::Gpr;

/// Depth limit of values that depend on each other.
const MAX_DEPTH: u32 = 12;
/// Limit of values examined for one address.
const MAX_LOOKS: u32 = 200;

/// Values before an instruction of the line, from the registers after its last one.
pub(super) struct Rewind<'a> {
    /// Instructions that certainly ran, in order, up to the sample.
    line: &'a [Instruction],
    /// Registers that each of them may change.
    written: Vec<u16>,
    exprs: Exprs,
    looks: u32,
}

impl<'a> Rewind<'a> {
    /// Starts at the sample and covers its straight line, whose first instruction has index `first`
    /// in the listing.
    pub(super) fn new(listing: &'a Listing, first: usize, effects: &mut Effects) -> Self {
        let line = &listing.instructions[first..listing.here];
        let written = line.iter().map(|instruction| effects.written(instruction)).collect();
        Self { line, written, exprs: Exprs::default(), looks: MAX_LOOKS }
    }

    /// Whether all of these registers still have their values from before instruction `at` of the
    /// line.
    pub(super) fn intact(&self, registers: u16, at: usize) -> bool {
        self.written.iter().skip(at).all(|written| written & registers == 0)
    }

    /// Returns the registers before instruction `at` of the line.
    pub(super) fn at(&mut self, at: usize) -> Past<'_, 'a> {
        Past { rewind: self, at, depth: MAX_DEPTH }
    }

    fn value(&mut self, register: Gpr, at: usize, depth: u32) -> Option<NodeId> {
        let Some(writer) = (at..self.line.len()).find(|&writer| self.writes(writer, register))
        else {
            return self.exprs.register(register);
        };
        self.looks = self.looks.checked_sub(1)?;
        let depth = depth.checked_sub(1)?;
        if let Some(copy) = self.copy_of(register, at, writer) {
            return self.exprs.register(copy);
        }
        let mark = self.exprs.mark();
        if let Some(value) = self.rematerialised(register, at, depth) {
            return Some(value);
        }
        self.exprs.forget(mark);
        let value = self.undone(register, writer, depth);
        if value.is_none() {
            self.exprs.forget(mark);
        }
        value
    }

    fn writes(&self, at: usize, register: Gpr) -> bool {
        self.written[at] & register.bit() != 0
    }

    /// Returns the last instruction before `at` that wrote the register.
    fn definition(&self, register: Gpr, at: usize) -> Option<usize> {
        (0..at).rev().find(|&earlier| self.writes(earlier, register))
    }

    /// Returns a register that holds a copy of the value. The value exists from its definition to
    /// its next `writer`.
    fn copy_of(&self, register: Gpr, at: usize, writer: usize) -> Option<Gpr> {
        let born = self.definition(register, at).map_or(0, |definition| definition + 1);
        (born..writer).find_map(|copier| {
            let instruction = &self.line[copier];
            let is_copy = instruction.mnemonic() == Mnemonic::Mov
                && whole_register(instruction, 1) == Some(register);
            let copy = whole_register(instruction, 0).filter(|_| is_copy)?;
            self.intact(copy.bit(), copier + 1).then_some(copy)
        })
    }

    /// Computes the value again from the inputs of the instruction that defined it.
    fn rematerialised(&mut self, register: Gpr, at: usize, depth: u32) -> Option<NodeId> {
        let definition = self.definition(register, at)?;
        let line = self.line;
        result(&line[definition], register, &mut Past { rewind: self, at: definition, depth })
    }

    /// Returns the value after its next `writer`, with the operation of that one inverted.
    fn undone(&mut self, register: Gpr, writer: usize, depth: u32) -> Option<NodeId> {
        let line = self.line;
        let instruction = &line[writer];
        if instruction.mnemonic() == Mnemonic::Xchg {
            let (a, b) = (whole_register(instruction, 0)?, whole_register(instruction, 1)?);
            return self.value(if a == register { b } else { a }, writer + 1, depth);
        }
        let after = self.value(register, writer + 1, depth)?;
        undo(instruction, register, after, &mut Past { rewind: self, at: writer, depth })
    }

    /// Returns the expressions.
    pub(super) fn into_exprs(self) -> Exprs {
        self.exprs
    }
}

/// Registers before one instruction of the line.
pub(super) struct Past<'r, 'a> {
    rewind: &'r mut Rewind<'a>,
    at: usize,
    depth: u32,
}

impl Source for Past<'_, '_> {
    fn read(&mut self, register: Gpr) -> Option<NodeId> {
        self.rewind.value(register, self.at, self.depth)
    }
    fn exprs(&mut self) -> &mut Exprs {
        &mut self.rewind.exprs
    }
}
