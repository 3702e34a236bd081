//! Results of simple integer instructions as expressions, and their inverses.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::access::Place;
use super::expression::{Binary, Exprs, NodeId, Unary};
use super::regs::{Gpr, is_high_byte};

/// Source of the inputs of an instruction.
pub(super) trait Source {
    /// Returns the value of a register before the instruction; `None` if unknown.
    fn read(&mut self, register: Gpr) -> Option<NodeId>;
    /// Returns the expressions under construction.
    fn exprs(&mut self) -> &mut Exprs;
}

/// Returns the value that `instruction` writes to `target`, one of its destination registers.
pub(super) fn result(
    instruction: &Instruction,
    target: Gpr,
    source: &mut impl Source,
) -> Option<NodeId> {
    if let Some(by) = stack_step(instruction, target) {
        return plus(target, by, source);
    }
    if let Some(value) = from_accumulator(instruction, target, source) {
        return value;
    }
    if instruction.mnemonic() == Mnemonic::Xchg {
        let (a, b) = (whole_register(instruction, 0)?, whole_register(instruction, 1)?);
        return source.read(if a == target { b } else { a });
    }
    let width = written_width(instruction, target)?;
    let value = operation(instruction, width, source)?;
    if width == 4 { source.exprs().one(Unary::Zero32, value) } else { Some(value) }
}

/// Returns the value of `target` before `instruction`, which left `after` in it. `source` has the
/// other registers.
pub(super) fn undo(
    instruction: &Instruction,
    target: Gpr,
    after: NodeId,
    source: &mut impl Source,
) -> Option<NodeId> {
    use Binary::{Add, RotateLeft, Sub, Xor};
    use Mnemonic as M;
    if let Some(by) = stack_step(instruction, target) {
        let by = source.exprs().constant(by)?;
        return source.exprs().two(Sub, after, by);
    }
    if written_width(instruction, target)? != 8 {
        return None;
    }
    match instruction.mnemonic() {
        M::Add | M::Sub | M::Xor | M::Ror => {
            let op = match instruction.mnemonic() {
                M::Add => Sub,
                M::Sub => Add,
                M::Xor => Xor,
                _ => RotateLeft,
            };
            let by = foreign_operand(instruction, target, source)?;
            source.exprs().two(op, after, by)
        }
        M::Inc | M::Dec => {
            let one = source.exprs().constant(1)?;
            source.exprs().two(if instruction.mnemonic() == M::Inc { Sub } else { Add }, after, one)
        }
        M::Neg => source.exprs().one(Unary::Neg, after),
        M::Not => source.exprs().one(Unary::Not, after),
        M::Bswap => source.exprs().one(Unary::Swap64, after),
        M::Rol => {
            let by = foreign_operand(instruction, target, source)?;
            let back = source.exprs().one(Unary::Neg, by)?;
            source.exprs().two(RotateLeft, after, back)
        }
        M::Lea => undo_lea(instruction, target, after, source),
        _ => None,
    }
}

/// Inverts a `lea` that added to its own target.
fn undo_lea(
    instruction: &Instruction,
    target: Gpr,
    after: NodeId,
    source: &mut impl Source,
) -> Option<NodeId> {
    let mut added = Place::of_operand(instruction).ok()?;
    if added.base == Some(target) {
        added.base = None;
    } else if added.index == Some(target) && added.scale == 1 {
        added.index = None;
    } else {
        return None;
    }
    if added.registers() & target.bit() != 0 {
        return None;
    }
    let added = added.address(source)?;
    source.exprs().two(Binary::Sub, after, added)
}

/// Returns the second operand, which must not involve `target`.
fn foreign_operand(
    instruction: &Instruction,
    target: Gpr,
    source: &mut impl Source,
) -> Option<NodeId> {
    let register = instruction.op1_kind() == OpKind::Register;
    if register && Gpr::of(instruction.op1_register()) == Some(target) {
        return None;
    }
    operand(instruction, 1, source)
}

