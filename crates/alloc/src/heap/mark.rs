//! Mark in the second word of a free object, derived from its address. Detects a second free, or a
//! write to a free object, before the memory is handed out twice.
//!
//! # Safety
//! The word may be uninitialised, because the program may never have written to it. So it is read
//! by inline assembly, which the compiler does not inspect. Under Miri, and on processors without
//! such an instruction here, no object in use is taken for a free one.
#![allow(unsafe_code)]

use super::span::Block;

/// Arbitrary number, so that programs do not write marks by accident; no address has its highest
/// bit.
#[allow(clippy::cast_possible_truncation)] // on 32 bits, too
const MIX: usize = 0x9c6e_4b1f_d825_a731_u64 as usize;

/// Returns the mark of a free object at `address`: never 0, and never an address.
#[inline]
pub(super) const fn of(address: usize) -> usize {
    address ^ MIX
}

/// Returns whether `block`, which may be in use, has its mark; `false` if that cannot be known.
///
/// # Safety
/// An object of a heap lies there.
#[inline]
pub(super) unsafe fn is_on(block: *const Block) -> bool {
    // SAFETY: by contract; a block has two words.
    unsafe { word(&raw const (*block).mark) == Some(of(block.addr())) }
}

/// Reads a word of memory.
///
/// # Safety
/// It is mapped and readable.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline]
unsafe fn word(at: *const usize) -> Option<usize> {
    let word;
    // SAFETY: by contract.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "mov {}, qword ptr [{}]", out(reg) word, in(reg) at,
            options(readonly, nostack, preserves_flags)
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "ldr {}, [{}]", out(reg) word, in(reg) at,
            options(readonly, nostack, preserves_flags)
        );
    }
    Some(word)
}

/// Returns `None`: memory that was never written has no value for Miri.
///
/// # Safety
/// None is needed.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
#[inline]
unsafe fn word(_: *const usize) -> Option<usize> {
    None
}
