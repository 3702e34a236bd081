//! C interface of arenas: `hugepilot_arena` is an [`Arena`].
//!
//! # Safety
//! The header requires that one thread at a time uses a handle. Memory handed out is raw, and the
//! caller's until the arena is reset or deleted.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ffi::c_int;
use std::mem::MaybeUninit;

use hugepilot_alloc::{AllocError, Arena};
use hugepilot_units::Bytes;

use crate::error::{Failure, handle_or_null, status};
use crate::handle;
use crate::options::RawOptions;
use crate::region::{RESULT, RawPageUsage, bytes};

const ARENA: Failure = Failure::Argument("the handle is not one of hugepilot_arena_new");

/// Creates a layout of C's numbers. Checks the alignment first, because the size is rounded up to
/// it.
pub(crate) fn layout(size: usize, align: usize) -> Result<Layout, Failure> {
    if !align.is_power_of_two() {
        return Err(AllocError::Alignment(bytes(align)).into());
    }
    Layout::from_size_align(size, align).map_err(|_| AllocError::Overflow { count: 1, size }.into())
}

/// Implements the function of the header.
///
/// # Safety
/// The texts in `options` are NULL or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_arena_new(
    chunk_bytes: usize,
    limit_bytes: usize,
    options: Option<&RawOptions>,
) -> *mut Arena {
    // SAFETY: the caller's promise.
    let options = unsafe { RawOptions::read(options) };
    let limit = if limit_bytes == 0 { Bytes::MAX } else { bytes(limit_bytes) };
    handle_or_null(
        options.and_then(|options| {
            handle::new(Arena::new(bytes(chunk_bytes), options).with_limit(limit))
        }),
    )
}

/// Implements the function of the header.
///
/// # Safety
/// `arena` is NULL or a handle, and neither it nor its memory is used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_arena_delete(arena: *mut Arena) {
    // SAFETY: the caller's promise.
    unsafe { handle::drop(arena) };
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_arena_alloc(
    arena: Option<&mut Arena>,
    size: usize,
    align: usize,
) -> *mut u8 {
    let alloc = || {
        let memory = arena.ok_or(ARENA)?.alloc_layout(layout(size, align)?)?;
        Ok(memory.as_mut_ptr().cast())
    };
    handle_or_null(alloc())
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_arena_reset(arena: Option<&mut Arena>) {
    if let Some(arena) = arena {
        arena.reset();
    }
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_arena_mapped(arena: Option<&Arena>) -> usize {
    arena.map_or(0, |arena| arena.mapped().as_usize())
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_arena_usage(
    arena: Option<&Arena>,
    usage: Option<&mut MaybeUninit<RawPageUsage>>,
) -> c_int {
    let look = || {
        let (arena, usage) = (arena.ok_or(ARENA)?, usage.ok_or(RESULT)?);
        usage.write(arena.usage()?.into());
        Ok(())
    };
    status(look())
}
