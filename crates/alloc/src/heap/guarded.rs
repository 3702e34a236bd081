//! Objects before guard pages, for a checking heap.
//!
//! Each object lies at the end of a slot of its own, before an inaccessible page. A freed slot
//! becomes inaccessible. The slot that was freed longest ago is reused first, so all others are in
//! quarantine, where they use neither memory nor a mapping.
//!
//! # Safety
//! Slots lie in one reserved mapping, one object each. Records are accessed under the heap's lock,
//! and by the handler of SIGSEGV, which reads atomic fields only. One heap of a process has slots
//! at a time.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::class::ALIGN;
use super::misuse::{self, Misuse};
use super::os;

/// Number of slots, in use or in quarantine.
const SLOTS: usize = 1 << 16;
/// Longest slot in bytes of addresses, not of memory.
const LONGEST: usize = 16 << 20;
/// Fills the bytes that alignment leaves between an object and its guard page.
const FILLER: u8 = 0xc5;

/// Object in a slot, or the last one there.
struct Record {
    /// 0 before the first object.
    start: AtomicUsize,
    size: AtomicUsize,
    /// 1 after the object was freed.
    freed: AtomicUsize,
}

/// Slots of the process, for the handler of SIGSEGV.
static START: AtomicUsize = AtomicUsize::new(0);
static SLOT_LEN: AtomicUsize = AtomicUsize::new(0);
static RECORDS: AtomicUsize = AtomicUsize::new(0);

/// Guarded objects of a heap.
pub(super) struct GuardedObjects {
    slots: Option<Slots>,
    /// Whether reserving slots was attempted.
    begun: bool,
    /// Number of objects in use, and sum of their bytes.
    pub(super) count: usize,
    pub(super) bytes: usize,
    /// Number of objects that found no slot.
    pub(super) unguarded: u64,
}

struct Slots {
    start: usize,
    slot_len: usize,
    page: usize,
    /// Largest number of objects. Each needs two of the process's mappings.
    max_objects: usize,
    records: NonNull<Record>,
    /// Ring of freed slots, oldest first: `waiting` of them from `first` on.
    queue: NonNull<u32>,
    first: usize,
    waiting: usize,
    /// First slot that was never used.
    fresh: usize,
}

impl GuardedObjects {
    pub(super) const fn new() -> Self {
        Self { slots: None, begun: false, count: 0, bytes: 0, unguarded: 0 }
    }

    /// Allocates an object in a slot of its own, at the end of base pages of `page` bytes; `None`
    /// without a free slot.
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

    /// Returns the size of the object at this address; `None` outside of slots.
    pub(super) fn size(&self, address: usize) -> Option<Result<usize, Misuse>> {
        Some(find(address)?.size_at(address)).filter(|_| self.slots.is_some())
    }

    /// Frees the object at this address. Fails if there is none, or if another thread freed it
    /// since [`Self::size`].
    pub(super) fn free(&mut self, address: usize) -> Result<(), Misuse> {
        let (slots, record) = self.slots.as_mut().zip(find(address)).ok_or(Misuse::Foreign)?;
        let size = record.size_at(address)?;
        slots.free(record, size)?;
        // In a child whose parent was changing them, they may be too low.
        (self.count, self.bytes) = (self.count.saturating_sub(1), self.bytes.saturating_sub(size));
        Ok(())
    }

    /// Drops the free slots in a child whose parent was changing them.
    pub(super) fn reset_after_fork(&mut self) {
        if let Some(slots) = &mut self.slots {
            (slots.first, slots.waiting, slots.fresh) = (0, 0, SLOTS);
        }
    }
}

impl Slots {
    /// Reserves the slots and installs the handler of faults. `None` if another heap has slots, or
    /// without address space.
    fn reserve(page: usize) -> Option<Self> {
        // Other parts of the process need mappings, too. Most slots stay in quarantine, so that
        // reuse comes late.
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
        // SAFETY: up to `end`, the slot is writable, and only this object uses it.
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
            // SAFETY: the slot is readable up to `end`.
            if unsafe { filler.add(at).read_volatile() } != FILLER {
                return Err(Misuse::Overflow { at: start + size + at, size });
            }
        }
        record.freed.store(1, Relaxed);
        // If the kernel refuses, the slot and its memory are leaked.
        if os::protect(open, end - open) {
            self.wait(slot);
        }
        Ok(())
    }

    /// Returns the address of a slot's guard page.
    fn end(&self, slot: usize) -> usize {
        self.start + (slot + 1) * self.slot_len - self.page
    }

    fn record(&self, slot: usize) -> &Record {
        // SAFETY: zeros are a record, and there are as many records as slots.
        unsafe { self.records.add(slot).as_ref() }
    }

    fn next_slot(&mut self) -> Option<usize> {
        if self.fresh < SLOTS {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.waiting = self.waiting.checked_sub(1)?;
        // SAFETY: the queue has an entry for each slot.
        let slot = unsafe { self.queue.add(self.first).read() };
        self.first = (self.first + 1) % SLOTS;
        Some(slot as usize)
    }

    fn wait(&mut self, slot: usize) {
        #[allow(clippy::cast_possible_truncation)] // below SLOTS
        // SAFETY: as above; there are at most as many waiting slots as entries.
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
    /// Returns the size of the object, if it begins at `address` and is in use.
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

/// Finds the record of the slot that contains an address.
fn find(address: usize) -> Option<&'static Record> {
    let records: *const Record = ptr::with_exposed_provenance(RECORDS.load(Acquire));
    let slot = address.checked_sub(START.load(Relaxed))?.checked_div(SLOT_LEN.load(Relaxed))?;
    // SAFETY: records exist while their address is set, and there are as many as slots.
    (!records.is_null() && slot < SLOTS).then(|| unsafe { &*records.add(slot) })
}

/// Prints the cause of a fault. Called by the handler of SIGSEGV.
fn explain(address: usize) {
    let Some(record) = find(address) else { return };
    let (start, size) = (record.start.load(Acquire), record.size.load(Relaxed));
    let object = format_args!("the object of {size} bytes at {start:#x}");
    if start == 0 {
        misuse::print_line(format_args!("access to {address:#x}: no object is allocated there"));
    } else if record.freed.load(Relaxed) == 1 {
        misuse::print_line(format_args!("use after free at {address:#x}: {object} is free"));
    } else if address < start {
        misuse::print_line(format_args!(
            "underflow at {address:#x}: {} bytes before {object}",
            start - address
        ));
    } else {
        misuse::print_line(format_args!(
            "overflow at {address:#x}: {object} ends at {:#x}",
            start + size
        ));
    }
}
