//! Parser of `/proc/PID/stat`: one line, with the raw process name in its middle.

use hugepilot_record::Pid;
use hugepilot_units::{Bytes, Nanos};

use super::printable;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process.
    pub pid: Pid,
    /// Name, at most 15 bytes, control characters escaped.
    pub command: String,
    /// `R`, `S`, `Z` (zombie), …
    pub state: char,
    /// Parent, or the process that the kernel gave it to when its parent ended.
    pub parent: Pid,
    /// Kernel flags (`PF_*`).
    pub flags: u64,
    /// Page faults without I/O, of all threads.
    pub minor_faults: u64,
    /// Minor page faults of children that it has waited for: any child has some.
    pub child_faults: u64,
    /// Page faults that waited for I/O, of all threads.
    pub major_faults: u64,
    /// Major page faults of children that it has waited for.
    pub child_major_faults: u64,
    /// CPU time in user mode, all threads, in steps of a clock tick.
    pub user: Nanos,
    /// CPU time in the kernel, all threads, in steps of a clock tick.
    pub system: Nanos,
    /// CPU time, all threads, in steps of a clock tick.
    pub cpu: Nanos,
    /// CPU time of children that it has waited for, in steps of a clock tick.
    pub child_cpu: Nanos,
    /// Threads.
    pub threads: u64,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Resident memory, off by some hundred KiB.
    pub resident: Bytes,
    /// Bottom of the stack, which changes with every exec; 0 if the process may not be read.
    pub start_stack: u64,
}

const PF_EXITING: u64 = 0x4;
const PF_KTHREAD: u64 = 0x0020_0000;

impl Stat {
    /// Returns its start time since boot, in steps of a clock tick.
    pub fn started(&self) -> Nanos {
        of_ticks(self.start_ticks)
    }
    /// Whether it is a kernel thread.
    pub const fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
    /// Whether it is about to end, or has ended.
    pub const fn is_exiting(&self) -> bool {
        self.flags & PF_EXITING != 0
    }
    /// Whether a signal or a tracer has stopped it.
    pub const fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
    /// Whether it has ended and only its entry exists.
    pub const fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Parses the line. The name ends at the *last* `)`: it may hold `)`, blanks and newlines itself.
pub fn parse_stat(line: &[u8]) -> Option<Stat> {
    let open = line.iter().position(|&b| b == b'(')?;
    let close = line.iter().rposition(|&b| b == b')')?;
    let pid = std::str::from_utf8(&line[..open]).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc(5) counts fields from 1, and `fields[0]` is field 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        pid: Pid(pid),
        command: printable(line.get(open + 1..close)?),
        state: fields.first()?.chars().next()?,
        parent: Pid(i32::try_from(number(4)?).ok()?),
        flags: number(9)?,
        minor_faults: number(10)?,
        child_faults: number(11)?,
        major_faults: number(12)?,
        child_major_faults: number(13)?,
        user: of_ticks(number(14)?),
        system: of_ticks(number(15)?),
        cpu: of_ticks(number(14)?.saturating_add(number(15)?)),
        child_cpu: of_ticks(number(16)?.saturating_add(number(17)?)),
        threads: number(20)?,
        start_ticks: number(22)?,
        resident: Bytes::new(rustix::param::page_size() as u64).times(number(24)?),
        start_stack: number(28)?,
    })
}

fn of_ticks(ticks: u64) -> Nanos {
    Nanos::new(ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(name: &[u8]) -> Vec<u8> {
        let mut line = b"4543 (".to_vec();
        line.extend_from_slice(name);
        line.extend_from_slice(b") R 1 2 3 0 -1 4194304 99 5 0 6 17 3 8 1 20 0 1 0 152663");
        line.extend_from_slice(b" 3133440 383 184467 943 944 140725 0 0\n");
        line
    }

    #[test]
    fn names_may_hold_anything() {
        for name in [&b"cat"[..], b"a) R 1\n\xff</b>", b"((", b")", b""] {
            let stat = parse_stat(&line(name)).unwrap();
            assert_eq!(stat.command, printable(name));
            assert_eq!((stat.pid, stat.state, stat.start_ticks), (Pid(4543), 'R', 152_663));
            assert_eq!((stat.start_stack, stat.cpu), (140_725, of_ticks(20)));
            assert_eq!((stat.minor_faults, stat.child_faults, stat.major_faults), (99, 5, 0));
            assert_eq!((stat.user, stat.system), (of_ticks(17), of_ticks(3)));
            assert_eq!((stat.child_major_faults, stat.child_cpu), (6, of_ticks(9)));
            assert_eq!(stat.parent, Pid(1));
            let page = rustix::param::page_size() as u64;
            assert_eq!(stat.resident, Bytes::new(383 * page));
        }
    }

    #[test]
    fn a_kernel_thread_is_known_by_its_flag() {
        let text =
            b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 14 0 0 0 0 0 0 0 0 0";
        assert!(parse_stat(text).unwrap().is_kernel_thread());
        assert!(!parse_stat(&line(b"cat")).unwrap().is_kernel_thread());
    }

    proptest! {
        #[test]
        fn cut_or_random_lines_never_panic(
            cut in 0_usize..120, junk in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let whole = line(b"cat");
            let _ = parse_stat(&whole[..cut.min(whole.len())]);
            let _ = parse_stat(&junk);
        }
    }
}
