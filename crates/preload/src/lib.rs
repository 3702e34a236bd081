//! `malloc` and related functions on huge pages, for unchanged programs:
//!
//! ```sh
//! LD_PRELOAD=PREFIX/lib/libhugepilot_preload.so HUGEPILOT_PAGES=thp,base program
//! ```
//!
//! Environment:
//!
//! - `HUGEPILOT_PAGES`: backings in order of preference, such as `hugetlb-2m,thp,base` [default:
//!   `thp,base`].
//! - `HUGEPILOT_STATS`: at program exit, append one line of JSON about the heap to this file; `1`
//!   is stderr, `0` or unset disables it. Use a file for programs that close stderr before they
//!   exit, as `ls` does, or that reuse descriptor 2, as some servers do. Each process of a tree
//!   writes a line.
//!
//! The first process of a tree prints an invalid value to stderr, and the default applies.
//!
//! Misuse (a second free, or a free of an address that was not allocated or lies inside of an
//! object) ends the program with SIGABRT, after a line on stderr that names the address.
//!
//! A child forked by a signal handler must not allocate before it calls `exec`: POSIX forbids it,
//! and the handler may have interrupted `malloc`.
//!
//! All functions follow the documentation of the C library's: alignment 16, `errno`, `realloc(p,
//! 0)`, sizes of 0. C++'s operators call `malloc`.

pub mod c;
mod environment;
mod report;
