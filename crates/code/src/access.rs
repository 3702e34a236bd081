//! Memory accesses of instructions, and the access on which a sample stalled.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register, UsedMemory};

use super::NoAddress;
use super::effects::{Effects, is_barrier, reads, writes};
use super::emulate::Source;
use super::expression::{Binary, NodeId, Unary};
use super::listing::Listing;
use super::regs::Gpr;

/// Largest distance of the stalled load from the last instruction, in instructions.
const MAX_SKID: usize = 2;

/// Memory operand: `base + index * scale + displacement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) base: Option<Gpr>,
    pub(super) index: Option<Gpr>,
    pub(super) scale: u32,
    displacement: u64,
    /// Whether the address is truncated to 32 bits.
    narrow: bool,
}

impl Place {
    /// Returns the explicit memory operand, without its segment.
    pub(super) fn of_operand(instruction: &Instruction) -> Result<Self, NoAddress> {
        if instruction.is_ip_rel_memory_operand() {
            let displacement = instruction.ip_rel_memory_address();
            return Ok(Self { base: None, index: None, scale: 1, displacement, narrow: false });
        }
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = instruction.memory_displacement64();
        Self::named(base, index, instruction.memory_index_scale(), displacement)
    }

    fn named(
        base: Register,
        index: Register,
        scale: u32,
        displacement: u64,
    ) -> Result<Self, NoAddress> {
        let gpr = |register: Register| match register {
            Register::None => Ok(None),
            _ if register.is_gpr32() || register.is_gpr64() => Ok(Gpr::of(register)),
            _ => Err(NoAddress::Unaddressable),
        };
        let narrow = base.is_gpr32() || index.is_gpr32();
        Ok(Self { base: gpr(base)?, index: gpr(index)?, scale, displacement, narrow })
    }

    /// Returns the registers of the address.
    pub(super) fn registers(&self) -> u16 {
        [self.base, self.index].into_iter().flatten().fold(0, |set, register| set | register.bit())
    }

    /// Returns the constant added to `register` if the address is only that: `[register + 8]`.
    pub(super) fn offset_from(&self, register: Gpr) -> Option<u64> {
        let alone = match (self.base, self.index) {
            (Some(only), None) => only == register,
            (None, Some(only)) => only == register && self.scale == 1,
            _ => false,
        };
        alone.then_some(self.displacement)
    }

    /// Computes the address from the registers.
    pub(super) fn address(&self, source: &mut impl Source) -> Option<NodeId> {
        let mut sum = source.exprs().constant(self.displacement)?;
        if let Some(base) = self.base {
            let base = source.read(base)?;
            sum = match self.displacement {
                0 => base,
                _ => source.exprs().two(Binary::Add, base, sum)?,
            };
        }
        if let Some(index) = self.index {
            let index = source.read(index)?;
            let scale = source.exprs().constant(u64::from(self.scale))?;
            let scaled = if self.scale == 1 {
                index
            } else {
                source.exprs().two(Binary::Mul, index, scale)?
            };
            sum = source.exprs().two(Binary::Add, sum, scaled)?;
        }
        if self.narrow { source.exprs().one(Unary::Zero32, sum) } else { Some(sum) }
    }
}

/// Memory access of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// Index of the accessing instruction.
    pub(super) at: usize,
    /// Index of the instruction before which the registers of `place` are read.
    pub(super) registers_at: usize,
    pub(super) place: Place,
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// Step of a string instruction, in bytes.
    pub(super) string_step: Option<i64>,
}

/// Finds the access on which a sample at `listing.here` stalled.
pub(super) fn stalled_access(
    listing: &Listing,
    effects: &mut Effects,
) -> Result<Access, NoAddress> {
    let here = listing.here;
    if let Some(interrupted) =
        listing.instructions.get(here).filter(|next| is_repeated_string(next))
    {
        // It can be interrupted half-way, and is then also the next instruction.
        return string_access(interrupted, here, here, 0);
    }
    let last = here - 1;
    let previous = &listing.instructions[last];
    if listing.is_target(previous.next_ip()) {
        return Err(NoAddress::BranchTarget);
    }
    if is_barrier(previous) {
        return Err(NoAddress::AfterTransfer);
    }
    match access(previous, last, effects) {
        Err(NoAddress::NoMemoryOperand) => retired_together(listing, last, effects),
        found => found,
    }
}

/// Finds the access of the compare that is fused with the taken branch before `listing.here`. The
/// straight line ends at the branch.
pub(super) fn stalled_before_branch(
    listing: &Listing,
    effects: &mut Effects,
) -> Result<Access, NoAddress> {
    retired_together(listing, listing.here - 1, effects)
}