/// Returns the result in the first operand, not yet truncated to its width of 4 or 8 bytes.
fn operation(instruction: &Instruction, width: usize, source: &mut impl Source) -> Option<NodeId> {
    use Binary as B;
    use Mnemonic as M;
    let ins = instruction;
    match ins.mnemonic() {
        M::Mov | M::Movzx => operand(ins, 1, source),
        M::Movsx | M::Movsxd => {
            let value = operand(ins, 1, source)?;
            let sign = sign_extension(ins.op1_register().size())?;
            source.exprs().one(sign, value)
        }
        M::Lea => Place::of_operand(ins).ok()?.address(source),
        M::Xor | M::Sub
            if ins.op1_kind() == OpKind::Register && ins.op0_register() == ins.op1_register() =>
        {
            source.exprs().constant(0)
        }
        M::Add => binary(ins, B::Add, (0, 1), source),
        M::Sub => binary(ins, B::Sub, (0, 1), source),
        M::And => binary(ins, B::And, (0, 1), source),
        M::Or => binary(ins, B::Or, (0, 1), source),
        M::Xor => binary(ins, B::Xor, (0, 1), source),
        M::Imul if ins.op_count() == 2 => binary(ins, B::Mul, (0, 1), source),
        M::Imul if ins.op_count() == 3 => binary(ins, B::Mul, (1, 2), source),
        M::Andn => {
            let first = operand(ins, 1, source)?;
            let inverted = source.exprs().one(Unary::Not, first)?;
            let second = operand(ins, 2, source)?;
            source.exprs().two(B::And, inverted, second)
        }
        M::Inc => step(ins, B::Add, source),
        M::Dec => step(ins, B::Sub, source),
        M::Not => unary(ins, Unary::Not, source),
        M::Neg => unary(ins, Unary::Neg, source),
        M::Bswap => unary(ins, if width == 4 { Unary::Swap32 } else { Unary::Swap64 }, source),
        M::Shl | M::Sal => shift(ins, B::ShiftLeft, (0, 1), width, source),
        M::Shr => shift(ins, B::ShiftRight, (0, 1), width, source),
        M::Sar => shift(ins, B::ShiftRightSigned, (0, 1), width, source),
        M::Shlx => shift(ins, B::ShiftLeft, (1, 2), width, source),
        M::Shrx => shift(ins, B::ShiftRight, (1, 2), width, source),
        M::Sarx => shift(ins, B::ShiftRightSigned, (1, 2), width, source),
        M::Rol => rotate(ins, (0, 1), width, true, source),
        M::Ror => rotate(ins, (0, 1), width, false, source),
        M::Rorx => rotate(ins, (1, 2), width, false, source),
        _ => None,
    }
}

fn unary(ins: &Instruction, op: Unary, source: &mut impl Source) -> Option<NodeId> {
    let value = operand(ins, 0, source)?;
    source.exprs().one(op, value)
}

fn binary(
    ins: &Instruction,
    op: Binary,
    of: (u32, u32),
    source: &mut impl Source,
) -> Option<NodeId> {
    let (a, b) = (operand(ins, of.0, source)?, operand(ins, of.1, source)?);
    source.exprs().two(op, a, b)
}

fn step(ins: &Instruction, op: Binary, source: &mut impl Source) -> Option<NodeId> {
    let (value, one) = (operand(ins, 0, source)?, source.exprs().constant(1)?);
    source.exprs().two(op, value, one)
}

fn shift(
    ins: &Instruction,
    op: Binary,
    of: (u32, u32),
    width: usize,
    source: &mut impl Source,
) -> Option<NodeId> {
    let (mut value, mut by) = (operand(ins, of.0, source)?, operand(ins, of.1, source)?);
    if width == 4 {
        let modulo = source.exprs().constant(31)?;
        by = source.exprs().two(Binary::And, by, modulo)?;
        if op == Binary::ShiftRightSigned {
            value = source.exprs().one(Unary::Sign32, value)?;
        }
    }
    source.exprs().two(op, value, by)
}

fn rotate(
    ins: &Instruction,
    of: (u32, u32),
    width: usize,
    left: bool,
    source: &mut impl Source,
) -> Option<NodeId> {
    let (value, mut by) = (operand(ins, of.0, source)?, operand(ins, of.1, source)?);
    if !left {
        by = source.exprs().one(Unary::Neg, by)?;
    }
    let op = if width == 4 { Binary::RotateLeft32 } else { Binary::RotateLeft };
    source.exprs().two(op, value, by)
}

