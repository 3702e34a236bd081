//! Counters of events in groups: of a process with its threads, or of the whole system.
//!
//! Events of a group count at the same time, so their ratio is that of one moment even if the
//! kernel multiplexes groups. Threads that start later inherit the counters of the thread that
//! starts them. Units outside the cores count for the whole system, whatever the target.

mod absent;
mod code;
mod format;
mod listing;
#[cfg(test)]
mod tests;

use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use hugepilot_events::{EventReading, ResolvedEvent};
use hugepilot_record::{Errno, Tid};

use self::code::Opening;
use self::format::{Layout, parse};
use super::sampler::descriptors_allowed;
use crate::rights::Rights;
use crate::sys::perf::EventFd;
use crate::sys::reach::{self, Call};
use crate::{KernelError, Process, Root, Unsupported, cpu, unsupported};

pub use listing::events_here;

/// Target of counters.
#[derive(Clone, Copy, Debug)]
pub enum CounterTarget<'a> {
    /// All current threads of a process, and those that they start, child processes included. Only
    /// user mode is counted, except by events of the kernel.
    Process(&'a Process),
    /// The same without child processes. Before Linux 5.13 they are included.
    ProcessAlone(&'a Process),
    /// All processors that are online, user and kernel mode. Requires permission.
    System,
}

/// Open counters of events. They stop on drop.
#[derive(Debug)]
pub struct GroupCounters {
    /// Cause for each event that cannot be counted.
    missing: Vec<Option<Unsupported>>,
    readers: Vec<Reader>,
    /// The largest reading of each event so far.
    latest: Mutex<Vec<Option<EventReading>>>,
}

/// Thread, or processor, that counters are attached to: `pid` and `cpu` of `perf_event_open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    tid: i32,
    cpu: i32,
}

/// Events that one read returns.
#[derive(Debug)]
struct Reader {
    place: Place,
    /// Indices of the events.
    events: Vec<usize>,
    layout: Layout,
    /// The leader, then the other members.
    descriptors: Vec<EventFd>,
}

/// Events of one group at the same places.
struct Group {
    events: Vec<usize>,
    places: Vec<Place>,
}

impl GroupCounters {
    /// Starts counting `events`. An event that cannot be counted here is skipped, see
    /// [`Self::missing`]. A thread that starts while the threads are listed may be missed.
    ///
    /// # Errors
    /// [`Unsupported`] if the process is gone, or its threads need more files than may be open.
    pub fn open(
        root: &Root,
        target: CounterTarget<'_>,
        events: &[ResolvedEvent],
    ) -> Result<Self, Unsupported> {
        let places = places(root, target)?;
        let is_process = !matches!(target, CounterTarget::System);
        let openings: Vec<Result<Vec<Opening>, Unsupported>> =
            events.iter().map(|event| Opening::of(root, event, target)).collect();
        let needed: usize = openings
            .iter()
            .flatten()
            .flatten()
            .map(|opening| opening.cpus.as_ref().map_or(places.len(), Vec::len))
            .sum();
        if needed > descriptors_allowed() {
            let limit = needed + 1024;
            return Err(Unsupported::ThreadsNeedFiles { threads: places.len(), limit });
        }
        let mut counters = Self {
            missing: vec![None; events.len()],
            readers: Vec::new(),
            latest: Mutex::new(vec![None; events.len()]),
        };
        let rights = Rights::read(root);
        for (group, openings) in grouped(events, openings, &places, &mut counters.missing) {
            counters.open_group(group, openings, &rights);
        }
        absent::join_causes(events, &mut counters.missing, || absent::no_counters(root));
        if is_process && counters.is_gone() {
            return Err(Unsupported::ProcessGone);
        }
        Ok(counters)
    }

