//! `malloc` and its like, out of a heap on huge pages, for programs that were not built for them:
//!
//! ```sh
//! LD_PRELOAD=/usr/lib/hugepilot/libhugepilot_preload.so HUGEPILOT_PAGES=hugetlb-2m,thp,base program
//! ```
//!
//! `HUGEPILOT_PAGES` names the backings to try, in order (`thp,base` where it is not set). `HUGEPILOT_STATS=1` writes a line
//! of JSON about the heap to stderr when the program exits, any other value to the file of that name, at its end; where it is not
//! set, or `0`, nothing is written. Take a file for programs that close stderr before they end, as `ls` does, and for those that
//! may have something else open as descriptor 2 by then, as some servers do. Each process of a tree writes a line of its own.
//! A value that cannot be read is told on stderr, by the first process of a tree, and what is the default is done.
//!
//! What a program does wrong with memory (a second free, a free of what was not allocated or of the inside of an object) ends it
//! with SIGABRT, and a line on stderr that names the address. `HUGEPILOT_CHECK=1` finds more, and makes the program slower: each
//! object lies before a page that cannot be touched, and what is freed cannot be touched for long. So a program that reads or
//! writes behind an object, or one that is free, ends with SIGSEGV where it does so, and a line that names the object.
//!
//! A child that a signal handler forks may not allocate before it execs: POSIX allows it nothing of the kind, and the handler may
//! have interrupted `malloc`.
//!
//! Everything behaves as the C library documents it for its own: alignment 16, `errno`, `realloc(p, 0)`, sizes without
//! bytes. C++'s operators come through `malloc`.

pub mod c;
mod environment;
mod report;
