//! Functions without a stack frame.
//!
//! Compilers give a function that calls none and needs no stack no frame, even if asked for frame
//! pointers. Its return address is at the stack pointer all the time, and the frame pointer is that
//! of its caller, so a walk by frame pointers misses the nearest caller.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Register};

use super::effects::Effects;
use super::regs::Gpr;

/// Whether the function neither moves the stack pointer, other than by its return, nor the frame
/// pointer. `code`: the whole function, which starts at `start`. `is_start`: whether a function
/// starts at an address.
///
/// A part of a function that the compiler moved elsewhere (`NAME.cold`) has the frame of the rest.
/// It jumps back into the rest, or never returns.
pub fn is_frameless(code: &[u8], start: u64, is_start: &dyn Fn(u64) -> bool) -> bool {
    let frame = [Register::RSP, Register::RBP].into_iter().filter_map(Gpr::of);
    let frame = frame.fold(0, |set, gpr| set | gpr.bit());
    let mut effects = Effects::new();
    let mut moves = |instruction: &_| effects.written(instruction) & frame != 0;
    let end = start.saturating_add(code.len() as u64);
    let (mut traps, mut returns) = (false, false);
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let leaves_pointers = decoder.iter().all(|instruction| match instruction.flow_control() {
        FlowControl::Return => {
            returns = true;
            true
        }
        FlowControl::Call | FlowControl::IndirectCall => false,
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            let target = instruction.near_branch_target();
            let is_tail_call = !(start..end).contains(&target) && is_start(target);
            returns |= is_tail_call;
            is_tail_call || (start..end).contains(&target)
        }
        flow => {
            traps |= matches!(flow, FlowControl::Exception | FlowControl::Interrupt);
            !instruction.is_invalid() && !moves(&instruction)
        }
    });
    !code.is_empty() && leaves_pointers && (returns || !traps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_function_that_leaves_both_pointers_alone_is_frameless() {
        // mov rax, [rdi]; ret
        let plain = [0x48, 0x8b, 0x07, 0xc3];
        let is_frameless = |code: &[u8]| is_frameless(code, 0x1000, &|_| false);
        assert!(is_frameless(&plain));
        let with = |bytes: &[u8]| is_frameless(&[bytes, &plain].concat());
        // mov [rsp-8], rax: the red zone.
        assert!(with(&[0x48, 0x89, 0x44, 0x24, 0xf8]));
        // push rbp; push rbx; sub rsp, 8; mov rbp, rsp; mov ebp, edi; pop rcx; leave; call; invalid
        let moving: [&[u8]; 9] = [
            &[0x55],
            &[0x53],
            &[0x48, 0x83, 0xec, 0x08],
            &[0x48, 0x89, 0xe5],
            &[0x89, 0xfd],
            &[0x59],
            &[0xc9],
            &[0xe8, 0, 0, 0, 0],
            &[0x06],
        ];
        for bytes in moving {
            assert!(!with(bytes), "{bytes:x?}");
        }
        assert!(!is_frameless(&[]) && !is_frameless(&plain[..2]));
    }

    #[test]
    fn a_cold_part_has_the_frame_of_its_function() {
        // 0x1000: mov rax, [rdi]; jmp TARGET
        let jump = |target: i32| {
            let distance = target - 0x1008;
            [&[0x48, 0x8b, 0x07, 0xe9][..], &distance.to_le_bytes()].concat()
        };
        let is_start = |address| address == 0x2000;
        assert!(is_frameless(&jump(0x2000), 0x1000, &is_start), "a tail call");
        assert!(!is_frameless(&jump(0x2010), 0x1000, &is_start), "back into the function");
        assert!(is_frameless(&jump(0x1000), 0x1000, &is_start), "an endless loop");
        // mov rax, [rdi]; ud2
        let trap = [0x48, 0x8b, 0x07, 0x0f, 0x0b];
        assert!(!is_frameless(&trap, 0x1000, &is_start), "it never returns");
        // test rdi, rdi; je over; ret; over: ud2
        let checked = [0x48, 0x85, 0xff, 0x74, 0x01, 0xc3, 0x0f, 0x0b];
        assert!(is_frameless(&checked, 0x1000, &is_start), "it returns, too");
        // test rdi, rdi; je back
        let distance = (0x2010 - 0x1009_i32).to_le_bytes();
        let branch = [&[0x48, 0x85, 0xff, 0x0f, 0x84][..], &distance, &[0xc3]].concat();
        assert!(!is_frameless(&branch, 0x1000, &is_start), "back into the function, or not");
    }
}
