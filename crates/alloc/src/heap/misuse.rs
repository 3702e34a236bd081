//! Misuse of addresses by the program. One line on stderr names the address, and the process ends.
//! Nothing here allocates.

use std::fmt::{self, Display, Write};

use super::os;

/// Cause why an address cannot be freed, resized or measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misuse {
    /// The object that begins there is already free.
    Free { size: usize },
    /// The address lies inside of an object.
    Inside { start: usize, size: usize },
    /// The address lies in memory of the heap without an object in use.
    Unused,
    /// The address is not memory of the heap.
    Foreign,
}

impl Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free { size } => write!(f, "the object of {size} bytes is already free"),
            Self::Inside { start, size } => {
                write!(f, "address inside the object of {size} bytes at {start:#x}")
            }
            Self::Unused => {
                f.write_str("no object is allocated there; it may have been freed before")
            }
            Self::Foreign => f.write_str(
                "not memory of this allocator; it may belong to another one, or was freed before",
            ),
        }
    }
}

/// Call of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Free,
    Resize,
    Size,
}

/// Ends the process because of a call with a wrong `address`.
#[cold]
pub(super) fn end(call: Call, address: usize, misuse: Misuse) -> ! {
    let call = match (call, misuse) {
        (Call::Free, Misuse::Free { .. }) => "double free",
        (Call::Free, _) => "free",
        (Call::Resize, _) => "realloc",
        (Call::Size, _) => "malloc_usable_size",
    };
    die(format_args!("{call} of {address:#x}: {misuse}"), false)
}

/// Ends the process because a free object was changed. `LOCKED`: whether the caller holds a lock.
#[cold]
pub(super) extern "C" fn changed<const LOCKED: bool>(address: usize) -> ! {
    die(
        format_args!("free object at {address:#x}: written after it was freed, or freed twice"),
        LOCKED,
    )
}

/// Ends the process because an object of a span was freed twice, as [`changed`].
#[cold]
pub(super) fn freed_twice<const LOCKED: bool>(address: usize, size: usize) -> ! {
    die(format_args!("double free of {address:#x}: {}", Misuse::Free { size }), LOCKED)
}

/// Ends the process because the list of free objects of this size in a span is corrupt. The heap's
/// lock may be held.
#[cold]
pub(super) fn confused(start: usize, size: usize) -> ! {
    die(
        format_args!(
            "free objects of {size} bytes from {start:#x}: one was freed twice, or written after \
             it was freed"
        ),
        true,
    )
}

/// Prints a line and ends the process like the C library; with a lock held, without the program's
/// handler of SIGABRT, which may allocate.
fn die(what: fmt::Arguments<'_>, locked: bool) -> ! {
    print_line(what);
    if locked { os::abort_unhandled() } else { os::abort() }
}

/// Prints a line to stderr.
pub(super) fn print_line(what: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 256], len: 0 };
    // A longer line is truncated.
    let _ = write!(line, "hugepilot: {what}");
    line.bytes[line.len] = b'\n';
    os::write_to_stderr(&line.bytes[..=line.len]);
}

/// Start of a line, with room for a line break.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = &mut self.bytes[self.len..];
        let len = text.len().min(free.len() - 1);
        free[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let mut line = Line { bytes: [0; 256], len: 0 };
        write!(line, "{:>300}", 1).unwrap();
        assert_eq!(line.len, 255);
    }
}
