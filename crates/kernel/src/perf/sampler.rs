//! Sampler of all threads of some processes, through one ring per CPU.
//!
//! Each thread gets one event per CPU that its children inherit; all events of a CPU write into one
//! ring. So threads and processes made later are sampled from their first instruction, and memory
//! is bounded by the number of CPUs, not of processes or threads. If threads times CPUs need more
//! descriptors than allowed, each thread gets one event and one small ring instead, and
//! [`PerfSampler::rescan`] finds threads made later. All rings together keep within
//! [`RINGS_BYTES`].

use std::collections::HashSet;
use std::os::fd::AsFd;

use hugepilot_record::{Errno, Pid, Tid};
use hugepilot_units::Nanos;
use perf_event_open_sys::bindings as sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::chain::max_frames;
use super::record::{Record, RegsMask, SampleFormat, parse_record, records};
use crate::sys::perf::{EventFd, Ring};
use crate::wait::timespec;
use crate::{KernelError, Process, Result, Root, cpu};

/// Limit on all rings of a sampler together: the kernel locks them into memory.
const RINGS_BYTES: usize = 32 << 20;
/// Data of a ring for a CPU. 128 KiB hold 0.7 s of 1 kHz samples.
const RING_BYTES: usize = 128 << 10;
/// Data of a ring for a thread.
const SMALL_RING_BYTES: usize = 16 << 10;
/// Minimum data of a ring, 40 samples: a smaller one would overflow between two drains.
const MIN_RING_BYTES: usize = 8 << 10;
/// Limit on descriptors of a sampler, even if more are allowed.
const MAX_EVENTS: usize = 8192;
/// Further descriptors for each sampled process, whose code is read, too.
const DESCRIPTORS_OF_PROCESS: usize = 4;

/// Event that fires the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`.
    pub config1: u64,
    /// `config2`.
    pub config2: u64,
    /// Required precision of the instruction pointer (`precise_ip`, 0–3).
    pub precise_ip: u8,
    /// Whether the hardware excludes the kernel by itself.
    pub exclude_kernel: bool,
    /// Events per sample; for a clock, nanoseconds of the thread's CPU time.
    pub period: u64,
    /// Fields of each sample.
    pub format: SampleFormat,
}

impl Event {
    /// Returns the CPU clock: a timer that runs while the thread runs. `period`: at least 10 µs.
    pub const fn cpu_clock(period: Nanos) -> Self {
        Self {
            kind: sys::PERF_TYPE_SOFTWARE,
            config: sys::PERF_COUNT_SW_CPU_CLOCK as u64,
            config1: 0,
            config2: 0,
            precise_ip: 0,
            exclude_kernel: true,
            period: period.get(),
            format: SampleFormat::REGISTERS,
        }
    }

    pub(super) fn attributes(
        &self,
        inherit: bool,
        ring_bytes: usize,
        max_frames: u16,
    ) -> sys::perf_event_attr {
        let mut attr = sys::perf_event_attr::default();
        attr.size = u32::try_from(size_of::<sys::perf_event_attr>()).unwrap_or(0);
        attr.type_ = self.kind;
        attr.config = self.config;
        attr.sample_type = self.format.sample_type();
        attr.clockid = rustix::time::ClockId::Monotonic as i32;
        attr.__bindgen_anon_1.sample_period = self.period;
        attr.__bindgen_anon_2.wakeup_watermark = u32::try_from(ring_bytes / 2).unwrap_or(u32::MAX);
        attr.__bindgen_anon_3.config1 = self.config1;
        attr.__bindgen_anon_4.config2 = self.config2;
        attr.set_disabled(1);
        attr.set_inherit(inherit.into());
        attr.set_exclude_kernel(self.exclude_kernel.into());
        attr.set_exclude_hv(self.exclude_kernel.into());
        attr.set_precise_ip(self.precise_ip.into());
        attr.set_watermark(1);
        attr.set_use_clockid(1);
        attr.set_task(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_mmap(1);
        if self.format.registers {
            attr.sample_regs_user = RegsMask::X86_64;
        }
        if self.format.callers {
            attr.set_exclude_callchain_kernel(1);
            attr.sample_max_stack = max_frames;
        }
        if self.format.has_stack_top() {
            attr.sample_stack_user = 8;
        }
        attr
    }
}

/// Options of a sampler.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOptions {
    /// Event that fires the samples.
    pub event: Event,
    /// Whether each thread gets one event only, as on a machine with many CPUs.
    pub per_thread: bool,
    /// Whether the processes that a process starts inherit its events.
    pub with_children: bool,
}

