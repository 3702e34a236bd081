//! Stall samples by code: each instruction with its function, source line, callers and data
//! mapping.
//!
//! The file of an instruction is opened when its first sample arrives, while the process lives.
//! Function and line are read from it later, with the slice, so an ended process loses nothing.
//! A sample waits for the next reading of the mappings, which may show that the mapping of its data
//! is another one than before.

use std::path::Path;
use std::rc::Rc;

use hashbrown::HashMap;
use hugepilot_kernel::Process;
use hugepilot_record::{Mapping, Pattern, Pid, Sample};
use hugepilot_recording::{CodeSlice, CodeStall, Frame, UNKNOWN_MAPPING};
use hugepilot_units::{Nanos, VirtAddr};

use super::layouts::Layouts;
use super::pace::Clocks;
use super::symbols::ObjectNames;

/// Instructions of a slice; the samples of others are summed.
const MAX_STALLS: usize = 512;
/// Instructions that are counted at most before a slice is due.
const MAX_COUNTED: usize = 1 << 14;
/// Frames of ended slices, and callers of all counted instructions, before they are taken.
const MAX_FRAMES: usize = 1 << 16;
/// Samples at most that wait for a reading of the mappings.
const MAX_UNRESOLVED: usize = 1 << 12;
/// Frames per second that a recording has of a process on average, so that its file stays small:
/// a frame takes about 8 bytes in it.
const FRAMES_PER_SECOND: f64 = 512.0;
/// Longest slice, however many frames it has.
const LONGEST: Nanos = Nanos::seconds(10);

/// Place of an instruction.
#[derive(Clone)]
struct CodePlace {
    object: Option<Rc<str>>,
    /// First address of the mapping, without a file.
    start: Option<VirtAddr>,
    names: Option<(Rc<ObjectNames>, u64)>,
}

/// Name of a mapping, and its first address unless mappings of that name are summed.
type Memory = (Rc<str>, Option<VirtAddr>);

/// Instruction, the calls that led to it, the nearest first, and the mapping of its data.
type Place = (u64, Box<[u64]>, Option<Memory>);

/// Samples of an instruction on a mapping.
#[derive(Clone, Copy, Default)]
struct Counts {
    samples: u64,
    streamed: u64,
}

/// Sample whose data have no mapping yet.
struct Unresolved {
    time: Nanos,
    ip: u64,
    calls: Box<[u64]>,
    address: Option<VirtAddr>,
    streamed: bool,
}

/// Code of one process, and its samples since the last slice.
pub(super) struct CodeStalls {
    layouts: Layouts,
    since: Nanos,
    unresolved: Vec<Unresolved>,
    places: HashMap<u64, CodePlace>,
    frames: HashMap<u64, Frame>,
    files: HashMap<(Rc<str>, u64), Option<Rc<ObjectNames>>>,
    counts: HashMap<Place, Counts>,
    /// Callers in `counts`.
    callers: usize,
    names: HashMap<String, Rc<str>>,
    /// Slices that ended, whose symbols are not read yet, and their frames.
    ended: Vec<(Nanos, Vec<(Place, Counts)>)>,
    ended_frames: usize,
}

impl CodeStalls {
    pub(super) fn new(since: Nanos) -> Self {
        Self {
            layouts: Layouts::new(),
            since,
            unresolved: Vec::new(),
            places: HashMap::new(),
            frames: HashMap::new(),
            files: HashMap::new(),
            counts: HashMap::new(),
            callers: 0,
            names: HashMap::new(),
            ended: Vec::new(),
            ended_frames: 0,
        }
    }

    /// The mappings as they were last read.
    pub(super) const fn layouts(&self) -> &Layouts {
        &self.layouts
    }