    /// Opens the group at each of its places. Events that fail at the first place, alone, are
    /// missing; those that fail in the group only are opened each by itself.
    fn open_group(&mut self, mut group: Group, mut openings: Vec<Opening>, rights: &Rights) {
        let mut usable = Vec::new();
        for (index, mut opening) in group.events.into_iter().zip(openings.drain(..)) {
            match self.usable(&mut opening, &group.places) {
                Ok(()) => usable.push((index, opening)),
                Err(Errno::ESRCH) => self.missing[index] = Some(Unsupported::ProcessGone),
                Err(errno) => {
                    let answer = reach::answer(Call::PerfEventOpen);
                    self.missing[index] = Some(unsupported::of_event(errno, answer, rights));
                }
            }
        }
        group.events = usable.iter().map(|&(index, _)| index).collect();
        let openings: Vec<Opening> = usable.into_iter().map(|(_, opening)| opening).collect();
        if group.events.is_empty() || self.open_together(&group, &openings, rights) {
            return;
        }
        for (&index, opening) in group.events.iter().zip(&openings) {
            let alone = Group { events: vec![index], places: group.places.clone() };
            self.open_together(&alone, std::slice::from_ref(opening), rights);
        }
    }

    /// Tries an event by itself at the first place with a live thread.
    fn usable(&self, opening: &mut Opening, places: &[Place]) -> Result<(), Errno> {
        let mut last = Errno::ESRCH;
        for place in places {
            match opening.try_open(*place) {
                Ok(()) => return Ok(()),
                Err(Errno::ESRCH) => {}
                Err(errno) => {
                    last = errno;
                    break;
                }
            }
        }
        Err(last)
    }

    /// Opens the events as one group at each place. Returns whether that works; if not, nothing is
    /// kept.
    fn open_together(&mut self, group: &Group, openings: &[Opening], rights: &Rights) -> bool {
        let first = self.readers.len();
        for &place in &group.places {
            let mut descriptors: Vec<EventFd> = Vec::with_capacity(openings.len());
            let mut failure = None;
            for opening in openings {
                match opening.open(place, descriptors.first().map(AsFd::as_fd)) {
                    Ok(descriptor) => descriptors.push(descriptor),
                    Err(errno) => {
                        failure = Some(errno);
                        break;
                    }
                }
            }
            match failure {
                // A thread may end at any moment.
                Some(Errno::ESRCH) => {}
                Some(errno) => {
                    self.readers.truncate(first);
                    if let [index] = group.events[..] {
                        let answer = reach::answer(Call::PerfEventOpen);
                        self.missing[index] = Some(unsupported::of_event(errno, answer, rights));
                    }
                    return false;
                }
                None => {
                    let layout = openings.first().map_or(Layout::Group, |opening| opening.layout);
                    let events = group.events.clone();
                    self.readers.push(Reader { place, events, layout, descriptors });
                }
            }
        }
        true
    }

    /// Whether every event is missing because the process is gone.
    fn is_gone(&self) -> bool {
        let gone = |cause: &Option<Unsupported>| matches!(cause, Some(Unsupported::ProcessGone));
        !self.missing.is_empty() && self.missing.iter().all(gone)
    }

    /// Returns the events that are not counted, as indices into the events of [`Self::open`], each
    /// with the cause.
    pub fn missing(&self) -> impl Iterator<Item = (usize, &Unsupported)> {
        self.missing.iter().enumerate().filter_map(|(i, cause)| Some((i, cause.as_ref()?)))
    }

    /// Returns the number of open descriptors.
    pub fn descriptors(&self) -> usize {
        self.readers.iter().map(|reader| reader.descriptors.len()).sum()
    }

    /// Reads all events, summed over threads or processors, in about a microsecond for each group
    /// of each thread. An event without a value, or of which a thread failed, is `None`.
    ///
    /// While a thread ends, the kernel dissolves its group before it adds the counts of the members
    /// to those of the thread's parent, so a read in between lacks them. A reading is therefore
    /// never less than an earlier one; the missing counts are in a later one.
    pub fn read(&self) -> Vec<Option<EventReading>> {
        let mut sums = Sums::new(self.missing.len());
        for reader in &self.readers {
            sums.add(reader);
        }
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        for (now, latest) in sums.values.iter_mut().zip(latest.iter_mut()) {
            let Some(reading) = now else { continue };
            *reading = latest.map_or(*reading, |latest| reading.max(latest));
            *latest = Some(*reading);
        }
        sums.values
    }

