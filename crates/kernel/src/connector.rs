//! Forks of all processes, from the kernel's process connector: each one, however short it is.
//!
//! The kernel reports to processes of the first PID and user namespace; before Linux 6.6, to those
//! with `CAP_NET_ADMIN` only. Source: `Documentation/driver-api/connector.rst` and
//! `linux/cn_proc.h`.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use hugepilot_record::Pid;
use hugepilot_units::Nanos;
use rustix::io::Errno;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send,
    socket_with, sockopt,
};

/// Group and address of process events: `CN_IDX_PROC`, `CN_VAL_PROC`.
const PROC: u32 = 1;
/// `PROC_CN_MCAST_LISTEN` and `PROC_CN_MCAST_IGNORE`.
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;
const PROC_EVENT_NONE: u32 = 0;
const PROC_EVENT_FORK: u32 = 1;
const PROC_EVENT_EXEC: u32 = 2;
/// Bytes of `struct nlmsghdr` and `struct cn_msg`, and of an event before its data.
const HEADERS: usize = 16 + 20;
const EVENT: usize = 16;
/// Buffer of the socket: some 5,000 forks, threads and starts of programs between two calls.
/// Without `CAP_NET_ADMIN` the kernel allows less, at least 250.
const BUFFER_BYTES: usize = 4 << 20;
/// Time within which a child starts another program, if it does.
const YOUNG: Nanos = Nanos::seconds(1);

/// Event of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Fork {
        parent: Pid,
        child: Pid,
        at: Nanos,
    },
    Exec(Pid),
    /// The kernel acknowledged a request.
    Acknowledged,
    /// Another one, such as a new thread.
    Other,
}

/// Forks of all processes from now on.
#[derive(Debug)]
pub struct ForkWatch {
    socket: OwnedFd,
    young: Young,
}

