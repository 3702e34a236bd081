//! Child side of a start: it waits at the gate, sets itself up and becomes the program.
//!
//! # Safety
//! After fork, the child of a threaded process may only make async-signal-safe calls: it reads and
//! writes descriptors, sets its own signal mask and THP setting, and execs or exits. All its memory
//! was allocated before.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use hugepilot_record::Errno;

use super::program::{Program, Thp};
use crate::file;
use crate::sys::{inherited, last_errno};

/// `PR_THP_DISABLE_EXCEPT_ADVISED` of Linux 6.18, `linux/prctl.h`.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;
const SHELL: &CStr = c"/bin/sh";
/// Bytes of a file that show whether it is a text.
const BEGINNING: u64 = 256;

/// Pointers to C strings, ended by a null.
type Pointers = Vec<*const libc::c_char>;

/// Data of the child, allocated before the fork.
pub(super) struct ChildSetup {
    path: CString,
    arguments: Vec<CString>,
    /// Arguments of the shell that runs a text without `#!`.
    shell: Option<Vec<CString>>,
    environment: Vec<CString>,
    thp: Thp,
    standard: [Option<RawFd>; 3],
    own_group: bool,
    mask: libc::sigset_t,
    /// End of the pipe from which the child reads the byte that releases it.
    gate: OwnedFd,
    /// End of the pipe to which the child writes the error of exec.
    failure: OwnedFd,
}

/// Pointers into a [`ChildSetup`].
pub(super) struct ExecVectors {
    arguments: Pointers,
    shell: Pointers,
    environment: Pointers,
}

impl ChildSetup {
    /// # Errors
    /// EINVAL for a NUL in a text.
    pub(super) fn new(
        program: &Program<'_>,
        mask: libc::sigset_t,
        gate: OwnedFd,
        failure: OwnedFd,
    ) -> io::Result<Self> {
        let text = |text: &OsStr| CString::new(text.as_bytes());
        let pair = |(name, value): &(OsString, OsString)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())
        };
        let path = text(program.path.as_os_str())?;
        let arguments: Vec<CString> =
            program.arguments.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
        Ok(Self {
            shell: is_text(program.path).then(|| by_shell(&path, &arguments)),
            path,
            arguments,
            environment: program.environment.iter().map(pair).collect::<Result<_, _>>()?,
            thp: program.thp,
            standard: program.standard.map(|file| file.map(|file| file.as_raw_fd())),
            own_group: program.own_group,
            mask,
            gate,
            failure,
        })
    }

    /// Returns the pointers that exec takes.
    pub(super) fn vectors(&self) -> ExecVectors {
        let list = |texts: &[CString]| {
            texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
        };
        ExecVectors {
            arguments: list(&self.arguments),
            shell: list(self.shell.as_deref().unwrap_or_default()),
            environment: list(&self.environment),
        }
    }

    /// Runs in the child: waits at the gate and becomes the program. `open` is the child's copy of
    /// the gate's other end.
    pub(super) fn become_program(&self, vectors: &ExecVectors, open: RawFd) -> ! {
        let mut byte = [0_u8];
        // SAFETY: plain system calls on descriptors and memory that live across them. The other end
        // is closed first, so that the gate opens, and the child ends, also when the parent dies.
        unsafe {
            libc::close(open);
            while libc::read(self.gate.as_raw_fd(), byte.as_mut_ptr().cast(), 1) == -1
                && last_errno() == Errno(libc::EINTR)
            {}
            if byte[0] != 1 {
                libc::_exit(1);
            }
        }
        let ExecVectors { arguments, shell, environment } = vectors;
        let errno = self.set_up().err().unwrap_or_else(|| {
            // SAFETY: the paths are C strings, and the lists are of such, ended by a null, all
            // allocated before the fork.
            unsafe {
                libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                if last_errno() == Errno(libc::ENOEXEC) && self.shell.is_some() {
                    libc::execve(SHELL.as_ptr(), shell.as_ptr(), environment.as_ptr());
                }
            }
            last_errno()
        });
        let errno = errno.0.to_ne_bytes();
        // SAFETY: a live descriptor and buffer; then the child ends without destructors.
        unsafe {
            libc::write(self.failure.as_raw_fd(), errno.as_ptr().cast(), errno.len());
            libc::_exit(127)
        }
    }

    /// Sets the state that survives exec.
    fn set_up(&self) -> Result<(), Errno> {
        let done = |answer: i32| if answer == -1 { Err(last_errno()) } else { Ok(()) };
        for (number, file) in (0..).zip(self.standard) {
            if let Some(file) = file {
                // SAFETY: numbers only; the copy stays open over exec.
                done(unsafe { libc::dup2(file, number) })?;
            }
        }
        if self.own_group {
            // SAFETY: numbers only.
            done(unsafe { libc::setpgid(0, 0) })?;
        }
        done(set_thp(self.thp))?;
        inherited::restore();
        // SAFETY: a whole set.
        done(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut()) })
    }
}

fn set_thp(thp: Thp) -> i32 {
    let (disable, flags): (libc::c_ulong, libc::c_ulong) = match thp {
        Thp::Inherit => return 0,
        Thp::Never => (1, 0),
        Thp::Advised => (1, EXCEPT_ADVISED),
        Thp::Allowed => (0, 0),
    };
    let zero: libc::c_ulong = 0;
    // SAFETY: takes plain numbers, and changes a flag of this address space.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, flags, zero, zero) }
}

/// Whether a shell should read the file: not a program that is damaged or for another processor.
fn is_text(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = file::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
    read.is_ok() && !beginning.starts_with(b"\x7fELF") && !beginning.contains(&0)
}

fn by_shell(path: &CString, arguments: &[CString]) -> Vec<CString> {
    let rest = arguments.iter().skip(1).cloned();
    [SHELL.to_owned(), path.clone()].into_iter().chain(rest).collect()
}
