//! Options from the environment, read before the C library is initialised: without allocating.
//!
//! # Safety
//! The environment is read from the C library before the program can change it, or from `/proc` if
//! the C library has none yet.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{Chain, Label, Options};

/// Variable with the chain of backings.
pub(crate) const PAGES: &str = "HUGEPILOT_PAGES";
/// Longest value, in bytes: that of a path.
const MAX_LEN: usize = 4096;

/// Value of an environment variable.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Value {
    /// Reads a variable; `None` if it is unset or longer than a path. A program with more
    /// privileges than its caller ignores all variables.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if hugepilot_alloc::has_more_privileges() {
            return None;
        }
        let mut value = Self { bytes: [0; MAX_LEN], len: 0 };
        let found = if has_environment() {
            value.copy(name)
        } else {
            value.read(c"/proc/self/environ", name)
        };
        found.then_some(value)
    }

    /// Reads a variable of the parent process, as at its start.
    fn of_parent(name: &str) -> Option<Self> {
        let [mut path, mut value] = [Self { bytes: [0; MAX_LEN], len: 0 }; 2];
        // SAFETY: takes nothing, and cannot fail.
        let _ = write!(path, "/proc/{}/environ\0", unsafe { libc::getppid() });
        let path = CStr::from_bytes_with_nul(&path.bytes[..path.len]).ok()?;
        value.read(path, name).then_some(value)
    }

    /// Returns the trimmed text; empty if it is not UTF-8.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default().trim()
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// Copies the value from the environment in memory.
    fn copy(&mut self, name: &str) -> bool {
        // SAFETY: a list of strings that ends with null, and does not change during the first
        // allocation.
        unsafe {
            let mut entry = environ;
            while !(*entry).is_null() {
                let text = CStr::from_ptr(*entry).to_bytes();
                if let Some(value) = value_in(text, name) {
                    value.iter().for_each(|&byte| self.push(byte));
                    return true;
                }
                entry = entry.add(1);
            }
        }
        false
    }

    /// Reads the value from a file of `/proc`: the environment at program start.
    fn read(&mut self, path: &CStr, name: &str) -> bool {
        // SAFETY: opens a file to read; the path is a C string.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return false;
        }
        let (mut buffer, mut found) = ([0_u8; MAX_LEN], false);
        'all: loop {
            // SAFETY: the kernel writes at most the length of the buffer.
            let read = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
            let Ok(read @ 1..) = usize::try_from(read) else { break };
            for &byte in &buffer[..read] {
                if byte != 0 {
                    self.push(byte);
                    continue;
                }
                let end = self.len;
                if let Some(start) =
                    value_in(&self.bytes[..end], name).map(|value| end - value.len())
                {
                    self.bytes.copy_within(start..end, 0);
                    (self.len, found) = (end - start, true);
                    break 'all;
                }
                self.len = 0;
            }
        }
        // SAFETY: opened above, and closed once.
        unsafe { libc::close(file) };
        found
    }
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

fn has_environment() -> bool {
    // SAFETY: the C library sets it once, before the program runs.
    unsafe { !environ.is_null() }
}

/// Returns the text after `NAME=`.
fn value_in<'a>(entry: &'a [u8], name: &str) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Returns the options of `HUGEPILOT_PAGES`. Prints an invalid value to stderr, once per process
/// tree.
pub(crate) fn options() -> Options {
    static CALLED: AtomicBool = AtomicBool::new(false);
    let name = Label::new("hugepilot").ok();
    let with = |chain| Options { name, ..Options::new(chain) };
    // The error text allocates from the heap that is being created: this nested call returns the
    // default, which an invalid value means anyway.
    if CALLED.swap(true, Relaxed) {
        return with(Chain::THP_OR_BASE);
    }
    let Some(value) = Value::of(PAGES) else { return with(Chain::THP_OR_BASE) };
    if value.text().is_empty() {
        return with(Chain::THP_OR_BASE);
    }
    match value.text().parse() {
        Ok(chain) => with(chain),
        Err(error) => {
            if !parent_reported(PAGES, &value) {
                print_line(format_args!("{PAGES}: {error}; using {}", Chain::THP_OR_BASE));
            }
            with(Chain::THP_OR_BASE)
        }
    }
}

/// Returns whether the parent process ran with this library and the same value.
fn parent_reported(name: &str, value: &Value) -> bool {
    let preload =
        Value::of_parent("LD_PRELOAD").is_some_and(|own| own.text().contains("hugepilot_preload"));
    preload && Value::of_parent(name).is_some_and(|own| own.text() == value.text())
}

/// Prints a line to stderr.
pub(crate) fn print_line(what: fmt::Arguments<'_>) {
    let mut line = Value { bytes: [0; MAX_LEN], len: 0 };
    let _ = writeln!(line, "hugepilot: {what}");
    // SAFETY: the length of the line.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
}

impl Write for Value {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}
