//! Rings without an event, for tests: stored, or composed by hand.
//!
//! # Safety
//! The mapping is that of a ring: a control page, then the data. No kernel writes there.
#![allow(unsafe_code)]

use super::*;

/// Bytes of a ring with the counters of its control page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRing {
    /// Bytes that were written so far.
    pub(crate) head: u64,
    /// Bytes that were read so far.
    pub(crate) tail: u64,
    /// The data area.
    pub(crate) data: Vec<u8>,
}

impl StoredRing {
    /// Parses a file: head, tail, data.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let (head, rest) = bytes.split_first_chunk().expect("a head");
        let (tail, data) = rest.split_first_chunk().expect("a tail");
        let (head, tail) = (u64::from_le_bytes(*head), u64::from_le_bytes(*tail));
        Self { head, tail, data: data.to_vec() }
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> Vec<u8> {
        [&self.head.to_le_bytes()[..], &self.tail.to_le_bytes(), &self.data].concat()
    }

    /// Maps it. The length of the data is a power of two of pages.
    pub(crate) fn map(&self) -> Ring {
        let page_len = rustix::param::page_size();
        let (data_len, whole_len) = (self.data.len(), self.data.len() + page_len);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address and no file is given.
        let whole = unsafe { libc::mmap(ptr::null_mut(), whole_len, protection, flags, -1, 0) };
        let whole = NonNull::new(whole).filter(|p| p.as_ptr() != libc::MAP_FAILED).expect("memory");
        // SAFETY: the data area starts one page into the mapping, and has room for the data.
        let data = unsafe {
            let data = whole.byte_add(page_len).cast::<u8>();
            ptr::copy_nonoverlapping(self.data.as_ptr(), data.as_ptr(), data_len);
            data
        };
        let ring = Ring { page: whole.cast(), data, data_len, whole_len };
        ring.counter(offset_of!(perf_event_mmap_page, data_head))
            .store(self.head, Ordering::SeqCst);
        ring.set_tail(self.tail);
        ring
    }
}

impl Ring {
    /// Copies the whole ring. The event is disabled.
    pub(crate) fn store(&self) -> StoredRing {
        let counter = |offset| self.counter(offset).load(Ordering::SeqCst);
        let mut data = vec![0; self.data_len];
        // SAFETY: the data area has this length, and a disabled event writes nothing.
        unsafe {
            ptr::copy_nonoverlapping(self.data.as_ptr(), data.as_mut_ptr(), self.data_len);
        }
        let head = counter(offset_of!(perf_event_mmap_page, data_head));
        let tail = counter(offset_of!(perf_event_mmap_page, data_tail));
        StoredRing { head, tail, data }
    }

    /// Lets the kernel use the space before `tail` again.
    pub(crate) fn set_tail(&self, tail: u64) {
        self.counter(offset_of!(perf_event_mmap_page, data_tail)).store(tail, Ordering::SeqCst);
    }
}
