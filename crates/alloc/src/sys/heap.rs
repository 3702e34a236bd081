//! Memory for Miri, which has no huge pages: zeroed, from the global allocator. Queries fail.
//!
//! # Safety
//! Each mapping is one allocation, freed with its layout.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{AddrRange, PageSizes};

use super::{Advice, Linux, Pages, Setting, Sys};
use crate::{Label, Numa};

/// Largest mapping, in bytes.
const MAX_MAPPING: usize = 256 << 20;

// SAFETY: allocations of the global allocator have one owner.
unsafe impl Sys for Linux {
    fn sizes(&self) -> PageSizes {
        PageSizes::X86_64
    }
    fn map(&self, len: usize, align: usize, pages: Pages) -> Result<NonNull<u8>, Errno> {
        if pages != Pages::Plain || len == 0 {
            return Err(Errno::EINVAL);
        }
        // Miri aborts if the machine has no more memory.
        if len > MAX_MAPPING {
            return Err(Errno::ENOMEM);
        }
        let layout = Layout::from_size_align(len, align).map_err(|_| Errno::ENOMEM)?;
        // SAFETY: the length is not 0.
        NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)
    }
    unsafe fn unmap(&self, start: NonNull<u8>, len: usize, align: usize) {
        // SAFETY: by contract allocated by `map` with this length and alignment, which made a
        // layout there.
        unsafe { dealloc(start.as_ptr(), Layout::from_size_align_unchecked(len, align)) };
    }
    unsafe fn grow(
        &self,
        _: NonNull<u8>,
        _: usize,
        _: usize,
        _: usize,
    ) -> Result<NonNull<u8>, Errno> {
        Err(Errno::ENOSYS)
    }
    unsafe fn shrink(&self, _start: NonNull<u8>, _old: usize, _new: usize) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    unsafe fn advise(
        &self,
        _start: NonNull<u8>,
        _len: usize,
        _advice: Advice,
    ) -> Result<(), Errno> {
        Ok(())
    }
    unsafe fn discard(&self, start: NonNull<u8>, len: usize) -> Result<(), Errno> {
        // SAFETY: by contract whole pages whose contents are not needed.
        unsafe { start.write_bytes(0, len) };
        Ok(())
    }
    fn knows(&self, _advice: Advice) -> bool {
        true
    }
    fn name(&self, _start: NonNull<u8>, _len: usize, _name: &Label) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    fn bind(&self, _start: NonNull<u8>, _len: usize, _numa: Numa) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    fn scan(&self, _range: AddrRange, _each: &mut dyn FnMut(PageRun)) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    fn setting<'a>(&self, _setting: Setting, _buffer: &'a mut [u8]) -> Option<&'a str> {
        None
    }
    fn thp_disabled(&self) -> bool {
        false
    }
}
