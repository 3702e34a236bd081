//! Objects between guard pages, for a heap that checks what a program does: each lies at the end of a slot of its own, before a
//! page that cannot be touched, and its slot cannot be touched once it is freed. The slot freed longest ago is used next, so all
//! others are in quarantine, and take neither memory nor a mapping there.
//!
//! # Safety
//! Slots lie in one reserved mapping, one to an object. Their records are reached under the heap's lock, and by the handler of
//! SIGSEGV, which reads only what is atomic. Only one heap of a process has slots at a time.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::class::ALIGN;
use super::misuse::{self, Misuse};
use super::os;

/// Slots, in use or in quarantine.
const SLOTS: usize = 1 << 16;
/// The longest slot, of addresses, not of memory.
const LONGEST: usize = 16 << 20;
/// What is between the end of an object and the guard page, where its alignment leaves bytes there.
const FILLER: u8 = 0xc5;

/// An object that is in a slot, or was the last one there.
struct Record {
    /// 0 where there never was one.
    start: AtomicUsize,
    size: AtomicUsize,
    /// 1 once it was freed.
    freed: AtomicUsize,
}

/// The slots of the process, as the handler of SIGSEGV sees them.
static START: AtomicUsize = AtomicUsize::new(0);
static SLOT_LEN: AtomicUsize = AtomicUsize::new(0);
static RECORDS: AtomicUsize = AtomicUsize::new(0);

/// The slots of a heap.
pub(super) struct GuardedObjects {
    slots: Option<Slots>,
    /// Slots were reserved, or could not be.
    begun: bool,
    /// Objects in use, and their bytes.
    pub(super) count: usize,
    pub(super) bytes: usize,
    /// How many objects found no slot.
    pub(super) unguarded: u64,
}

struct Slots {
    start: usize,
    slot_len: usize,
    page: usize,
    /// Objects at most: each takes two mappings, of those that the kernel allows the process.
    max_objects: usize,
    records: NonNull<Record>,
    /// Numbers of slots that were freed, in that order, `waiting` of them from `first` on.
    queue: NonNull<u32>,
    first: usize,
    waiting: usize,
    /// Slots from here on were never used.
    fresh: usize,
}

impl GuardedObjects {
    pub(super) const fn new() -> Self {
        Self { slots: None, begun: false, count: 0, bytes: 0, unguarded: 0 }
    }

    /// An object in a slot of its own, at the end of base pages, `page` bytes long; `None` where there is no slot for it.
    pub(super) fn take(&mut self, layout: Layout, page: usize) -> Option<NonNull<u8>> {
        if !self.begun {
            (self.begun, self.slots) = (true, Slots::reserve(page));
        }
        let start = self
            .slots
            .as_mut()
            .filter(|slots| self.count < slots.max_objects)
            .and_then(|slots| slots.take(layout));
        match start {
            Some(_) => (self.count, self.bytes) = (self.count + 1, self.bytes + layout.size()),
            None => self.unguarded += 1,
        }
        start
    }

    /// The size of the object that begins there; `None` where no slot is.
    pub(super) fn size(&self, address: usize) -> Option<Result<usize, Misuse>> {
        Some(find(address)?.size_at(address)).filter(|_| self.slots.is_some())
    }

    /// Frees the object that begins there, unless there is none, or another thread freed it since [`Self::size`] found it.
    pub(super) fn free(&mut self, address: usize) -> Result<(), Misuse> {
        let (slots, record) = self.slots.as_mut().zip(find(address)).ok_or(Misuse::Foreign)?;
        let size = record.size_at(address)?;
        slots.free(record, size)?;
        // In a child, whose parent was changing these, they may be too low.
        (self.count, self.bytes) = (self.count.saturating_sub(1), self.bytes.saturating_sub(size));
        Ok(())
    }

    /// Drops the free slots in a child, whose parent was changing this.
    pub(super) fn reset_after_fork(&mut self) {
        if let Some(slots) = &mut self.slots {
            (slots.first, slots.waiting, slots.fresh) = (0, 0, SLOTS);
        }
    }
}

