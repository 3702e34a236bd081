//! Stall samples by code: each instruction with its function, source line and data mapping.
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
/// Shortest time between two reads of the mappings because of an unknown address.
const LAYOUT_INTERVAL: Nanos = Nanos::seconds(1);

/// Place of an instruction.
#[derive(Clone)]
struct CodePlace {
    object: Option<Rc<str>>,
    names: Option<(Rc<ObjectNames>, u64)>,
}

/// Instruction, and the mapping of its data.
type Place = (u64, Option<Rc<str>>);

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
            names: HashMap::new(),
        }
    }

    /// Counts a sample of `process`.
    pub(super) fn add(&mut self, process: &Process, sample: &Sample, now: Nanos) {
        let ip = sample.ip.get();
        if !self.places.contains_key(&ip) {
            let place = self.place(process, sample.ip, now);
            self.places.insert(ip, place);
        }
        let mapping = sample.address.and_then(|address| {
            let at = self.find(process, address, now)?;
            let label = self.layout[at].label().to_owned();
            Some(self.name(&label))
        });
        let counts = self.counts.entry((ip, mapping)).or_default();
        counts.samples += 1;
        counts.streamed += u64::from(sample.pattern == Pattern::Streamed);
    }

    /// Whether a slice is due for lack of memory.
    pub(super) fn is_full(&self) -> bool {
        self.counts.len() >= MAX_COUNTED
    }

    /// Returns the samples since the last slice, and forgets them; `None` without samples.
    pub(super) fn slice(&mut self, pid: Pid, now: Nanos) -> Option<CodeSlice> {
        let counts = std::mem::take(&mut self.counts);
        if counts.is_empty() {
            return None;
        }
        let mut all: Vec<_> = counts.into_iter().collect();
        all.sort_unstable_by(|(a, one), (b, other)| other.samples.cmp(&one.samples).then(a.cmp(b)));
        let rest = all.split_off(all.len().min(MAX_STALLS));
        let mut stalls: Vec<CodeStall> = all
            .into_iter()
            .map(|((ip, mapping), counts)| self.stall(ip, mapping, counts))
            .collect();
        stalls.extend(summed(rest));
        if self.places.len() >= MAX_COUNTED {
            self.places.clear();
            self.frames.clear();
        }
        Some(CodeSlice { time: now, pid, stalls })
    }

    fn stall(&mut self, ip: u64, mapping: Option<Rc<str>>, counts: Counts) -> CodeStall {
        let frame = match self.frames.get(&ip) {
            Some(frame) => frame.clone(),
            None => {
                let frame = self.places.get(&ip).map(frame_of).unwrap_or_default();
                self.frames.insert(ip, frame.clone());
                frame
            }
        };
        CodeStall {
            ip: VirtAddr::new(ip),
            frame,
            callers: Vec::new(),
            mapping: mapping.map(|name| name.to_string()),
            samples: counts.samples,
            streamed: counts.streamed,
        }
    }

    fn place(&mut self, process: &Process, ip: VirtAddr, now: Nanos) -> CodePlace {
        let Some(at) = self.find(process, ip, now) else {
            return CodePlace { object: None, names: None };
        };
        let mapping = &self.layout[at];
        let offset = ip.since(mapping.range.start) + mapping.offset;
        let (label, inode) = (mapping.label().to_owned(), mapping.inode);
        // Generated code has a mapping without a name.
        let is_named = !mapping.name.is_empty();
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
        CodePlace { object: is_named.then_some(object), names }
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
    }
}

/// Sums the samples of the instructions that a slice has no room for, by mapping.
fn summed(rest: Vec<(Place, Counts)>) -> Vec<CodeStall> {
    let mut sums: std::collections::BTreeMap<Option<Rc<str>>, Counts> = Default::default();
    for ((_, mapping), counts) in rest {
        let sum = sums.entry(mapping).or_default();
        sum.samples += counts.samples;
        sum.streamed += counts.streamed;
    }
    let stall = |(mapping, counts): (Option<Rc<str>>, Counts)| CodeStall {
        ip: VirtAddr::new(0),
        frame: Frame::default(),
        callers: Vec::new(),
        mapping: mapping.map(|name| name.to_string()),
        samples: counts.samples,
        streamed: counts.streamed,
    };
    sums.into_iter().map(stall).collect()
}
