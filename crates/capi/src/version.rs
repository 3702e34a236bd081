//! Version of the library.
//!
//! # Safety
//! Exporting a symbol is unsafe because its name may be taken: these begin with the library's name.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};

/// Ends with a zero.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_abi() -> u32 {
    const { abi() }
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_version() -> *const c_char {
    CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap_or_default().as_ptr()
}

/// Parses the number that the build script read from the header.
const fn abi() -> u32 {
    match u32::from_str_radix(env!("HUGEPILOT_ABI"), 10) {
        Ok(abi) => abi,
        Err(_) => panic!("HUGEPILOT_ABI is a number"),
    }
}
