//! Effects of instructions on registers and control flow.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::regs::Gpr;

/// Registers that a function may change under the System V calling convention: rax, rcx, rdx, rsi,
/// rdi, r8 to r11.
const CALLER_SAVED: u16 = 0b0000_1111_1100_0111;

/// Registers and memory that instructions read and write.
pub(super) struct Effects {
    factory: InstructionInfoFactory,
}

impl Effects {
    pub(super) fn new() -> Self {
        Self { factory: InstructionInfoFactory::new() }
    }

    /// Returns the general registers that `instruction` may change, in whole or in part. A call
    /// changes what the called function may change; the stack pointer is restored when it returns.
    pub(super) fn written(&mut self, instruction: &Instruction) -> u16 {
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return CALLER_SAVED;
        }
        let info = self.factory.info(instruction);
        let changed = info.used_registers().iter().filter(|used| writes(used.access()));
        changed.filter_map(|used| Gpr::of(used.register())).fold(0, |set, gpr| set | gpr.bit())
    }

    /// Returns all registers, including vector registers, that `instruction` changes (`true`) or
    /// reads (`false`).
    pub(super) fn registers(&mut self, instruction: &Instruction, changed: bool) -> Vec<Register> {
        let wanted = |access| if changed { writes(access) } else { reads(access) };
        let info = self.factory.info(instruction);
        let used = info.used_registers().iter().filter(|used| wanted(used.access()));
        used.map(|used| used.register().full_register()).collect()
    }

    /// Returns the memory accesses of `instruction`, explicit or not: base, index, displacement and
    /// whether it writes.
    pub(super) fn memory(&mut self, instruction: &Instruction) -> Vec<iced_x86::UsedMemory> {
        let used = self.factory.info(instruction).used_memory();
        used.iter().filter(|used| reads(used.access()) || writes(used.access())).copied().collect()
    }
}

/// Whether the access reads, perhaps conditionally.
pub(super) fn reads(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

/// Whether the access writes, perhaps conditionally.
pub(super) fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Whether the following instruction in memory is not necessarily the next one executed, or
/// registers may have other values than this instruction gives them: calls, jumps, returns, system
/// calls, traps. A conditional branch is not a barrier: code after it implies that it was not
/// taken.
pub(super) fn is_barrier(instruction: &Instruction) -> bool {
    !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
        || instruction.mnemonic() == Mnemonic::Hlt
}

/// Returns an address that control can enter from elsewhere because of this instruction: its branch
/// target, or its own address if it marks the target of indirect branches. Targets in jump tables
/// have no mark.
pub(super) fn entry(instruction: &Instruction) -> Option<u64> {
    let marked = instruction.mnemonic() == Mnemonic::Endbr64;
    branch_target(instruction).or(marked.then_some(instruction.ip()))
}

/// Returns the target of a direct near branch or call.
fn branch_target(instruction: &Instruction) -> Option<u64> {
    let near = [OpKind::NearBranch16, OpKind::NearBranch32, OpKind::NearBranch64];
    (instruction.op_count() > 0 && near.contains(&instruction.op0_kind()))
        .then(|| instruction.near_branch_target())
}

/// Returns the target of a direct jump, conditional or not. Calls return, so they do not count.
pub(super) fn jump_target(instruction: &Instruction) -> Option<u64> {
    let flow = instruction.flow_control();
    matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
        .then(|| branch_target(instruction))
        .flatten()
}
