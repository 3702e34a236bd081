//! Functions without a stack frame.
//!
//! Compilers give a function that calls none and needs no stack no frame, even if asked for frame
//! pointers. Its return address is at the stack pointer all the time, and the frame pointer is that
//! of its caller, so a walk by frame pointers misses the nearest caller.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Register};

use super::effects::Effects;
use super::regs::Gpr;

/// Whether the function neither moves the stack pointer, other than by its return, nor the frame
/// pointer. `code`: the whole function, which starts at `start`.
pub(crate) fn is_frameless(code: &[u8], start: u64) -> bool {
    let frame = [Register::RSP, Register::RBP].into_iter().filter_map(Gpr::of);
    let frame = frame.fold(0, |set, gpr| set | gpr.bit());
    let mut effects = Effects::new();
    let mut moves = |instruction: &_| effects.written(instruction) & frame != 0;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    !code.is_empty()
        && decoder.iter().all(|instruction| match instruction.flow_control() {
            FlowControl::Return => true,
            FlowControl::Call | FlowControl::IndirectCall => false,
            _ => !instruction.is_invalid() && !moves(&instruction),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_function_that_leaves_both_pointers_alone_is_frameless() {
        // mov rax, [rdi]; ret
        let plain = [0x48, 0x8b, 0x07, 0xc3];
        assert!(is_frameless(&plain, 0x1000));
        let with = |bytes: &[u8]| is_frameless(&[bytes, &plain].concat(), 0x1000);
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
        assert!(!is_frameless(&[], 0x1000) && !is_frameless(&plain[..2], 0x1000));
    }
}