impl ForkWatch {
    /// Begins to watch. `None` if the kernel does not report events to this process.
    pub fn begin() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::NETLINK;
        let socket = socket_with(family, SocketType::DGRAM, flags, Some(CONNECTOR)).ok()?;
        bind(&socket, &SocketAddrNetlink::new(0, PROC)).ok()?;
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES));
        // Older kernels ignore the second message, which has a mask of events.
        for words in [&[LISTEN][..], &[LISTEN, PROC_EVENT_FORK | PROC_EVENT_EXEC]] {
            send(&socket, &request(words), SendFlags::empty()).ok()?;
        }
        let watch = Self { socket, young: Young::default() };
        // A kernel that reports events acknowledges the message before `send` returns.
        let mut is_acknowledged = false;
        let _ = watch.take(|event| is_acknowledged |= event == Event::Acknowledged);
        is_acknowledged.then_some(watch)
    }

    /// Returns the processes that forked a child which started no other program within a second, by
    /// `now` on the monotonic clock. If events did not fit in the socket's buffer, returns none.
    /// Costs a microsecond per event.
    pub fn parents(&mut self, now: Nanos) -> BTreeSet<Pid> {
        let mut events = Vec::new();
        // Messages before a gap may lack the start of a program that follows.
        if self.take(|event| events.push(event)).is_err() {
            self.young = Young::default();
            return BTreeSet::new();
        }
        self.young.parents(&events, now)
    }

    /// Passes the events that wait in the socket.
    ///
    /// # Errors
    /// ENOBUFS if the kernel dropped some.
    fn take(&self, mut each: impl FnMut(Event)) -> Result<(), Errno> {
        let (mut message, mut result) = ([0; 256], Ok(()));
        loop {
            match recvfrom(&self.socket, &mut message, RecvFlags::empty()) {
                Ok((_, bytes, from)) => {
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    // Another process may send to this socket, too.
                    if from.is_some_and(|from| from.pid() == 0) {
                        each(parse(&message[..bytes.min(message.len())]));
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return result,
                // The rest of the buffer is read, too.
                Err(errno) if errno == Errno::NOBUFS && result.is_ok() => result = Err(errno),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Drop for ForkWatch {
    fn drop(&mut self) {
        // Before Linux 6.6, the end of the socket does not end the events.
        let _ = send(&self.socket, &request(&[IGNORE]), SendFlags::empty());
    }
}

/// Children that may still start another program, each with its parent and the time of its fork.
#[derive(Debug, Default)]
struct Young(Vec<(Pid, Pid, Nanos)>);

impl Young {
    fn parents(&mut self, events: &[Event], now: Nanos) -> BTreeSet<Pid> {
        let mut started = BTreeSet::new();
        for event in events {
            match *event {
                Event::Fork { parent, child, at } => self.0.push((child, parent, at)),
                Event::Exec(pid) => _ = started.insert(pid),
                Event::Acknowledged | Event::Other => {}
            }
        }
        self.0.retain(|(child, ..)| !started.contains(child));
        let old = self.0.extract_if(.., |&mut (.., at)| now >= at + YOUNG);
        old.map(|(_, parent, _)| parent).collect()
    }
}

/// Returns a message to the connector: `struct nlmsghdr`, `struct cn_msg` and `words`.
fn request(words: &[u32]) -> Vec<u8> {
    let bytes =
        |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let data = bytes(words);
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(0);
    // NLMSG_DONE in the low half; the sequence, the port, the address and two counters follow.
    let done = u32::from_ne_bytes([3, 0, 0, 0]);
    let mut message = bytes(&[length(HEADERS + data.len()), done, 0, 0, PROC, PROC, 0, 0]);
    message.extend(u16::try_from(data.len()).unwrap_or(0).to_ne_bytes());
    message.extend([0, 0]);
    message.extend(data);
    message
}

fn parse(message: &[u8]) -> Event {
    let word = |at: usize| {
        let bytes = message.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let pid = |at| Some(Pid(word(HEADERS + EVENT + at)?.cast_signed()));
    let time = || {
        let bytes = message.get(HEADERS + 8..HEADERS + EVENT)?;
        Some(Nanos::new(u64::from_ne_bytes(bytes.try_into().ok()?)))
    };
    let event = || match word(HEADERS)? {
        // The parent's thread and process, then the child's.
        PROC_EVENT_FORK if pid(8)? == pid(12)? => {
            Some(Event::Fork { parent: pid(4)?, child: pid(12)?, at: time()? })
        }
        PROC_EVENT_NONE if word(HEADERS + EVENT)? == 0 => Some(Event::Acknowledged),
        PROC_EVENT_EXEC => Some(Event::Exec(pid(4)?)),
        _ => None,
    };
    event().unwrap_or(Event::Other)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use hugepilot_testkit::requires;

    use super::*;

    fn fork(parent: i32, child: i32, at: u64) -> Event {
        Event::Fork { parent: Pid(parent), child: Pid(child), at: Nanos::seconds(at) }
    }

    #[test]
    fn children_count_that_start_no_program_within_a_second() {
        let mut young = Young::default();
        let none = BTreeSet::new();
        let first = [fork(1, 10, 5), fork(2, 20, 5), Event::Exec(Pid(20)), fork(3, 30, 5)];
        assert_eq!(young.parents(&first, Nanos::seconds(5)), none, "each may still start one");
        let next = [Event::Exec(Pid(30)), fork(1, 11, 6), Event::Other];
        assert_eq!(young.parents(&next, Nanos::seconds(6)), [Pid(1)].into());
        assert_eq!(young.parents(&[], Nanos::millis(6900)), none);
        assert_eq!(young.parents(&[Event::Exec(Pid(11))], Nanos::seconds(7)), none);
    }

    /// Messages that Linux 6.18 sent: a fork, a new thread, an exec.
    #[test]
    fn messages_of_the_kernel_are_read() {
        let message = |words: &[u32]| {
            let words = words.iter().flat_map(|word| word.to_ne_bytes());
            vec![0; HEADERS].into_iter().chain(words).collect::<Vec<u8>>()
        };
        let cases: [(&[u32], Event); 6] = [
            (&[1, 1, 1_000_000_000, 0, 5981, 5981, 6057, 6057], fork(5981, 6057, 1)),
            (&[0, 1, 0, 0, 0, 0, 0, 0], Event::Acknowledged),
            (&[0, 1, 0, 0, 1, 0, 0, 0], Event::Other),
            (&[1, 1, 0, 0, 5436, 2067, 6060, 5437], Event::Other),
            (&[2, 0, 0, 0, 6058, 6058, 0, 0], Event::Exec(Pid(6058))),
            (&[1, 1, 0, 0, 5981], Event::Other),
        ];
        for (words, event) in cases {
            assert_eq!(parse(&message(words)), event, "{words:?}");
        }
        assert_eq!(request(&[LISTEN]).len(), HEADERS + 4);
    }

    /// A shell forks for a subshell that ends at once, and starts a program for a command.
    #[test]
    fn a_short_fork_is_seen_and_a_command_is_none() {
        // The first PID namespace has this inode.
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
        let is_first = namespace.as_os_str() == "pid:[4026531836]";
        requires!(is_first.then_some(()).ok_or("a PID namespace: no forks are reported"));
        let mut watch = ForkWatch::begin().expect("the kernel reports forks");
        let mut run = |script| {
            let mut shell = Command::new("sh").args(["-c", script]).spawn().unwrap();
            shell.wait().unwrap();
            let later = crate::clock::monotonic() + YOUNG;
            watch.parents(later).contains(&Pid(shell.id().cast_signed()))
        };
        assert!(run("(:); :"), "a subshell");
        assert!(!run("/bin/true; :"), "a command");
    }
}
