//! Options in C's form.
//!
//! # Safety
//! The caller's texts end with a zero, and are read before the call returns.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use hugepilot_alloc::{Chain, Fork, Label, Numa, Options};
use hugepilot_units::Bytes;

use crate::error::Failure;
use crate::text;

const SIZE: &str = "hugepilot_options.size is not that of the library: start with \
                    HUGEPILOT_OPTIONS_INIT, and use a library no older than the header";
const FORK: &str = "hugepilot_options.fork is not one of enum hugepilot_fork";
const CHAIN: &str = "backings in order of preference, each once, such as hugetlb-2m,thp,base: \
                     base, system, thp, thp:30%, thp:20-50%, collapse, hugetlb-2m, \
                     hugetlb-1g";
const NUMA: &str =
    "bind:NODES or interleave:NODES with nodes from 0 to 63, such as bind:0 or interleave:0-3,5";

/// `hugepilot_options` of the header.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // the header says what they mean
pub struct RawOptions {
    pub size: usize,
    pub chain: *const c_char,
    pub align_bytes: usize,
    pub name: *const c_char,
    pub numa: *const c_char,
    pub fork: c_int,
}

impl RawOptions {
    /// Converts to the options of the crate `alloc`; no options are the defaults.
    ///
    /// # Safety
    /// The texts are NULL or end with a zero.
    pub(crate) unsafe fn read(options: Option<&Self>) -> Result<Options, Failure> {
        let Some(raw) = options else { return Ok(Options::default()) };
        if raw.size != size_of::<Self>() {
            return Err(Failure::Argument(SIZE));
        }
        let mut options = Options::default();
        if !raw.chain.is_null() {
            // SAFETY: the caller's promise.
            let chain =
                unsafe { text::read(raw.chain) }.and_then(|text| text.parse::<Chain>().ok());
            options.chain = chain.ok_or(Failure::Unparsable(CHAIN))?;
        }
        if !raw.name.is_null() {
            // SAFETY: the caller's promise.
            options.name = Some(Label::new(unsafe { text::read(raw.name) }.unwrap_or_default())?);
        }
        if !raw.numa.is_null() {
            // SAFETY: the caller's promise.
            let numa = unsafe { text::read(raw.numa) }.and_then(numa);
            options.numa = numa.ok_or(Failure::Unparsable(NUMA))?;
        }
        options.align = Bytes::new(raw.align_bytes.max(1) as u64);
        options.fork = match raw.fork {
            0 => Fork::Inherit,
            1 => Fork::Absent,
            _ => return Err(Failure::Argument(FORK)),
        };
        Ok(options)
    }
}

fn numa(text: &str) -> Option<Numa> {
    let (how, nodes) = text.split_once(':')?;
    let nodes = nodes.parse().ok()?;
    match how {
        "bind" => Some(Numa::Bind(nodes)),
        "interleave" => Some(Numa::Interleave(nodes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    const NONE: RawOptions = RawOptions {
        size: size_of::<RawOptions>(),
        chain: ptr::null(),
        align_bytes: 0,
        name: ptr::null(),
        numa: ptr::null(),
        fork: 0,
    };

    fn read(raw: &RawOptions) -> Result<Options, Failure> {
        // SAFETY: the texts are constants.
        unsafe { RawOptions::read(Some(raw)) }
    }

    #[test]
    fn omitted_fields_have_defaults() {
        assert_eq!(read(&NONE).unwrap(), Options::default());
        // SAFETY: there are no texts.
        assert_eq!(unsafe { RawOptions::read(None) }.unwrap(), Options::default());
    }

    #[test]
    fn every_field_is_read() {
        let raw = RawOptions {
            chain: c"hugetlb-2m,thp:30%".as_ptr(),
            align_bytes: 1 << 23,
            name: c"index".as_ptr(),
            numa: c"interleave:0-1".as_ptr(),
            fork: 1,
            ..NONE
        };
        let options = Options::new("hugetlb-2m,thp:30%".parse().unwrap()).named("index").unwrap();
        let numa = Numa::Interleave("0-1".parse().unwrap());
        assert_eq!(
            read(&raw).unwrap(),
            options.aligned(Bytes::mib(8)).on(numa).forked(Fork::Absent)
        );
        let nodes = "3".parse().unwrap();
        assert_eq!(
            read(&RawOptions { numa: c"bind:3".as_ptr(), ..NONE }).unwrap().numa,
            Numa::Bind(nodes)
        );
    }

    #[test]
    fn invalid_options_are_errors_that_name_valid_ones() {
        fn says(raw: &RawOptions, words: &str) {
            let said = read(raw).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
        for chain in [c"", c"huge", c"thp,thp", c"\xff"] {
            says(&RawOptions { chain: chain.as_ptr(), ..NONE }, "hugetlb-2m,thp,base");
        }
        for numa in [c"", c"0", c"bind:", c"near:0", c"bind:64"] {
            says(&RawOptions { numa: numa.as_ptr(), ..NONE }, "interleave:0-3,5");
        }
        for name in [c"", c"a[b]", c"\xff"] {
            says(&RawOptions { name: name.as_ptr(), ..NONE }, "79 printable");
        }
        says(&RawOptions { fork: 2, ..NONE }, "enum hugepilot_fork");
        says(&RawOptions { size: 0, ..NONE }, "HUGEPILOT_OPTIONS_INIT");
    }
}