impl Slots {
    /// Reserves them, and has faults in them explained. `None` where another heap has slots, or there is no room.
    fn reserve(page: usize) -> Option<Self> {
        // Others use mappings, too. And most slots wait, so that it takes long until one is used again.
        let max_objects = (os::max_mappings() / 4).min(SLOTS / 4);
        let room = os::max_addresses() / 4;
        let longest = std::iter::successors(Some(LONGEST), |len| Some(len / 2))
            .take_while(|len| *len >= 4 * page);
        let (start, slot_len) = longest
            .filter(|len| len * SLOTS <= room)
            .find_map(|len| Some((os::reserve(len * SLOTS)?, len)))?;
        let records = os::map(SLOTS * size_of::<Record>());
        let queue = os::map(SLOTS * size_of::<u32>());
        let taken = START.compare_exchange(0, start, AcqRel, Relaxed).is_ok();
        let (Some(records), Some(queue), true) = (records, queue, taken) else {
            os::unmap(start, slot_len * SLOTS);
            records.inspect(|&records| os::unmap(records, SLOTS * size_of::<Record>()));
            queue.inspect(|&queue| os::unmap(queue, SLOTS * size_of::<u32>()));
            return None;
        };
        SLOT_LEN.store(slot_len, Relaxed);
        RECORDS.store(records, Release);
        os::at_fault(explain);
        let [records, queue] = [records, queue].map(ptr::with_exposed_provenance_mut::<u8>);
        let (records, queue) = (NonNull::new(records)?.cast(), NonNull::new(queue)?.cast());
        Some(Self {
            start,
            slot_len,
            page,
            max_objects,
            records,
            queue,
            first: 0,
            waiting: 0,
            fresh: 0,
        })
    }

    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align().max(ALIGN));
        if size.checked_add(align)? > self.slot_len - 2 * self.page {
            return None;
        }
        let slot = self.next_slot()?;
        let end = self.end(slot);
        let start = (end - size) & !(align - 1);
        let open = start & !(self.page - 1);
        if !os::unprotect(open, end - open) {
            self.wait(slot);
            return None;
        }
        let object: *mut u8 = ptr::with_exposed_provenance_mut(start);
        // SAFETY: up to `end`, the slot may be written, and it is this object's.
        unsafe { object.add(size).write_bytes(FILLER, end - start - size) };
        let record = self.record(slot);
        record.size.store(size, Relaxed);
        record.freed.store(0, Relaxed);
        record.start.store(start, Release);
        NonNull::new(object)
    }

    fn free(&mut self, record: &Record, size: usize) -> Result<(), Misuse> {
        let start = record.start.load(Relaxed);
        let slot = (start - self.start) / self.slot_len;
        let (open, end) = (start & !(self.page - 1), self.end(slot));
        let filler: *const u8 = ptr::with_exposed_provenance(start + size);
        for at in 0..end - start - size {
            // SAFETY: the slot may be read up to `end`.
            if unsafe { filler.add(at).read_volatile() } != FILLER {
                return Err(Misuse::Overflow { at: start + size + at, size });
            }
        }
        record.freed.store(1, Relaxed);
        // Where the kernel refuses, the slot is lost, with its memory.
        if os::protect(open, end - open) {
            self.wait(slot);
        }
        Ok(())
    }

    /// Where the guard page of a slot begins.
    fn end(&self, slot: usize) -> usize {
        self.start + (slot + 1) * self.slot_len - self.page
    }

    fn record(&self, slot: usize) -> &Record {
        // SAFETY: zeros are a record, and there are as many as slots.
        unsafe { self.records.add(slot).as_ref() }
    }

    fn next_slot(&mut self) -> Option<usize> {
        if self.fresh < SLOTS {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.waiting = self.waiting.checked_sub(1)?;
        // SAFETY: the queue has a place for each slot.
        let slot = unsafe { self.queue.add(self.first).read() };
        self.first = (self.first + 1) % SLOTS;
        Some(slot as usize)
    }

    fn wait(&mut self, slot: usize) {
        #[allow(clippy::cast_possible_truncation)] // below SLOTS
        // SAFETY: as above, and no more wait than there are slots.
        unsafe {
            self.queue.add((self.first + self.waiting) % SLOTS).write(slot as u32);
        }
        self.waiting += 1;
    }
}

/// Unmaps the slots.
impl Drop for GuardedObjects {
    fn drop(&mut self) {
        let Some(slots) = self.slots.take() else { return };
        RECORDS.store(0, Release);
        START.store(0, Release);
        os::unmap(slots.start, slots.slot_len * SLOTS);
        os::unmap(slots.records.addr().get(), SLOTS * size_of::<Record>());
        os::unmap(slots.queue.addr().get(), SLOTS * size_of::<u32>());
    }
}

impl Record {
    /// The size of the object, if it begins there and is in use.
    fn size_at(&self, address: usize) -> Result<usize, Misuse> {
        let (start, size) = (self.start.load(Acquire), self.size.load(Relaxed));
        match self.freed.load(Relaxed) {
            0 if start == address => Ok(size),
            0 if start != 0 && (start..start + size).contains(&address) => {
                Err(Misuse::Inside { start, size })
            }
            1 if start == address => Err(Misuse::Free { size }),
            _ => Err(Misuse::Unused),
        }
    }
}

/// The record of the slot that holds an address.
fn find(address: usize) -> Option<&'static Record> {
    let records: *const Record = ptr::with_exposed_provenance(RECORDS.load(Acquire));
    let slot = address.checked_sub(START.load(Relaxed))?.checked_div(SLOT_LEN.load(Relaxed))?;
    // SAFETY: records are there while their address is, and there are as many as slots.
    (!records.is_null() && slot < SLOTS).then(|| unsafe { &*records.add(slot) })
}

/// Says what is known of an address that cannot be touched. Called by the handler of SIGSEGV.
fn explain(address: usize) {
    let Some(record) = find(address) else { return };
    let (start, size) = (record.start.load(Acquire), record.size.load(Relaxed));
    let object = format_args!("the object of {size} bytes at {start:#x}");
    if start == 0 {
        misuse::say(format_args!("access to {address:#x}: nothing is allocated there"));
    } else if record.freed.load(Relaxed) == 1 {
        misuse::say(format_args!("use after free at {address:#x}: {object} is free"));
    } else if address < start {
        misuse::say(format_args!(
            "underflow at {address:#x}: {} bytes before {object}",
            start - address
        ));
    } else {
        misuse::say(format_args!("overflow at {address:#x}: {object} ends at {:#x}", start + size));
    }
}