impl SamplerOptions {
    /// Returns the usual options for `event`.
    pub const fn new(event: Event) -> Self {
        Self { event, per_thread: false, with_children: true }
    }
}

/// Layout of events and rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    per_thread: bool,
    ring_bytes: usize,
    max_events: usize,
}

impl Shape {
    /// Returns the layout for `threads` on `cpus`, with pages of `page` bytes and `allowed`
    /// descriptors.
    fn of(threads: usize, cpus: usize, allowed: usize, page: usize, per_thread: bool) -> Self {
        let per_thread = per_thread || threads.saturating_mul(cpus) > allowed;
        let (mut ring_bytes, rings) =
            if per_thread { (SMALL_RING_BYTES, threads.min(allowed)) } else { (RING_BYTES, cpus) };
        // Each ring has a control page before its data.
        while ring_bytes > MIN_RING_BYTES && (ring_bytes + page).saturating_mul(rings) > RINGS_BYTES
        {
            ring_bytes /= 2;
        }
        let ring_bytes = ring_bytes.max(page);
        let max_rings = if per_thread { RINGS_BYTES / (ring_bytes + page) } else { usize::MAX };
        Self { per_thread, ring_bytes, max_events: allowed.min(max_rings) }
    }
}

/// Event, and the process whose thread it samples.
#[derive(Debug)]
struct TargetEvent {
    pid: Pid,
    event: EventFd,
}