/// Returns the result of a sign extension within rax, or from rax into rdx. The outer `None`:
/// another instruction.
#[allow(clippy::option_option)]
fn from_accumulator(
    instruction: &Instruction,
    target: Gpr,
    source: &mut impl Source,
) -> Option<Option<NodeId>> {
    let (widen, sign_bits, into) = match instruction.mnemonic() {
        Mnemonic::Cwde => (Some(Unary::Sign16), false, Gpr::RAX),
        Mnemonic::Cdqe => (Some(Unary::Sign32), false, Gpr::RAX),
        Mnemonic::Cdq => (Some(Unary::Sign32), true, Gpr::RDX),
        Mnemonic::Cqo => (None, true, Gpr::RDX),
        _ => return None,
    };
    let mut compute = || {
        let mut value = source.read(Gpr::RAX).filter(|_| into == target)?;
        if let Some(widen) = widen {
            value = source.exprs().one(widen, value)?;
        }
        if sign_bits {
            let all = source.exprs().constant(63)?;
            value = source.exprs().two(Binary::ShiftRightSigned, value, all)?;
        }
        let narrow = matches!(instruction.mnemonic(), Mnemonic::Cwde | Mnemonic::Cdq);
        if narrow { source.exprs().one(Unary::Zero32, value) } else { Some(value) }
    };
    Some(compute())
}

/// Returns the value of a register or immediate operand, zero-extended from its width.
fn operand(instruction: &Instruction, number: u32, source: &mut impl Source) -> Option<NodeId> {
    if number >= instruction.op_count() {
        return None;
    }
    match instruction.op_kind(number) {
        OpKind::Register => part(instruction.op_register(number), source),
        OpKind::Memory => None,
        _ => {
            let value = instruction.try_immediate(number).ok()?;
            source.exprs().constant(value)
        }
    }
}

/// Returns the value of a register or of a part of one, zero-extended.
fn part(register: Register, source: &mut impl Source) -> Option<NodeId> {
    let whole = source.read(Gpr::of(register)?)?;
    if is_high_byte(register) {
        let by = source.exprs().constant(8)?;
        let shifted = source.exprs().two(Binary::ShiftRight, whole, by)?;
        return source.exprs().one(Unary::Zero8, shifted);
    }
    match register.size() {
        8 => Some(whole),
        4 => source.exprs().one(Unary::Zero32, whole),
        2 => source.exprs().one(Unary::Zero16, whole),
        _ => source.exprs().one(Unary::Zero8, whole),
    }
}

fn sign_extension(bytes: usize) -> Option<Unary> {
    match bytes {
        1 => Some(Unary::Sign8),
        2 => Some(Unary::Sign16),
        4 => Some(Unary::Sign32),
        _ => None,
    }
}

/// Returns the change of the stack pointer by push, pop and similar instructions.
pub(super) fn stack_step(instruction: &Instruction, target: Gpr) -> Option<u64> {
    use Mnemonic::{Pop, Popfq, Push, Pushfq};
    let moves = matches!(instruction.mnemonic(), Push | Pop | Pushfq | Popfq);
    let into_itself = instruction.mnemonic() == Pop && instruction.op0_register() == Register::RSP;
    (target == Gpr::RSP && moves && !into_itself)
        .then(|| i64::from(instruction.stack_pointer_increment()).cast_unsigned())
}

fn plus(register: Gpr, by: u64, source: &mut impl Source) -> Option<NodeId> {
    let (value, by) = (source.read(register)?, source.exprs().constant(by)?);
    source.exprs().two(Binary::Add, value, by)
}

/// Returns the register of an operand, if it is a whole one of 64 bits.
pub(super) fn whole_register(instruction: &Instruction, number: u32) -> Option<Gpr> {
    let is_register =
        number < instruction.op_count() && instruction.op_kind(number) == OpKind::Register;
    is_register
        .then(|| instruction.op_register(number))
        .filter(|register| register.is_gpr64())
        .and_then(Gpr::of)
}

/// Returns 4 or 8 if the first operand is `target` in that width: a write that replaces the whole
/// old value.
pub(super) fn written_width(instruction: &Instruction, target: Gpr) -> Option<usize> {
    let is_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
    let register = is_register.then(|| instruction.op0_register())?;
    let whole = (register.is_gpr32() || register.is_gpr64()) && Gpr::of(register) == Some(target);
    whole.then(|| register.size())
}
