//! Tests of the program on the running kernel, with processes that a test owns.
//!
//! Run as root: `HUGEPILOT_LIVE=1 cargo test -p hugepilot-cli --test live -- --test-threads=1`.
//! Each test prints its unmet needs and then skips itself. Tests run one at a time, because they
//! measure, and share the huge pages of the machine. `cargo xtask test` runs the modules that its
//! list has two at a time.

#![forbid(unsafe_code)]

// what the tests are made of
mod look; // the kernel's view of a process: the oracle
mod tool; // runs the command, with a limit on its time
#[path = "../validation/mod.rs"]
mod validation; // JSON by its schema
mod workload; // the lab's workloads as targets

// what it is tried on
mod bloated; // workloads with bloat: as much as they say

// no harm
mod blocked; // memory that must not, or cannot, have huge pages
mod bytes; // no byte ever changes
mod capped; // file capabilities do not reach other programs
mod hostile; // targets that change, lie about their name, or are none
mod inherited; // perf events of children
mod injected; // system calls that fail, or lie
mod interrupt; // Ctrl-C and SIGTERM, at bad moments
mod lazily_freed; // memory that is the kernel's to take
mod many; // 100,000 mappings
mod own; // the memory of hugepilot itself, in small cgroups
mod sharing; // memory shared after fork stays shared
mod thirtytwo; // 32-bit code
mod tight; // what would survive without us survives with us
mod traces; // traces that would take all memory
mod unknown; // unknown values are neither zero nor nothing to gain
mod unprivileged; // function without permissions, and clear errors for the rest

// what it is for
mod compare; // a program in several modes, interleaved
mod daemon; // memory held at its watermarks
mod debloat; // no harm by it either, and every number checked
mod decisions; // of a tune, by the options that its help names
mod ends; // each signal to each command, and nothing is left running
mod exchange; // huge pages of a spent budget follow the heat, and nothing else
mod experiments; // each run once, whatever interrupts it
mod grants; // permissions and limits that the help names, tried in tables
mod graph; // kernels on chosen pages
mod graph_files; // graphs from files and into files
mod journal; // a tune explained, and undone
mod launched; // tune -- CMD
mod obstacles; // in the memory of a program, until it ends them
mod options; // what the help suggests, tried in tables
mod pool; // pools: set, shown, restored
mod quality; // the hot is promoted, and nothing else
mod reasons; // why memory is not huge, and whether it comes true
mod record; // a program over time
mod recorded; // metrics and rounds on one axis of time
mod remedies; // what the help says, works
mod run; // a program with chosen pages
mod schedule; // the promotions of a tune, replayed
mod signals; // the same under signals
mod status; // every number checked
mod targets; // several targets of one tune
mod timed; // a program over time, and how much of it
mod top; // all processes, by the kernel's files
mod weather; // conditions for experiments hold, and leave nothing behind

use hugepilot_testkit::cgroup; // a memory cgroup that is gone afterwards
