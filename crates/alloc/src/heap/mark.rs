//! The second word of a free object, made of its address. So an object that is freed twice, or written to while it is free, is
//! noticed before its memory is handed out twice.
//!
//! # Safety
//! The word is read as whatever the memory holds, by an instruction that the compiler does not look into: a program may never
//! have written to it. Under Miri, and on processors without such an instruction here, no object in use seems to be free.
#![allow(unsafe_code)]

use super::span::Block;

/// An arbitrary number, so that no program makes a mark of its own accord; its highest bit is in no address.
#[allow(clippy::cast_possible_truncation)] // on 32 bits, too
const MIX: usize = 0x9c6e_4b1f_d825_a731_u64 as usize;

/// The mark of a free object there, which is never 0, and no address.
#[inline]
pub(super) const fn of(address: usize) -> usize {
    address ^ MIX
}

/// Whether `block`, which may be in use, has its mark; false where that cannot be known.
///
/// # Safety
/// An object of a heap lies there.
#[inline]
pub(super) unsafe fn is_on(block: *const Block) -> bool {
    // SAFETY: by contract; a block has two words.
    unsafe { word(&raw const (*block).mark) == Some(of(block.addr())) }
}

/// What a word of memory holds.
///
/// # Safety
/// It is mapped, and may be read.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline]
unsafe fn word(at: *const usize) -> Option<usize> {
    let word;
    // SAFETY: by contract.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, qword ptr [{}]", out(reg) word, in(reg) at, options(readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("ldr {}, [{}]", out(reg) word, in(reg) at, options(readonly, nostack, preserves_flags));
    }
    Some(word)
}

/// Nothing: memory that was never written has no value for Miri.
///
/// # Safety
/// None is needed.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
#[inline]
unsafe fn word(_: *const usize) -> Option<usize> {
    None
}
