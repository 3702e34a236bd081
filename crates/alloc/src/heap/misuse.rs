//! What a program may do wrong with an address. One line on stderr names the address, and the process ends. Nothing here takes memory.

use std::fmt::{self, Display, Write};

use super::os;

/// Why an address cannot be freed, resized or measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misuse {
    /// The object that begins there is free already.
    Free { size: usize },
    /// It lies inside of an object.
    Inside { start: usize, size: usize },
    /// It lies in memory of the heap where nothing is in use.
    Unused,
    /// It is none of the heap's.
    Foreign,
    /// A byte behind the object was written, at `at`.
    Overflow { at: usize, size: usize },
}

impl Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free { size } => write!(f, "the object of {size} bytes there is free already"),
            Self::Inside { start, size } => {
                write!(f, "the address lies inside the object of {size} bytes at {start:#x}")
            }
            Self::Unused => {
                f.write_str("nothing is allocated there; it may have been freed before")
            }
            Self::Overflow { at, size } => {
                write!(f, "the byte at {at:#x}, behind the object of {size} bytes, was written")
            }
            Self::Foreign => f.write_str(
                "no memory of this allocator is there; it may be another's, or was freed before",
            ),
        }
    }
}

/// What the program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Free,
    Resize,
    Size,
}

/// Ends the process because of what it asked for at `address`.
#[cold]
pub(super) fn end(call: Call, address: usize, misuse: Misuse) -> ! {
    let call = match (call, misuse) {
        (Call::Free, Misuse::Free { .. }) => "double free",
        (Call::Free, _) => "free",
        (Call::Resize, _) => "realloc",
        (Call::Size, _) => "malloc_usable_size",
    };
    die(format_args!("{call} of {address:#x}: {misuse}"))
}

/// Ends the process because a free object is not as it was left.
#[cold]
pub(super) extern "C" fn changed(address: usize) -> ! {
    die(format_args!(
        "free object at {address:#x}: it was written to after it was freed, or freed twice"
    ))
}

/// Ends the process because free objects, of that size, of the span there are not those that were freed. The heap's lock may be
/// held.
#[cold]
pub(super) fn confused(start: usize, size: usize) -> ! {
    say(format_args!(
        "free objects of {size} bytes from {start:#x} on: one was freed twice, or written to after it was freed"
    ));
    os::abort_unhandled()
}

/// Writes that line, and ends the process as the C library does. No lock is held: a handler of the program may allocate.
fn die(what: fmt::Arguments<'_>) -> ! {
    say(what);
    os::abort()
}

/// Writes a line to stderr.
pub(super) fn say(what: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 256], len: 0 };
    // A line that is too long is cut.
    let _ = write!(line, "hugepilot: {what}");
    line.bytes[line.len] = b'\n';
    os::write_to_stderr(&line.bytes[..=line.len]);
}

/// The beginning of a line, and room for its end.
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