    /// Counts a sample of `process`. `callers`: return addresses, the nearest first.
    pub(super) fn add(
        &mut self,
        process: &Process,
        sample: &Sample,
        callers: &[VirtAddr],
        clock: Clocks,
    ) {
        let mut addresses = std::iter::once(sample.ip).chain(sample.address);
        if addresses.any(|address| self.layouts.find(address).is_none()) {
            self.read_layout(process, clock);
        }
        let ip = sample.ip.get();
        if !self.places.contains_key(&ip)
            && let Some(place) = self.place(process, sample.ip)
        {
            self.places.insert(ip, place);
        }
        let calls = self.calls(process, callers);
        self.unresolved.push(Unresolved {
            time: sample.time,
            ip,
            calls,
            address: sample.address,
            streamed: sample.pattern == Pattern::Streamed,
        });
    }

    /// Reads the mappings if that is due, and names those of the samples since the last reading.
    pub(super) fn read_layout(&mut self, process: &Process, clock: Clocks) {
        if self.layouts.is_due((clock.now)()) {
            self.layouts.read(process, clock);
            self.resolve((clock.now)());
        }
    }

    /// Counts the samples up to `until` by the names of their mappings.
    fn resolve(&mut self, until: Nanos) {
        let (samples, later): (Vec<_>, _) = std::mem::take(&mut self.unresolved)
            .into_iter()
            .partition(|sample| sample.time <= until);
        self.unresolved = later;
        for Unresolved { time, ip, calls, address, streamed } in samples {
            let mapping = address.map(|address| self.memory(address, time));
            let length = calls.len();
            let counts = self.counts.entry((ip, calls, mapping)).or_insert_with(|| {
                self.callers += length;
                Counts::default()
            });
            counts.samples += 1;
            counts.streamed += u64::from(streamed);
        }
    }

    fn memory(&mut self, address: VirtAddr, time: Nanos) -> Memory {
        let Some(mapping) = self.layouts.at(address, time) else {
            return (self.name(UNKNOWN_MAPPING), None);
        };
        let (label, start) = (mapping.label().to_owned(), mapping.range.start);
        (self.name(&label), Some(start))
    }

    /// Returns the addresses of calls by those to which they return. Without frame pointers a chain
    /// leads anywhere, so it ends at the first address that is not code.
    fn calls(&mut self, process: &Process, callers: &[VirtAddr]) -> Box<[u64]> {
        let mut calls = Vec::with_capacity(callers.len());
        for caller in callers {
            // The last byte of the call: the instruction after it may be of another line, or of the
            // next function.
            let call = caller.get() - 1;
            if !self.places.contains_key(&call) {
                let address = VirtAddr::new(call);
                let is_code = |mapping: &Mapping| mapping.protection.execute;
                if !self.layouts.find(address).is_some_and(is_code) {
                    break;
                }
                let Some(place) = self.place(process, address) else { break };
                self.places.insert(call, place);
            }
            calls.push(call);
        }
        calls.into()
    }

    /// Whether the slices must be taken for lack of memory.
    pub(super) fn is_full(&self) -> bool {
        self.counts.len() >= MAX_COUNTED
            || self.callers + self.ended_frames >= MAX_FRAMES
            || self.unresolved.len() >= MAX_UNRESOLVED
    }

