//! Phases of a recording, marked by the recorded program itself.
//!
//! `hugepilot record` names a file in the environment of the program. Each line that is appended to
//! it begins a phase. Only a regular file is written to, so that the program is never blocked.
//!
//! # Safety
//! `getauxval` reads the auxiliary vector, and has no precondition.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;

/// Environment variable with the path of the file.
pub const MARKERS: &str = "HUGEPILOT_MARKERS";

/// Begins a phase of the recording that this process is in. Does nothing outside of a recording, or
/// if the recording cannot be written to: the program goes on without its phases. A line break in
/// the name becomes a space.
///
/// Opens and closes a file, in about 10 µs.
///
/// ```
/// hugepilot_alloc::begin_phase("load");
/// ```
pub fn begin_phase(name: &str) {
    if let Some(path) = std::env::var_os(MARKERS)
        && !has_more_privileges()
    {
        let _ = append(&path, name);
    }
}

/// Whether this process has more privileges than its caller (AT_SECURE). Then it must ignore its
/// environment, which the caller wrote. Does not allocate.
pub fn has_more_privileges() -> bool {
    // SAFETY: reads the auxiliary vector of the kernel.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Appends the name as one line, in one write, so that the lines of several threads do not mix.
fn append(path: &OsStr, name: &str) -> io::Result<()> {
    let mut line = name.replace(['\n', '\r'], " ");
    line.push('\n');
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new().append(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_line_and_no_file_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("markers");
        assert!(append(path.as_os_str(), "lost").is_err());
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        append(path.as_os_str(), "load\nit").unwrap();
        append(path.as_os_str(), "solve").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "load it\nsolve\n");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(append(link.as_os_str(), "elsewhere").is_err());
    }

    #[test]
    fn a_pipe_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the name ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(append(path.as_os_str(), "x").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(reader);
        assert!(append(path.as_os_str(), "x").is_err(), "no process reads it");
    }
}
