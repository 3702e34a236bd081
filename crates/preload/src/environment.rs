//! What the environment asks for, read before the C library is set up: so without any of its memory.
//!
//! # Safety
//! The environment is read as the C library keeps it, before the program can change it, or from `/proc` where it is not there
//! yet.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{Chain, Label, Options};

/// The longest value that can be right: that of a path.
const LONGEST: usize = 4096;

/// The value of a variable.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Value {
    /// Of that variable, if it is set and not longer than a path. A program with more rights than its caller obeys nobody's.
    pub(crate) fn of(name: &str) -> Option<Self> {
        // SAFETY: looks into what the kernel gave the process.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return None;
        }
        let mut value = Self { bytes: [0; LONGEST], len: 0 };
        let found = if has_environment() {
            value.copy(name)
        } else {
            value.read(c"/proc/self/environ", name)
        };
        found.then_some(value)
    }

    /// The same of the process that started this one, as it was when that one was started.
    fn of_parent(name: &str) -> Option<Self> {
        let [mut path, mut value] = [Self { bytes: [0; LONGEST], len: 0 }; 2];
        // SAFETY: takes nothing, and cannot fail.
        let _ = write!(path, "/proc/{}/environ\0", unsafe { libc::getppid() });
        let path = CStr::from_bytes_with_nul(&path.bytes[..path.len]).ok()?;
        value.read(path, name).then_some(value)
    }

    /// As text, trimmed; what is no UTF-8 is empty.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default().trim()
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// From the environment in memory.
    fn copy(&mut self, name: &str) -> bool {
        // SAFETY: a list of strings that ends with null; nobody changes it while the first memory is allocated.
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

    /// From a file of `/proc`: the environment as it was when the program was started.
    fn read(&mut self, path: &CStr, name: &str) -> bool {
        // SAFETY: opens a file to read; the path is a C string.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return false;
        }
        let (mut buffer, mut found) = ([0_u8; LONGEST], false);
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

/// What follows `NAME=`.
fn value_in<'a>(entry: &'a [u8], name: &str) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// What `HUGEPILOT_PAGES` and `HUGEPILOT_CHECK` ask for. A value that cannot be read is a line on stderr, once for a process and
/// those that it starts.
pub(crate) fn options() -> Options {
    static ASKED: AtomicBool = AtomicBool::new(false);
    let (name, check) = (Label::new("hugepilot").ok(), Value::of("HUGEPILOT_CHECK"));
    let is_checked = check.is_some_and(|value| value.text() == "1");
    let with = |chain| Options { name, check: is_checked, ..Options::new(chain) };
    // The text of an error is memory of the heap that is about to be made: with the default, which an error means.
    if ASKED.swap(true, Relaxed) {
        return with(Chain::THP_OR_BASE);
    }
    if let Some(value) = check.filter(|value| !["", "0", "1"].contains(&value.text()))
        && !parent_has_told("HUGEPILOT_CHECK", &value)
    {
        tell(format_args!("HUGEPILOT_CHECK={}: 0 or 1 is wanted; 0 is used", value.text()));
    }
    let Some(value) = Value::of("HUGEPILOT_PAGES") else { return with(Chain::THP_OR_BASE) };
    if value.text().is_empty() {
        return with(Chain::THP_OR_BASE);
    }
    match value.text().parse() {
        Ok(chain) => with(chain),
        Err(error) => {
            if !parent_has_told("HUGEPILOT_PAGES", &value) {
                tell(format_args!("HUGEPILOT_PAGES: {error}; {} is used", Chain::THP_OR_BASE));
            }
            with(Chain::THP_OR_BASE)
        }
    }
}

/// Whether the library was in the process that started this one, with the same to read.
fn parent_has_told(name: &str, value: &Value) -> bool {
    let preload =
        Value::of_parent("LD_PRELOAD").is_some_and(|own| own.text().contains("hugepilot_preload"));
    preload && Value::of_parent(name).is_some_and(|own| own.text() == value.text())
}

/// Writes a line to stderr.
pub(crate) fn tell(what: fmt::Arguments<'_>) {
    let mut line = Value { bytes: [0; LONGEST], len: 0 };
    let _ = writeln!(line, "hugepilot: {what}");
    // SAFETY: as many bytes as there are.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
}

impl Write for Value {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}