    /// Whether a slice is due: the more frames it has, the longer it is.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        let frames = (self.counts.len() + self.callers) as f64;
        let length = now - self.since;
        length >= LONGEST || frames <= FRAMES_PER_SECOND * length.as_seconds()
    }

    /// Ends the slice at `until`.
    pub(super) fn cut(&mut self, until: Nanos) {
        self.resolve(until);
        self.since = until;
        let counts = std::mem::take(&mut self.counts);
        self.callers = 0;
        if counts.is_empty() {
            return;
        }
        let [mut kept, rest] = largest(counts);
        // Rarer stacks lose their callers first, then their instruction.
        let [without_callers, rest] =
            largest(summed(rest, |(ip, _, mapping)| (ip, Box::default(), mapping)));
        kept.extend(without_callers);
        let by_name =
            |(.., memory): Place| (0, Box::default(), memory.map(|(name, _)| (name, None)));
        kept.extend(summed(rest, by_name));
        self.ended_frames += kept.iter().map(|((_, calls, _), _)| calls.len() + 1).sum::<usize>();
        self.ended.push((until, kept));
    }

    /// Returns the slices that ended, with their symbols, and forgets them. The first time, it
    /// reads the debug information of the program, which may take a second.
    pub(super) fn take(&mut self, pid: Pid) -> Vec<CodeSlice> {
        self.ended_frames = 0;
        let ended = std::mem::take(&mut self.ended).into_iter();
        let slices = ended.map(|(time, places)| {
            let stalls = places.iter().map(|(place, counts)| self.stall(place, *counts)).collect();
            CodeSlice { time, pid, stalls }
        });
        let slices = slices.collect();
        if self.places.len() >= MAX_COUNTED && self.unresolved.is_empty() {
            self.places.clear();
            self.frames.clear();
        }
        slices
    }

    fn stall(&mut self, (ip, calls, memory): &Place, counts: Counts) -> CodeStall {
        CodeStall {
            ip: VirtAddr::new(*ip),
            frame: self.frame(*ip),
            callers: calls.iter().map(|&call| self.frame(call)).collect(),
            mapping: memory.as_ref().map(|(name, _)| name.to_string()),
            mapping_start: memory.as_ref().and_then(|&(_, start)| start),
            samples: counts.samples,
            streamed: counts.streamed,
        }
    }

    fn frame(&mut self, address: u64) -> Frame {
        let Some(place) = self.places.get(&address) else { return Frame::default() };
        self.frames.entry(address).or_insert_with(|| frame_of(place)).clone()
    }

    /// Returns the place of an instruction; `None` outside of all mappings.
    fn place(&mut self, process: &Process, ip: VirtAddr) -> Option<CodePlace> {
        let mapping = self.layouts.find(ip)?;
        let offset = ip.since(mapping.range.start) + mapping.offset;
        let (label, inode) = (mapping.label().to_owned(), mapping.inode);
        // Generated code has a mapping without a name.
        let is_named = !mapping.name.is_empty();
        let start = (inode == 0).then_some(mapping.range.start);
        let object = self.name(&label);
        let file = self
            .files
            .entry((object.clone(), inode))
            .or_insert_with(|| {
                let file = (inode != 0).then(|| process.mapped_file(&label, inode))??;
                ObjectNames::open(file, Path::new(&label)).map(Rc::new)
            })
            .clone();
        let names = file.and_then(|file| {
            let address = file.address_of(offset.get())?;
            Some((file, address))
        });
        Some(CodePlace { object: is_named.then_some(object), start, names })
    }

    fn name(&mut self, label: &str) -> Rc<str> {
        if let Some(name) = self.names.get(label) {
            return name.clone();
        }
        let name: Rc<str> = label.into();
        self.names.insert(label.to_owned(), name.clone());
        name
    }
}

/// Reads function and line from the file.
fn frame_of(place: &CodePlace) -> Frame {
    let names = place.names.as_ref();
    Frame {
        function: names.and_then(|(file, address)| file.function(*address)),
        object: place.object.as_ref().map(|object| object.to_string()),
        source: names.and_then(|(file, address)| file.source(*address)),
        mapping_start: place.start,
    }
}

/// Splits off the places beyond the limit, and sorts the others: the most samples first.
fn largest(counts: HashMap<Place, Counts>) -> [Vec<(Place, Counts)>; 2] {
    let mut all: Vec<_> = counts.into_iter().collect();
    all.sort_unstable_by(|(a, one), (b, other)| other.samples.cmp(&one.samples).then(a.cmp(b)));
    let rest = all.split_off(all.len().min(MAX_STALLS));
    [all, rest]
}

/// Sums the samples of places by a part of them.
fn summed(places: Vec<(Place, Counts)>, part: fn(Place) -> Place) -> HashMap<Place, Counts> {
    let mut sums = HashMap::<Place, Counts>::new();
    for (place, counts) in places {
        let sum = sums.entry(part(place)).or_default();
        sum.samples += counts.samples;
        sum.streamed += counts.streamed;
    }
    sums
}
