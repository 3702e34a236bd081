//! What an instruction does to registers, and where it lets control go.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::regs::Gpr;

/// Registers a function may change under the System V calling convention: rax, rcx, rdx, rsi, rdi, r8 to r11.
const CALLER_SAVED: u16 = 0b0000_1111_1100_0111;

/// Looks up what instructions read and write.
pub(super) struct Effects {
    factory: InstructionInfoFactory,
}

impl Effects {
    pub(super) fn new() -> Self {
        Self { factory: InstructionInfoFactory::new() }
    }

    /// The general registers that `instruction` may change, in whole or in part. A call counts for what the
    /// function it calls may change; the stack pointer is back where it was when it returns.
    pub(super) fn written(&mut self, instruction: &Instruction) -> u16 {
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return CALLER_SAVED;
        }
        let info = self.factory.info(instruction);
        let changed = info.used_registers().iter().filter(|used| writes(used.access()));
        changed.filter_map(|used| Gpr::of(used.register())).fold(0, |set, gpr| set | gpr.bit())
    }

    /// All registers, vector registers too, that `instruction` changes (`true`) or reads (`false`).
    pub(super) fn registers(&mut self, instruction: &Instruction, changed: bool) -> Vec<Register> {
        let wanted = |access| if changed { writes(access) } else { reads(access) };
        let info = self.factory.info(instruction);
        let used = info.used_registers().iter().filter(|used| wanted(used.access()));
        used.map(|used| used.register().full_register()).collect()
    }

    /// What `instruction` accesses besides, or as, its operand: base, index, displacement and whether it writes.
    pub(super) fn memory(&mut self, instruction: &Instruction) -> Vec<iced_x86::UsedMemory> {
        let used = self.factory.info(instruction).used_memory();
        used.iter().filter(|used| reads(used.access()) || writes(used.access())).copied().collect()
    }
}

/// Whether the access reads, perhaps under a condition.
pub(super) fn reads(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

/// Whether the access writes, perhaps under a condition.
pub(super) fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Whether the instruction after it in memory need not be the one that runs next, or registers need not be what
/// this instruction alone made them: calls, jumps, returns, system calls, traps. Conditional branches are no
/// barrier: whoever is past one did not take it.
pub(super) fn is_barrier(instruction: &Instruction) -> bool {
    !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
        || instruction.mnemonic() == Mnemonic::Hlt
}

/// A place that control can come to from elsewhere, as far as this instruction tells: where it branches to, or
/// where it is, when it marks the target of indirect branches. Targets in jump tables carry no mark.
pub(super) fn entry(instruction: &Instruction) -> Option<u64> {
    let marked = instruction.mnemonic() == Mnemonic::Endbr64;
    branch_target(instruction).or(marked.then_some(instruction.ip()))
}

/// Where a direct near branch or call goes.
fn branch_target(instruction: &Instruction) -> Option<u64> {
    let near = [OpKind::NearBranch16, OpKind::NearBranch32, OpKind::NearBranch64];
    (instruction.op_count() > 0 && near.contains(&instruction.op0_kind()))
        .then(|| instruction.near_branch_target())
}

/// Where a direct jump, conditional or not, goes; calls come back and do not count.
pub(super) fn jump_target(instruction: &Instruction) -> Option<u64> {
    let flow = instruction.flow_control();
    matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
        .then(|| branch_target(instruction))
        .flatten()
}
