//! `execv(3)`: becoming another program.
//!
//! # Safety
//! Nothing of ours lives on after it succeeds; where it fails, nothing has changed.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// Becomes the program in the file `path`, called with `arguments`, its name first. Returns only when that failed: unlike
/// the standard library's, which asks a shell to run a file that is no program, it then says ENOEXEC.
pub fn exec(path: &Path, arguments: &[OsString]) -> io::Error {
    let owned = |text: &OsStr| CString::new(text.as_bytes());
    let arguments = arguments.iter().map(|argument| owned(argument)).collect::<Result<Vec<_>, _>>();
    let (path, arguments) = match (owned(path.as_os_str()), arguments) {
        (Ok(path), Ok(arguments)) => (path, arguments),
        (Err(error), _) | (_, Err(error)) => return error.into(),
    };
    let pointers: Vec<_> = arguments.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    // SAFETY: SIGPIPE, which Rust's start-up ignores, gets its default back: no handler of ours is involved. `path` and
    // the null-terminated `pointers` are C strings that live across the call.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::execv(path.as_ptr(), pointers.as_ptr());
    }
    io::Error::last_os_error()
}