/// Failed call, as its manual page names it, and its error number.
type Failure = (&'static str, Errno);

#[derive(Debug)]
struct OwnedRing {
    ring: Ring,
    /// Index of the event that owns it, for polling.
    event: usize,
}

/// Sampler of processes, until dropped. Starts disabled.
#[derive(Debug)]
pub struct PerfSampler {
    event: Event,
    with_children: bool,
    /// Frames of a call chain at most.
    max_frames: u16,
    shape: Shape,
    cpus: Vec<i32>,
    events: Vec<TargetEvent>,
    rings: Vec<OwnedRing>,
    known: HashSet<Tid>,
    enabled: bool,
    /// Records of one ring, copied out; reused, with the length of a ring.
    scratch: Vec<u8>,
}

impl PerfSampler {
    /// Attaches to every thread of `process`.
    ///
    /// # Errors
    /// EACCES or EPERM without permission (another user's process requires CAP_PERFMON, or
    /// `perf_event_paranoid` forbids it); ENOENT or EOPNOTSUPP if the event does not exist here;
    /// EMFILE; [`KernelError::NoProcess`].
    pub fn attach(process: &Process, options: SamplerOptions) -> Result<Self> {
        let (sampler, attached) = Self::attach_all(&[process], options)?;
        attached.into_iter().collect::<Result<()>>()?;
        Ok(sampler)
    }

    /// Attaches to every thread of each of `processes`, and returns a result for each: the errors
    /// of [`Self::attach`], and EMFILE for the last ones if threads exceed the limits on
    /// descriptors or rings.
    ///
    /// # Errors
    /// [`KernelError::Read`] if the system does not show its CPUs.
    pub fn attach_all(
        processes: &[&Process],
        options: SamplerOptions,
    ) -> Result<(Self, Vec<Result<()>>)> {
        let root = processes.first().map_or_else(Root::live, |process| process.root().clone());
        let threads: Vec<Result<Vec<Tid>>> =
            processes.iter().map(|process| process.threads()).collect();
        let count = threads.iter().flatten().map(Vec::len).sum();
        let cpus: Vec<i32> = cpu::online(&root)?.into_iter().map(u32::cast_signed).collect();
        let allowed =
            descriptors_allowed().saturating_sub(DESCRIPTORS_OF_PROCESS * processes.len());
        let shape =
            Shape::of(count, cpus.len(), allowed, rustix::param::page_size(), options.per_thread);
        let mut sampler = Self {
            event: options.event,
            with_children: options.with_children,
            max_frames: max_frames(&root),
            shape,
            cpus: if shape.per_thread { vec![-1] } else { cpus },
            events: Vec::new(),
            rings: Vec::new(),
            known: HashSet::new(),
            enabled: false,
            scratch: Vec::with_capacity(shape.ring_bytes),
        };
        let pids = processes.iter().map(|process| crate::Target::id(*process).pid);
        let attached = pids
            .zip(threads)
            .map(|(pid, threads)| sampler.attach_process(pid, &threads?))
            .collect();
        Ok((sampler, attached))
    }

    fn attach_process(&mut self, pid: Pid, threads: &[Tid]) -> Result<()> {
        let failed = |(call, errno)| KernelError::syscall(call, pid, errno);
        let (first, room) = (self.events.len(), self.room());
        // Half of a process would show half of its heat beside the others; of a single process,
        // half is better than nothing.
        if threads.len() > room && (first > 0 || room == 0) {
            return Err(failed(("perf_event_open", Errno::EMFILE)));
        }
        for &tid in threads.iter().take(room) {
            match self.attach_thread(pid, tid) {
                // A thread may end at any moment.
                Ok(()) | Err((_, Errno::ESRCH)) => {}
                Err(failure) => return Err(failed(failure)),
            }
        }
        if self.events.len() == first { Err(KernelError::NoProcess { pid }) } else { Ok(()) }
    }

    /// Returns the number of further threads that can be attached.
    fn room(&self) -> usize {
        self.shape.max_events.saturating_sub(self.events.len()) / self.cpus.len().max(1)
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// ENOTTY, EACCES or EPERM if a sandbox or a security module forbids the `ioctl`.
    pub fn enable(&mut self) -> Result<()> {
        self.enabled = true;
        self.for_all("ioctl(PERF_EVENT_IOC_ENABLE)", EventFd::enable)
    }

    /// Pauses sampling; the rings keep their records.
    ///
    /// # Errors
    /// As for [`Self::enable`].
    pub fn disable(&mut self) -> Result<()> {
        self.enabled = false;
        self.for_all("ioctl(PERF_EVENT_IOC_DISABLE)", EventFd::disable)
    }

    /// Waits at most `wait` for a ring to become half full, then passes every record of every ring
    /// to `each`. Records of one CPU are in order; those of different CPUs are not.
    pub fn drain(&mut self, wait: Nanos, mut each: impl FnMut(Record<'_>)) {
        let mut fds: Vec<PollFd<'_>> = self
            .rings
            .iter()
            .map(|ring| {
                PollFd::from_borrowed_fd(self.events[ring.event].event.as_fd(), PollFlags::IN)
            })
            .collect();
        let woken = poll(&mut fds, Some(&timespec(wait.into())));
        // Descriptors of ended threads hang up, and poll no longer waits.
        if woken.is_ok_and(|n| n > 0) && fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP))
        {
            std::thread::sleep(wait.into());
        }
        let format = self.event.format;
        for OwnedRing { ring, .. } in &mut self.rings {
            ring.take(&mut self.scratch);
            for record in records(&self.scratch).filter_map(|bytes| parse_record(bytes, format)) {
                if let Record::Fork { tid, .. } = record {
                    self.known.insert(tid);
                }
                each(record);
            }
        }
    }

    /// Attaches to new threads of `process` that no inherited event reported. Cheap enough for
    /// every second.
    ///
    /// # Errors
    /// As for [`Self::attach`].
    pub fn rescan(&mut self, process: &Process) -> Result<()> {
        let pid = crate::Target::id(process).pid;
        for tid in process.threads()? {
            if self.known.contains(&tid) || self.room() == 0 {
                continue;
            }
            let first = self.events.len();
            // A thread that ended, or that exceeds the limits on descriptors or rings, goes
            // unsampled.
            let _ = self.attach_thread(pid, tid);
            if self.enabled {
                for of in &self.events[first..] {
                    let _ = of.event.enable();
                }
            }
        }
        Ok(())
    }

    fn attach_thread(&mut self, pid: Pid, tid: Tid) -> std::result::Result<(), Failure> {
        self.known.insert(tid);
        let Shape { per_thread, ring_bytes, .. } = self.shape;
        let mut attr = self.event.attributes(!per_thread, ring_bytes, self.max_frames);
        // Linux 5.13 or later, else EINVAL.
        attr.set_inherit_thread((!per_thread && !self.with_children).into());
        for (i, &cpu) in self.cpus.iter().enumerate() {
            let event = EventFd::open(&attr, tid.0, cpu, None)
                .map_err(|errno| ("perf_event_open", errno))?;
            // The first event of each CPU owns its ring, and the others write there, too.
            match self.rings.get(i).filter(|_| !per_thread) {
                Some(owner) => {
                    let into = &self.events[owner.event].event;
                    event
                        .redirect_to(into)
                        .map_err(|errno| ("ioctl(PERF_EVENT_IOC_SET_OUTPUT)", errno))?;
                }
                None => {
                    let page = rustix::param::page_size();
                    let ring = Ring::map(&event, ring_bytes, page)
                        .map_err(|errno| ("mmap of a perf event", errno))?;
                    self.rings.push(OwnedRing { ring, event: self.events.len() });
                }
            }
            self.events.push(TargetEvent { pid, event });
        }
        Ok(())
    }

    fn for_all(
        &self,
        call: &'static str,
        act: impl Fn(&EventFd) -> std::result::Result<(), Errno>,
    ) -> Result<()> {
        self.events.iter().try_for_each(|of| {
            act(&of.event).map_err(|errno| KernelError::syscall(call, of.pid, errno))
        })
    }
}

/// Raises the soft limit of this process to the hard one, and returns the descriptors that a
/// sampler may use.
pub(super) fn descriptors_allowed() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(now.saturating_sub(128)).unwrap_or(usize::MAX).min(MAX_EVENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_keep_within_their_bytes_for_any_threads_and_cpus() {
        let shape = |threads, cpus, per_thread| Shape::of(threads, cpus, 8000, 4096, per_thread);
        let full = Shape { per_thread: false, ring_bytes: 128 << 10, max_events: 8000 };
        assert_eq!((shape(1, 2, false), shape(4000, 2, false)), (full, full));
        assert_eq!(shape(1, 1024, false), Shape { ring_bytes: 16 << 10, ..full });
        let small = Shape { per_thread: true, ring_bytes: 16 << 10, max_events: 1638 };
        assert_eq!((shape(200, 64, false), shape(1, 2, true)), (small, small));
        assert_eq!(
            shape(2000, 64, false),
            Shape { ring_bytes: 8 << 10, max_events: 2730, ..small }
        );
        for (threads, cpus) in [(1, 1), (1, 256), (30, 256), (2000, 64), (1_000_000, 2)] {
            let shape = shape(threads, cpus, false);
            let rings = if shape.per_thread { threads.min(shape.max_events) } else { cpus };
            assert!(
                rings * (shape.ring_bytes + 4096) <= RINGS_BYTES,
                "{threads} {cpus}: {shape:?}"
            );
        }
        assert_eq!(Shape::of(1, 2, 8000, 64 << 10, true).ring_bytes, 64 << 10, "a page at least");
    }
}
