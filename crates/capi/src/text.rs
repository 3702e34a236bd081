//! Text of C strings and into the caller's buffers.
//!
//! # Safety
//! The caller's strings end with a zero, and a buffer has the given size.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::fmt::{self, Display, Write};

/// Reads the string at `text`, if there is one and it is UTF-8.
///
/// # Safety
/// `text` is NULL or ends with a zero, and does not change while the result is in use.
pub(crate) unsafe fn read<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Writes as much of `text` as fits into `size` bytes, with a zero at the end, and returns the
/// length of the whole text, like `snprintf`. Allocates nothing beyond the formatting of `text`.
///
/// # Safety
/// `buffer` has `size` bytes; it may be NULL if that is 0.
pub(crate) unsafe fn write(text: &dyn Display, buffer: *mut c_char, size: usize) -> usize {
    let mut out = Out { buffer: buffer.cast(), room: size.saturating_sub(1), len: 0 };
    // Writing to memory does not fail; a text that fails to format ends there.
    let _ = write!(out, "{text}");
    if size > 0 {
        // SAFETY: the offset is at most `size - 1`.
        unsafe { out.buffer.add(out.len.min(out.room)).write(0) };
    }
    out.len
}

struct Out {
    buffer: *mut u8,
    /// Bytes available for text.
    room: usize,
    /// Bytes of the text so far.
    len: usize,
}

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.len().min(self.room.saturating_sub(self.len));
        if fits > 0 {
            // SAFETY: `len + fits` is at most `room`, the size of the buffer.
            unsafe { self.buffer.add(self.len).copy_from_nonoverlapping(text.as_ptr(), fits) };
        }
        self.len += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, size: usize) -> (usize, Vec<u8>) {
        let mut buffer = [b'#'; 12];
        // SAFETY: the buffer has at least `size` bytes.
        let len = unsafe { write(&text, buffer.as_mut_ptr().cast(), size) };
        (len, buffer.to_vec())
    }

    #[test]
    fn text_is_truncated_to_the_buffer_and_its_length_returned() {
        assert_eq!(written("hugepages", 12), (9, b"hugepages\0##".to_vec()));
        assert_eq!(written("hugepages", 10), (9, b"hugepages\0##".to_vec()));
        assert_eq!(written("hugepages", 5), (9, b"huge\0#######".to_vec()));
        assert_eq!(written("hugepages", 1), (9, b"\0###########".to_vec()));
        assert_eq!(written("hugepages", 0), (9, b"############".to_vec()));
        // SAFETY: a buffer of 0 bytes.
        assert_eq!(unsafe { write(&"four", std::ptr::null_mut(), 0) }, 4);
    }
}
