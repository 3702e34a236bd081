//! Types that zeroed memory is a value of, and slices of them that threads share.
//!
//! # Safety
//! A [`Zero`] type may be read from memory that was never written. A [`Plain`] value and its cell
//! have the same size, alignment and bits, and all bytes are a value.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Types for which memory fresh from the kernel is a value.
///
/// # Safety
/// All bytes zero are a valid value of the type, and it has no destructor.
pub unsafe trait Zero {}

/// Integers that threads can share as atomics.
///
/// # Safety
/// A `Cell` has the size, the alignment and all bit patterns of a value, and can be changed through
/// `&`. A value has no padding, and all bytes of its size are a value.
pub unsafe trait Plain: Zero + Copy {
    /// Atomic type of the same layout.
    type Cell: Zero + Sync;
}

macro_rules! zero {
    ($($type:ty),*) => { $(
        // SAFETY: a number, or an atomic number.
        unsafe impl Zero for $type {}
    )* };
}
zero!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
zero!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);

// SAFETY: an array of such types.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}

macro_rules! plain {
    ($($type:ty => $cell:ty),*) => { $(
        // SAFETY: the standard library documents the same size, alignment and bits.
        unsafe impl Plain for $type {
            type Cell = $cell;
        }
        const _: () = assert!(align_of::<$type>() == align_of::<$cell>());
    )* };
}
plain!(u8 => AtomicU8, u16 => AtomicU16, u32 => AtomicU32, u64 => AtomicU64);

/// Returns the values as atomics while they are borrowed, so that several threads may write them.
pub const fn cells<T: Plain>(values: &mut [T]) -> &[T::Cell] {
    // SAFETY: the same layout, by the trait; `&mut` excludes all other users for the life of the
    // result.
    unsafe { std::slice::from_raw_parts(values.as_mut_ptr().cast(), values.len()) }
}

/// Returns the bytes of the values, in native byte order.
pub const fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: a value has no padding, by the trait, and a byte needs no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns the bytes of the values for writing, such as reading a file straight into integers.
pub const fn bytes_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    let len = size_of_val(values);
    // SAFETY: as in `bytes`; all written bytes are a value, by the trait, and `&mut` excludes all
    // other users.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), len) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::{HugeVec, Options};

    #[test]
    fn bytes_are_those_of_the_values() {
        let mut values = [1u32, 0x0203_0405, u32::MAX];
        let plainly: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(bytes(&values), plainly);
        bytes_mut(&mut values)[4..8].copy_from_slice(&7u32.to_ne_bytes());
        assert_eq!(values, [1, 7, u32::MAX]);
        assert!(bytes::<u64>(&[]).is_empty() && bytes_mut::<u8>(&mut []).is_empty());
    }

    #[test]
    fn threads_write_through_cells_and_the_values_are_there() {
        let mut values = HugeVec::<u32>::zeroed(10_000, Options::default()).unwrap();
        assert!(values.iter().all(|&value| value == 0));
        let shared = cells(&mut values);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for (i, cell) in shared.iter().enumerate().skip(thread).step_by(4) {
                        cell.fetch_add(u32::try_from(i).unwrap(), Relaxed);
                    }
                });
            }
        });
        assert!(values.iter().enumerate().all(|(i, &value)| i == value as usize));
    }
}
