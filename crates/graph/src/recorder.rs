//! Recorder of accesses as pieces of a trace.
//!
//! Each worker has a buffer of its own, without locks, and hands it over when it is full or a phase
//! ends. The channel is bounded, so workers wait for a slow receiver. The pieces of a worker are in
//! program order; workers are ordered by the buffers that they fill, and all by phases.

use std::cell::Cell;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hugepilot_alloc::Backing;
use hugepilot_kernel::{Root, memory};
use hugepilot_record::trace::{TraceAccess, TraceMapping, TracePiece};
use hugepilot_units::{AddrRange, Bytes, PageSizes};

use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::{Array, PagePlan};

/// Accesses of a buffer, which so takes 64 KiB.
const BUFFER: usize = 1 << 13;
/// Pieces in the channel, 8 MiB at most.
const DEPTH: usize = 64;

/// Tracer that sends pieces through a channel.
#[derive(Debug)]
pub(crate) struct Recorder {
    sender: SyncSender<TracePiece>,
    /// Pages of the arrays, to which mappings are rounded.
    pages: PagePlan,
    sizes: PageSizes,
    /// Mappings of the last piece of them.
    mappings: Mutex<Vec<TraceMapping>>,
    /// Whether the receiver is gone.
    is_stopped: AtomicBool,
}

/// Buffer of one worker.
pub(crate) struct WorkerRecorder<'a> {
    recorder: &'a Recorder,
    thread: u16,
    /// Address, and whether it is a store in the lowest bit.
    buffer: Box<[Cell<u64>; BUFFER]>,
    len: Cell<usize>,
}

impl Recorder {
    /// Makes a recorder of arrays on these pages, and the receiver of its pieces.
    pub(crate) fn new(pages: PagePlan) -> (Self, Receiver<TracePiece>) {
        let (sender, receiver) = sync_channel(DEPTH);
        let sizes = memory::page_sizes(&Root::live()).unwrap_or(PageSizes::X86_64);
        let (mappings, is_stopped) = Default::default();
        (Self { sender, pages, sizes, mappings, is_stopped }, receiver)
    }

    /// Whether the receiver is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// Begins a phase. No worker has unsent accesses.
    pub(crate) fn phase(&self, name: fmt::Arguments<'_>) {
        self.send(TracePiece::Phase(name.to_string()));
    }

    fn send(&self, piece: TracePiece) {
        if self.sender.send(piece).is_err() {
            self.is_stopped.store(true, Relaxed);
        }
    }

    /// Returns the mapping of an array: whole pages of its backing.
    fn mapping(&self, of: &ArrayRange) -> TraceMapping {
        let page = page(self.pages.of(of.array), self.sizes);
        let (start, end) = (of.range.start.align_down(page), of.range.end.align_up(page));
        TraceMapping { range: AddrRange::new(start, end), name: of.to_string() }
    }
}

const fn page(backing: Backing, sizes: PageSizes) -> Bytes {
    match backing {
        Backing::Base => sizes.base,
        Backing::System | Backing::Thp(_) | Backing::Collapse(_) => sizes.huge,
        Backing::Hugetlb2M => Bytes::mib(2),
        Backing::Hugetlb1G => Bytes::gib(1),
    }
}

impl Tracer for Recorder {
    type Sink<'a> = WorkerRecorder<'a>;

    fn sink(&self, worker: usize) -> WorkerRecorder<'_> {
        WorkerRecorder {
            recorder: self,
            thread: u16::try_from(worker).unwrap_or(u16::MAX),
            buffer: Box::new([const { Cell::new(0) }; BUFFER]),
            len: Cell::new(0),
        }
    }

    fn on_arrays(&self, arrays: &dyn Fn() -> Vec<ArrayRange>) {
        let arrays = arrays();
        let arrays = arrays.iter().filter(|array| !array.range.is_empty());
        let mut mappings: Vec<_> = arrays.map(|array| self.mapping(array)).collect();
        mappings.sort_by_key(|mapping| mapping.range.start);
        let mut last = self.mappings.lock().expect("no thread panics while it holds the lock");
        if *last != mappings {
            last.clone_from(&mappings);
            self.send(TracePiece::Mappings(mappings));
        }
    }
}

impl WorkerRecorder<'_> {
    #[inline(always)]
    fn push(&self, address: usize, store: bool) {
        let len = self.len.get();
        self.buffer[len % BUFFER].set((address as u64) << 1 | u64::from(store));
        self.len.set(len + 1);
        if len + 1 == BUFFER {
            self.flush();
        }
    }

    /// Hands over the buffered accesses. Drops them if the receiver is gone.
    #[cold]
    #[inline(never)]
    fn flush(&self) {
        let len = self.len.replace(0);
        if len == 0 || self.recorder.is_stopped() {
            return;
        }
        let access = |access: &Cell<u64>| {
            let bits = access.get();
            TraceAccess { address: bits >> 1, store: bits & 1 != 0 }
        };
        let accesses = self.buffer[..len].iter().map(access).collect();
        self.recorder.send(TracePiece::Accesses { thread: self.thread, accesses });
    }
}

impl AccessSink for WorkerRecorder<'_> {
    #[inline(always)]
    fn read<T>(&self, _: Array, item: &T) {
        self.push(std::ptr::from_ref(item).addr(), false);
    }
    #[inline(always)]
    fn write<T>(&self, _: Array, item: &T) {
        self.push(std::ptr::from_ref(item).addr(), true);
    }
    fn end_phase(&self) {
        self.flush();
    }
    fn begin_phase(&self, name: fmt::Arguments<'_>) {
        self.recorder.phase(name);
    }
}

impl Drop for WorkerRecorder<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
