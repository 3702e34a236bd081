//! Stride of an instruction through memory, per iteration of its loop.

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::access::{Access, Place};
use super::effects::{Effects, jump_target};
use super::emulate::{stack_step, written_width};
use super::listing::Listing;
use super::regs::Gpr;

/// Size limit of a loop.
const MAX_LOOP_BYTES: u64 = 4 << 10;

/// Stride of the accessing instruction in its innermost loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// A constant number of bytes per iteration: only constants are added to its address registers.
    Bytes(i64),
    /// The same address in every iteration.
    Constant,
    /// Unknown: the address depends on data, or there is no loop.
    Unknown,
}

/// Returns the stride of `access`.
pub(super) fn stride(listing: &Listing, access: &Access, effects: &mut Effects) -> Stride {
    if let Some(step) = access.string_step {
        return Stride::Bytes(step);
    }
    match innermost_loop(listing, access.at)
        .map(|(head, end)| net_step(listing, head, end, access, effects))
    {
        Some(Some(0)) => Stride::Constant,
        Some(Some(bytes)) => Stride::Bytes(bytes),
        _ => Stride::Unknown,
    }
}

/// Returns the first and last instruction of the smallest range that contains `at` and that a
/// direct jump at its end repeats.
fn innermost_loop(listing: &Listing, at: usize) -> Option<(usize, usize)> {
    let ip = listing.instructions[at].ip();
    let repeats =
        listing.instructions.iter().enumerate().skip(at).filter_map(|(end, instruction)| {
            let target = jump_target(instruction).filter(|&target| target <= ip)?;
            let bytes = instruction.next_ip() - target;
            let head = listing.index_of(target).filter(|_| bytes <= MAX_LOOP_BYTES)?;
            Some((bytes, head, end))
        });
    repeats.min().map(|(_, head, end)| (head, end))
}

/// Returns the change of the address by one iteration; `None` if it depends on more than constants.
fn net_step(
    listing: &Listing,
    head: usize,
    end: usize,
    access: &Access,
    effects: &mut Effects,
) -> Option<i64> {
    let wanted = access.place.registers();
    let body = &listing.instructions[head..=end];
    let mut net = 0_i64;
    for (at, instruction) in body.iter().enumerate() {
        for register in Gpr::in_set(effects.written(instruction) & wanted) {
            if repeats_inside(body, at) {
                return None;
            }
            let step = constant_step(instruction, register)?;
            net = net.wrapping_add(step.wrapping_mul(factor(access.place, register)));
        }
    }
    Some(net)
}

/// Whether instruction `at` is in a loop within this loop.
fn repeats_inside(body: &[Instruction], at: usize) -> bool {
    let (head, ip) = (body[0].ip(), body[at].ip());
    body[at..].iter().filter_map(jump_target).any(|target| head < target && target <= ip)
}

/// Returns the factor of the register in the address.
fn factor(place: Place, register: Gpr) -> i64 {
    let as_base = i64::from(place.base == Some(register));
    let as_index = if place.index == Some(register) { i64::from(place.scale) } else { 0 };
    as_base + as_index
}

/// Returns the constant that the instruction adds to the register, if that is its only effect on
/// it.
fn constant_step(instruction: &Instruction, register: Gpr) -> Option<i64> {
    if let Some(step) = stack_step(instruction, register) {
        return Some(step.cast_signed());
    }
    let width = written_width(instruction, register)?;
    let signed = |value: u64| match width {
        4 => i64::from((value & 0xffff_ffff) as u32 as i32),
        _ => value.cast_signed(),
    };
    let immediate = || {
        let is_number = instruction.op_count() > 1 && instruction.op1_kind() != OpKind::Register;
        is_number.then(|| instruction.try_immediate(1).ok()).flatten().map(signed)
    };
    match instruction.mnemonic() {
        Mnemonic::Inc => Some(1),
        Mnemonic::Dec => Some(-1),
        Mnemonic::Add => immediate(),
        Mnemonic::Sub => immediate().map(i64::wrapping_neg),
        Mnemonic::Lea => Place::of_operand(instruction).ok()?.offset_from(register).map(signed),
        _ => None,
    }
}
