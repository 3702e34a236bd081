//! Per-thread [`Slot`], read by every allocation.
//!
//! # Safety
//! The assembly only computes the address of the calling thread's copy of a zero-initialised
//! variable.
#![allow(unsafe_code)]

use super::thread::Slot;

/// Returns the calling thread's slot.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[inline]
pub(super) fn get() -> &'static Slot {
    let slot: *const Slot;
    // Two instructions, also in a shared library, where a `thread_local!` would call a function of
    // the dynamic linker. The library must be loaded with the program, or find room in the C
    // library's reserve for static TLS.
    //
    // SAFETY: reads the thread pointer and adds the offset of the variable below.
    unsafe {
        std::arch::asm!(
            "mov {slot}, qword ptr fs:[0]",
            "add {slot}, qword ptr [rip + hugepilot_alloc_slot@gottpoff]",
            slot = out(reg) slot,
            options(pure, readonly, nostack),
        );
        // SAFETY: a variable of the calling thread, of this size and alignment; zeros are an empty
        // slot. It stays in its thread: `Slot` is not `Sync`.
        &*slot
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
std::arch::global_asm!(
    ".pushsection .tbss.hugepilot_alloc_slot,\"awT\",@nobits",
    ".p2align 5",
    ".globl hugepilot_alloc_slot",
    ".hidden hugepilot_alloc_slot",
    ".type hugepilot_alloc_slot, @object",
    ".size hugepilot_alloc_slot, 24",
    "hugepilot_alloc_slot:",
    ".zero 24",
    ".popsection",
);

/// Returns the calling thread's slot.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
#[inline]
pub(super) fn get() -> &'static Slot {
    thread_local! {
        static SLOT: Slot = const { Slot::new() };
    }
    // SAFETY: it has no destructor, so it lives as long as the thread; see above.
    SLOT.with(|slot| unsafe { &*std::ptr::from_ref(slot) })
}