/// Finds a load that retired together with the last instruction. A wide processor retires a load
/// and its dependent instructions at once. If the last instruction has no memory operand but uses
/// the result of a load just before it, the load stalled. A compare fused with its branch is one
/// such case.
fn retired_together(
    listing: &Listing,
    last: usize,
    effects: &mut Effects,
) -> Result<Access, NoAddress> {
    let consumer = &listing.instructions[last];
    let mut wanted = effects.registers(consumer, false);
    let mut wanted_flags = consumer.rflags_read();
    for at in (last.saturating_sub(MAX_SKID)..last).rev() {
        let candidate = &listing.instructions[at];
        let follower = &listing.instructions[at + 1];
        let straight = candidate.flow_control() == FlowControl::Next && !is_barrier(candidate);
        if !straight || listing.is_target(follower.ip()) {
            break;
        }
        let produced = effects.registers(candidate, true);
        let feeds = produced.iter().any(|register| wanted.contains(register))
            || candidate.rflags_modified() & wanted_flags != 0;
        match access(candidate, at, effects) {
            Ok(access) if feeds && access.reads => return Ok(access),
            Err(NoAddress::NoMemoryOperand) => {}
            _ => break,
        }
        wanted.retain(|register| !produced.contains(register));
        wanted_flags &= !candidate.rflags_modified();
    }
    Err(NoAddress::NoMemoryOperand)
}

/// Returns the memory access of one instruction.
fn access(
    instruction: &Instruction,
    at: usize,
    effects: &mut Effects,
) -> Result<Access, NoAddress> {
    if instruction.is_string_instruction() {
        return string_access(instruction, at, at + 1, 1);
    }
    let used = effects.memory(instruction);
    if used.is_empty() {
        return Err(NoAddress::NoMemoryOperand);
    }
    let explicit = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    let (segment, place, how) = if explicit {
        if is_bit_string(instruction) || pops_beside_stack(instruction) {
            return Err(NoAddress::Unaddressable);
        }
        let place = Place::of_operand(instruction)?;
        let segment = instruction.memory_segment();
        // The operand of push or pop that is not the stack slot.
        let operand =
            used.iter().find(|used| used.segment() == segment && !is_stack_slot(instruction, used));
        (segment, place, operand.or(used.first()).map(|used| used.access()))
    } else {
        let used = used[0];
        let place = Place::named(used.base(), used.index(), used.scale(), used.displacement())?;
        (used.segment(), place, Some(used.access()))
    };
    if matches!(segment, Register::FS | Register::GS) {
        return Err(NoAddress::Segment);
    }
    let (reads, writes) = (how.is_some_and(reads), how.is_some_and(writes));
    Ok(Access { at, registers_at: at, place, reads, writes, string_step: None })
}

/// Whether it is the stack slot that a push or pop with a memory operand also accesses.
fn is_stack_slot(instruction: &Instruction, used: &UsedMemory) -> bool {
    instruction.stack_pointer_increment() != 0 && used.base() == Register::RSP
}

/// Whether the operand of `bt` or a similar instruction is a bit string: its register counts bits
/// from the operand's address.
fn is_bit_string(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
        && instruction.op1_kind() == OpKind::Register
}

/// Whether it is a `pop` to memory, which computes the address after it moves the stack pointer.
fn pops_beside_stack(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Pop
        && instruction.memory_base().full_register() == Register::RSP
}

fn is_repeated_string(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Returns the access of a string instruction, which uses rsi, rdi or both; the source if it has
/// one. `passed` elements are between the sampled register and the accessed element. The direction
/// flag is clear, as the calling convention requires.
fn string_access(
    instruction: &Instruction,
    at: usize,
    registers_at: usize,
    passed: u64,
) -> Result<Access, NoAddress> {
    let kinds: Vec<OpKind> = instruction.op_kinds().collect();
    let has = |wide, narrow| kinds.iter().any(|kind| *kind == wide || *kind == narrow);
    let from_source = has(OpKind::MemorySegRSI, OpKind::MemorySegESI);
    if !from_source && !has(OpKind::MemoryESRDI, OpKind::MemoryESEDI) {
        return Err(NoAddress::Unaddressable);
    }
    if from_source && matches!(instruction.memory_segment(), Register::FS | Register::GS) {
        return Err(NoAddress::Segment);
    }
    let element = instruction.memory_size().size() as u64;
    let place = Place {
        base: Some(if from_source { Gpr::RSI } else { Gpr::RDI }),
        index: None,
        scale: 1,
        displacement: (passed * element).wrapping_neg(),
        narrow: kinds.iter().any(|kind| matches!(kind, OpKind::MemorySegESI | OpKind::MemoryESEDI)),
    };
    use Mnemonic::{Scasb, Scasd, Scasq, Scasw};
    let stores = !from_source && !matches!(instruction.mnemonic(), Scasb | Scasw | Scasd | Scasq);
    let string_step = i64::try_from(element).ok();
    Ok(Access { at, registers_at, place, reads: !stores, writes: stores, string_step })
}