    /// Reads all events for each thread that existed at the start. Threads that start later count
    /// to the thread that started them. A reading may be less than an earlier one while a thread
    /// ends, see [`Self::read`].
    pub fn read_threads(&self) -> Vec<(Tid, Vec<Option<EventReading>>)> {
        let mut threads: Vec<(Tid, Sums)> = Vec::new();
        for reader in self.readers.iter().filter(|reader| reader.place.tid >= 0) {
            let tid = Tid(reader.place.tid);
            let at = threads.iter().position(|&(known, _)| known == tid).unwrap_or_else(|| {
                threads.push((tid, Sums::new(self.missing.len())));
                threads.len() - 1
            });
            threads[at].1.add(reader);
        }
        threads.into_iter().map(|(tid, sums)| (tid, sums.values)).collect()
    }
}

/// Sums of the readings of each event.
struct Sums {
    values: Vec<Option<EventReading>>,
    /// Whether a read of the event failed: then a sum would be too low.
    failed: Vec<bool>,
}

impl Sums {
    fn new(events: usize) -> Self {
        Self { values: vec![None; events], failed: vec![false; events] }
    }

    fn add(&mut self, reader: &Reader) {
        let readings = reader.read();
        for (place, &index) in reader.events.iter().enumerate() {
            match readings.get(place) {
                Some(reading) if !self.failed[index] => {
                    let sum = self.values[index].unwrap_or_default();
                    self.values[index] = Some(sum.plus(*reading));
                }
                Some(_) => {}
                None => {
                    self.failed[index] = true;
                    self.values[index] = None;
                }
            }
        }
    }
}

impl Reader {
    /// Reads the events; empty if the kernel returned an error, or another number of bytes.
    fn read(&self) -> Vec<EventReading> {
        let Some(leader) = self.descriptors.first() else { return Vec::new() };
        let mut bytes = vec![0; self.layout.bytes(self.events.len())];
        let Ok(length) = rustix::io::read(leader.as_fd(), &mut bytes[..]) else {
            return Vec::new();
        };
        parse(self.layout, self.events.len(), &bytes[..length]).unwrap_or_default()
    }
}

/// Returns the threads or the processors of a target.
fn places(root: &Root, target: CounterTarget<'_>) -> Result<Vec<Place>, Unsupported> {
    let other = |error: KernelError| Unsupported::because(&error);
    match target {
        CounterTarget::Process(process) | CounterTarget::ProcessAlone(process) => {
            let threads = process.threads().map_err(other)?;
            Ok(threads.iter().map(|tid| Place { tid: tid.0, cpu: -1 }).collect())
        }
        CounterTarget::System => {
            let cpus = cpu::online(root).map_err(other)?.into_iter().map(u32::cast_signed);
            Ok(cpus.map(|cpu| Place { tid: -1, cpu }).collect())
        }
    }
}

/// Collects events with the same number of a group. Events without a number, and each event of a
/// unit outside the cores, are alone. Causes of events that cannot be opened go to `missing`.
fn grouped(
    events: &[ResolvedEvent],
    openings: Vec<Result<Vec<Opening>, Unsupported>>,
    places: &[Place],
    missing: &mut [Option<Unsupported>],
) -> Vec<(Group, Vec<Opening>)> {
    let mut groups: Vec<(Option<u32>, Group, Vec<Opening>)> = Vec::new();
    for (index, opening) in openings.into_iter().enumerate() {
        let openings = match opening {
            Ok(openings) => openings,
            Err(cause) => {
                missing[index] = Some(cause);
                continue;
            }
        };
        for opening in openings {
            let number = events[index].metric.group.filter(|_| opening.cpus.is_none());
            let same = groups
                .iter_mut()
                .find(|(of, ..)| number.is_some() && *of == number && opening.cpus.is_none());
            if let Some((_, group, openings)) = same {
                group.events.push(index);
                openings.push(opening);
                continue;
            }
            let places = opening.cpus.as_ref().map_or_else(
                || places.to_vec(),
                |cpus| cpus.iter().map(|&cpu| Place { tid: -1, cpu }).collect(),
            );
            groups.push((number, Group { events: vec![index], places }, vec![opening]));
        }
    }
    groups.into_iter().map(|(_, group, openings)| (group, openings)).collect()
}
