//! Stall samples by code: each instruction with its function, source line, callers and data
//! mapping.
//!
//! The file of an instruction is opened when its first sample arrives, while the process lives.
//! Function and line are read from it later, with the slice, so an ended process loses nothing.

use std::rc::Rc;

use hashbrown::HashMap;
use hugepilot_kernel::Process;
use hugepilot_record::recording::{CodeSlice, CodeStall, Frame};
use hugepilot_record::{Mapping, Pattern, Pid, Sample};
use hugepilot_units::{Nanos, VirtAddr};

use super::symbols::ObjectNames;

/// Instructions of a slice; the samples of others are summed.
const MAX_STALLS: usize = 512;
/// Instructions that are counted at most before a slice is due.
const MAX_COUNTED: usize = 1 << 14;
/// Callers of all counted instructions together, before a slice is due.
const MAX_CALLERS: usize = 1 << 16;
/// Shortest time between two reads of the mappings because of an unknown address.
const LAYOUT_INTERVAL: Nanos = Nanos::seconds(1);

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

/// Code of one process, and its samples since the last slice.
pub(super) struct CodeStalls {
    layout: Vec<Mapping>,
    layout_read: Option<Nanos>,
    places: HashMap<u64, CodePlace>,
    frames: HashMap<u64, Frame>,
    files: HashMap<(Rc<str>, u64), Option<Rc<ObjectNames>>>,
    counts: HashMap<Place, Counts>,
    /// Callers in `counts`.
    callers: usize,
    names: HashMap<String, Rc<str>>,
}

impl CodeStalls {
    pub(super) fn new() -> Self {
        Self {
            layout: Vec::new(),
            layout_read: None,
            places: HashMap::new(),
            frames: HashMap::new(),
            files: HashMap::new(),
            counts: HashMap::new(),
            callers: 0,
            names: HashMap::new(),
        }
    }

    /// Counts a sample of `process`. `callers`: return addresses, the nearest first.
    pub(super) fn add(
        &mut self,
        process: &Process,
        sample: &Sample,
        callers: &[VirtAddr],
        now: Nanos,
    ) {
        let ip = sample.ip.get();
        if !self.places.contains_key(&ip) {
            let place = self.place(process, sample.ip, now);
            self.places.insert(ip, place);
        }
        let calls = self.calls(process, callers, now);
        let mapping = sample.address.and_then(|address| {
            let at = self.find(process, address, now)?;
            let (label, start) = (self.layout[at].label().to_owned(), self.layout[at].range.start);
            Some((self.name(&label), Some(start)))
        });
        let length = calls.len();
        let counts = self.counts.entry((ip, calls, mapping)).or_insert_with(|| {
            self.callers += length;
            Counts::default()
        });
        counts.samples += 1;
        counts.streamed += u64::from(sample.pattern == Pattern::Streamed);
    }

    /// Returns the addresses of calls by those to which they return. Without frame pointers a chain
    /// leads anywhere, so it ends at the first address that is not code.
    fn calls(&mut self, process: &Process, callers: &[VirtAddr], now: Nanos) -> Box<[u64]> {
        let mut calls = Vec::with_capacity(callers.len());
        for caller in callers {
            // The last byte of the call: the instruction after it may be of another line, or of the
            // next function.
            let call = caller.get() - 1;
            if !self.places.contains_key(&call) {
                let address = VirtAddr::new(call);
                let at = self.find(process, address, now);
                if !at.is_some_and(|at| self.layout[at].protection.execute) {
                    break;
                }
                let place = self.place(process, address, now);
                self.places.insert(call, place);
            }
            calls.push(call);
        }
        calls.into()
    }

    /// Whether a slice is due for lack of memory.
    pub(super) fn is_full(&self) -> bool {
        self.counts.len() >= MAX_COUNTED || self.callers >= MAX_CALLERS
    }

    /// Returns the samples since the last slice, and forgets them; `None` without samples.
    pub(super) fn slice(&mut self, pid: Pid, now: Nanos) -> Option<CodeSlice> {
        let counts = std::mem::take(&mut self.counts);
        self.callers = 0;
        if counts.is_empty() {
            return None;
        }
        let [mut kept, rest] = largest(counts);
        // Rarer stacks lose their callers first, then their instruction.
        let [without_callers, rest] =
            largest(summed(rest, |(ip, _, mapping)| (ip, Box::default(), mapping)));
        kept.extend(without_callers);
        let by_name =
            |(.., memory): Place| (0, Box::default(), memory.map(|(name, _)| (name, None)));
        kept.extend(summed(rest, by_name));
        let stalls = kept.into_iter().map(|(place, counts)| self.stall(&place, counts)).collect();
        if self.places.len() >= MAX_COUNTED {
            self.places.clear();
            self.frames.clear();
        }
        Some(CodeSlice { time: now, pid, stalls })
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
        let frame = self.frames.entry(address);
        frame.or_insert_with(|| self.places.get(&address).map(frame_of).unwrap_or_default()).clone()
    }

    fn place(&mut self, process: &Process, ip: VirtAddr, now: Nanos) -> CodePlace {
        let Some(at) = self.find(process, ip, now) else {
            return CodePlace { object: None, start: None, names: None };
        };
        let mapping = &self.layout[at];
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
                ObjectNames::open(file).map(Rc::new)
            })
            .clone();
        let names = file.and_then(|file| {
            let address = file.address_of(offset.get())?;
            Some((file, address))
        });
        CodePlace { object: is_named.then_some(object), start, names }
    }

    /// Returns the mapping of an address. An unknown address causes a read of the mappings, at most
    /// once a second.
    fn find(&mut self, process: &Process, address: VirtAddr, now: Nanos) -> Option<usize> {
        let position = |layout: &[Mapping]| {
            let at = layout.partition_point(|mapping| mapping.range.end <= address);
            layout.get(at).filter(|mapping| mapping.range.contains(address)).map(|_| at)
        };
        if let Some(at) = position(&self.layout) {
            return Some(at);
        }
        if self.layout_read.is_none_or(|read| now > read + LAYOUT_INTERVAL) {
            self.layout_read = Some(now);
            if let Ok(layout) = process.layout() {
                self.layout = layout;
            }
        }
        position(&self.layout)
    }

    /// Replaces the mappings by a later reading.
    pub(super) fn set_layout(&mut self, layout: &[Mapping]) {
        self.layout = layout.to_vec();
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
