//! Phases of a recording.
//!
//! # Safety
//! The caller's strings end with a zero.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};

/// Implements the function of the header.
///
/// # Safety
/// `name` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_begin_phase(name: *const c_char) {
    if !name.is_null() {
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        hugepilot_alloc::begin_phase(&name.to_string_lossy());
    }
}
