//! C interface of regions: `hugepilot_region` is a [`HugeRegion`].
//!
//! # Safety
//! A `&mut` stands for a handle that the header reserves to one thread at a time. Callers pass the
//! true size of a text buffer. Results are written only as a whole.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint};
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::ptr;

use hugepilot_alloc::{CollapseOutcome, HugeRegion, NameStatus, PageUsage};
use hugepilot_units::Bytes;

use crate::error::{self, Code, Failure, handle_or_null, status};
use crate::options::RawOptions;
use crate::{handle, text};

/// `hugepilot_usage` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the header says what they mean
pub struct RawPageUsage {
    pub base_bytes: u64,
    pub thp_bytes: u64,
    pub hugetlb_2m_bytes: u64,
    pub hugetlb_1g_bytes: u64,
    pub zero_bytes: u64,
    pub swapped_bytes: u64,
    pub untouched_bytes: u64,
}

impl From<PageUsage> for RawPageUsage {
    fn from(usage: PageUsage) -> Self {
        let PageUsage { base, thp, hugetlb_2m, hugetlb_1g, zero, swapped, untouched } = usage;
        Self {
            base_bytes: base.get(),
            thp_bytes: thp.get(),
            hugetlb_2m_bytes: hugetlb_2m.get(),
            hugetlb_1g_bytes: hugetlb_1g.get(),
            zero_bytes: zero.get(),
            swapped_bytes: swapped.get(),
            untouched_bytes: untouched.get(),
        }
    }
}

/// `hugepilot_collapse_outcome` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the header says what they mean
pub struct RawCollapseOutcome {
    pub before_bytes: u64,
    pub after_bytes: u64,
    pub empty_bytes: u64,
    pub refused_bytes: u64,
    pub last_errno: c_int,
}

impl From<CollapseOutcome> for RawCollapseOutcome {
    fn from(collapsed: CollapseOutcome) -> Self {
        Self {
            before_bytes: collapsed.before.get(),
            after_bytes: collapsed.after.get(),
            empty_bytes: collapsed.empty.get(),
            refused_bytes: collapsed.refused.get(),
            last_errno: collapsed.errno.map_or(0, |errno| errno.0),
        }
    }
}

const REGION: Failure = Failure::Argument("the handle is not one of hugepilot_region_map");
pub(crate) const RESULT: Failure = Failure::Argument("the pointer for the result is NULL");

/// Converts bytes of C, where all numbers are possible.
pub(crate) const fn bytes(bytes: usize) -> Bytes {
    Bytes::new(bytes as u64)
}

/// Implements the function of the header.
///
/// # Safety
/// The texts in `options` are NULL or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_region_map(
    size: usize,
    options: Option<&RawOptions>,
) -> *mut HugeRegion {
    // SAFETY: the caller's promise.
    let options = unsafe { RawOptions::read(options) };
    handle_or_null(options.and_then(|options| handle::new(HugeRegion::map(bytes(size), &options)?)))
}

/// Implements the function of the header.
///
/// # Safety
/// `region` is NULL or a handle, and neither it nor its memory is used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_region_unmap(region: *mut HugeRegion) {
    // SAFETY: the caller's promise.
    unsafe { handle::drop(region) };
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_region_data(region: Option<&HugeRegion>) -> *mut u8 {
    region.map_or(ptr::null_mut(), |region| region.as_ptr().as_ptr())
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_region_size(region: Option<&HugeRegion>) -> usize {
    region.map_or(0, |region| region.len().as_usize())
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_region_named(region: Option<&HugeRegion>) -> c_int {
    region.is_some_and(|region| region.named() == NameStatus::Set).into()
}

/// Implements the function of the header.
///
/// # Safety
/// `buffer` has `size` bytes; it may be NULL where that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_region_requested(
    region: Option<&HugeRegion>,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    let text: &dyn Display = region.map_or(&"", |region| &region.requested().chain);
    // SAFETY: the caller's promise.
    unsafe { text::write(text, buffer, size) }
}

/// Implements the function of the header.
///
/// # Safety
/// `buffer` has `size` bytes; it may be NULL where that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_region_backing(
    region: Option<&HugeRegion>,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    let backing = region.map(HugeRegion::backing);
    let text: &dyn Display = backing.as_ref().map_or(&"", |backing| backing);
    // SAFETY: the caller's promise.
    unsafe { text::write(text, buffer, size) }
}

/// Implements the function of the header.
///
/// # Safety
/// `buffer` has `size` bytes; it may be NULL where that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_region_refused(
    region: Option<&HugeRegion>,
    index: usize,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    match region.and_then(|region| region.refused().nth(index)) {
        // SAFETY: the caller's promise.
        Some(&error) => unsafe { error::write(&Failure::Alloc(error), buffer, size) },
        None => Code::Ok as c_int,
    }
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_region_usage(
    region: Option<&HugeRegion>,
    usage: Option<&mut MaybeUninit<RawPageUsage>>,
) -> c_int {
    let look = || {
        let (region, usage) = (region.ok_or(REGION)?, usage.ok_or(RESULT)?);
        usage.write(region.usage()?.into());
        Ok(())
    };
    status(look())
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_region_prefault(region: Option<&HugeRegion>, threads: c_uint) -> c_int {
    let threads = threads as usize;
    status(region.ok_or(REGION).and_then(|region| Ok(region.prefault(threads)?)))
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_region_collapse(
    region: Option<&HugeRegion>,
    collapsed: Option<&mut MaybeUninit<RawCollapseOutcome>>,
) -> c_int {
    let collapse = || {
        let done = region.ok_or(REGION)?.collapse()?;
        if let Some(collapsed) = collapsed {
            collapsed.write(done.into());
        }
        Ok(())
    };
    status(collapse())
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_region_grow(
    region: Option<&mut HugeRegion>,
    size: usize,
    keep_bytes: usize,
) -> c_int {
    status(region.ok_or(REGION).and_then(|region| Ok(region.grow(bytes(size), keep_bytes)?)))
}
