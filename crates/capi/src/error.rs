//! Error codes, and the last error of each thread.
//!
//! # Safety
//! Callers pass the true size of a buffer.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Display};
use std::ptr;

use hugepilot_alloc::AllocError;

use crate::text;

/// Error code. The numbers are part of the ABI and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)] // the header says what they mean
pub enum Code {
    Ok = 0,
    Argument = 1,
    Chain = 2,
    Overflow = 3,
    Alignment = 4,
    Name = 5,
    Limit = 6,
    NoMemory = 7,
    PoolEmpty = 8,
    NoPool = 9,
    ThpNever = 10,
    ThpDisabled = 11,
    Advice = 12,
    Nodes = 13,
    Bind = 14,
    Prefault = 15,
    Pagemap = 16,
    Other = 17,
    PoolLimit = 18,
}

impl Code {
    /// All codes with their texts, in numeric order.
    pub const ALL: [(Self, &'static CStr); 19] = [
        (Self::Ok, c"no error"),
        (Self::Argument, c"an argument is NULL or out of its range"),
        (Self::Chain, c"a chain of backings or a set of nodes cannot be parsed"),
        (Self::Overflow, c"the size exceeds the address space"),
        (Self::Alignment, c"the alignment is not a power of two, or above 1 GiB"),
        (Self::Name, c"the kernel refuses the name"),
        (Self::Limit, c"the limit of an arena is reached"),
        (Self::NoMemory, c"no memory, or no address space"),
        (Self::PoolEmpty, c"the hugetlb pool has too few free pages"),
        (Self::NoPool, c"no hugetlb pool of this page size"),
        (Self::ThpNever, c"transparent huge pages are set to never"),
        (Self::ThpDisabled, c"transparent huge pages are disabled for this process"),
        (Self::Advice, c"this kernel does not support the backing"),
        (Self::Nodes, c"memory nodes that do not exist or have no memory"),
        (Self::Bind, c"cannot bind memory to these nodes"),
        (Self::Prefault, c"the memory is mapped, but its pages cannot be allocated"),
        (Self::Pagemap, c"cannot read the pagemap"),
        (Self::Other, c"an error of a later library"),
        (Self::PoolLimit, c"the cgroup does not grant these pages of the hugetlb pool"),
    ];
}

/// Cause of a failed call. Plain data: storing one allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// Error of the crate `alloc`.
    Alloc(AllocError),
    /// Invalid argument, with the cause.
    Argument(&'static str),
    /// Text that cannot be parsed, with its valid forms.
    Unparsable(&'static str),
    /// No memory for a handle or for the first page of a heap.
    NoMemory,
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        Self::Alloc(error)
    }
}

impl Failure {
    const fn code(&self) -> Code {
        match self {
            Self::Argument(_) => Code::Argument,
            Self::Unparsable(_) => Code::Chain,
            Self::NoMemory => Code::NoMemory,
            Self::Alloc(error) => match error {
                AllocError::Empty => Code::Argument,
                AllocError::Overflow { .. } => Code::Overflow,
                AllocError::Alignment(_) => Code::Alignment,
                AllocError::Label => Code::Name,
                AllocError::Limit { .. } => Code::Limit,
                AllocError::Map { .. } => Code::NoMemory,
                AllocError::PoolEmpty { .. } => Code::PoolEmpty,
                AllocError::PoolLimit { .. } => Code::PoolLimit,
                AllocError::NoPool { .. } => Code::NoPool,
                AllocError::ThpNever(_) => Code::ThpNever,
                AllocError::ThpDisabled => Code::ThpDisabled,
                AllocError::Advice { .. } => Code::Advice,
                AllocError::Nodes { .. } => Code::Nodes,
                AllocError::Bind { .. } => Code::Bind,
                AllocError::Prefault { .. } => Code::Prefault,
                AllocError::Pagemap(_) => Code::Pagemap,
                _ => Code::Other,
            },
        }
    }

    const fn errno(&self) -> c_int {
        match self {
            Self::Alloc(error) => match error.errno() {
                Some(errno) => errno.0,
                None => 0,
            },
            Self::NoMemory => 12, // ENOMEM
            Self::Argument(_) | Self::Unparsable(_) => 0,
        }
    }
}

/// Prints the cause and, after `; help: `, the suggested fix if there is one.
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(must) => write!(f, "invalid argument: {must}"),
            Self::Unparsable(may) => write!(f, "cannot parse this text; help: write {may}"),
            Self::NoMemory => f.write_str("no memory for a handle; help: raise ulimit -v"),
            // Formatting allocates with `malloc`, which may be exhausted.
            Self::Alloc(_) if !malloc_has(4096) => {
                f.write_str(Code::ALL[self.code() as usize].1.to_str().unwrap_or_default())
            }
            Self::Alloc(error) => match error.help() {
                Some(help) => write!(f, "{error}; help: {help}"),
                None => write!(f, "{error}"),
            },
        }
    }
}

/// Returns whether `malloc` has that many bytes now.
fn malloc_has(bytes: usize) -> bool {
    std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(bytes).is_ok()
}

thread_local! {
    static LAST: Cell<Option<Failure>> = const { Cell::new(None) };
}

/// Stores the failure as the thread's last error, and returns its code.
pub(crate) fn failed(failure: impl Into<Failure>) -> c_int {
    let failure = failure.into();
    LAST.set(Some(failure));
    failure.code() as c_int
}

/// Returns the code of a result.
pub(crate) fn status(done: Result<(), Failure>) -> c_int {
    done.map_or_else(failed, |()| Code::Ok as c_int)
}

/// Returns the handle; on failure stores the error and returns NULL.
pub(crate) fn handle_or_null<T>(made: Result<*mut T, Failure>) -> *mut T {
    made.unwrap_or_else(|failure| {
        failed(failure);
        ptr::null_mut()
    })
}

/// Writes a failure as text and returns its code.
///
/// # Safety
/// As for [`text::write`].
pub(crate) unsafe fn write(failure: &Failure, buffer: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { text::write(failure, buffer, size) };
    failure.code() as c_int
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_error_text(code: c_int) -> *const c_char {
    let known = usize::try_from(code).ok().and_then(|code| Code::ALL.get(code));
    known.unwrap_or(&Code::ALL[Code::Other as usize]).1.as_ptr()
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_last_error() -> c_int {
    LAST.get().map_or(Code::Ok, |last| last.code()) as c_int
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_last_errno() -> c_int {
    LAST.get().map_or(0, |last| last.errno())
}

/// Implements the function of the header.
///
/// # Safety
/// `buffer` has `size` bytes; it may be NULL where that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_last_error_text(buffer: *mut c_char, size: usize) -> usize {
    let none = Code::ALL[0].1.to_str().unwrap_or_default();
    // SAFETY: the caller's promise.
    LAST.get().map_or_else(
        || unsafe { text::write(&none, buffer, size) },
        |last| unsafe { text::write(&last, buffer, size) },
    )
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_clear_error() {
    LAST.set(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_text_in_its_place() {
        for (i, (code, words)) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, i, "{words:?}");
        }
        for unknown in [-1, 19, i32::MAX, i32::MIN] {
            assert_eq!(hugepilot_error_text(unknown), hugepilot_error_text(Code::Other as c_int));
        }
    }
}
