//! Stream of the memory accesses of a kernel.
//!
//! A [`Tracer`] gives each worker of a parallel region a receiver of its own ([`AccessSink`]), so
//! that workers share nothing while they record. Kernels announce their arrays before the first
//! access, and mark phases: the preparation and each round.
//!
//! Recorded are the accesses of a kernel to offsets, edges, weights, property arrays and worklists,
//! as the source code makes them: the compiler may keep a value in a register. An atomic operation
//! that repeats because of another thread is recorded once. Not recorded are:
//!
//! - memory on the heap or the stack: the buffers of found vertices, buckets of delta-stepping,
//!   sums and counts of workers, the counts by degree of triangle counting
//! - the read of the degree of a source vertex, once per worker
//! - choices between runs of a kernel: the next source of a double sweep
//! - results after the last round: ranking, verification, output

use std::borrow::Cow;
use std::fmt;

use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use crate::Array;

/// Receiver of the accesses of one worker, in program order. The unit type ignores accesses, and
/// its calls compile to no instruction.
pub trait AccessSink {
    /// Whether accesses are recorded. If not, phases cost no barrier.
    const RECORDS: bool = true;
    /// Records a read of `item` in `array`.
    fn read<T>(&self, array: Array, item: &T);
    /// Records a write of `item` in `array`.
    fn write<T>(&self, array: Array, item: &T);
    /// Ends a phase of this worker. A barrier follows.
    fn end_phase(&self);
    /// Begins a phase of all workers. Only worker 0 calls this, between two barriers.
    fn begin_phase(&self, name: fmt::Arguments<'_>);
}

impl AccessSink for () {
    const RECORDS: bool = false;
    #[inline(always)]
    fn read<T>(&self, _: Array, _: &T) {}
    #[inline(always)]
    fn write<T>(&self, _: Array, _: &T) {}
    #[inline(always)]
    fn end_phase(&self) {}
    #[inline(always)]
    fn begin_phase(&self, _: fmt::Arguments<'_>) {}
}

/// Receiver of the accesses of all workers. The unit type ignores them.
pub trait Tracer: Sync {
    /// Receiver of one worker. It is dropped at the end of a parallel region.
    type Sink<'a>: AccessSink
    where
        Self: 'a;
    /// Makes the receiver of a worker at the start of a parallel region, in its thread.
    fn sink(&self, worker: usize) -> Self::Sink<'_>;
    /// Receives all arrays that accesses from here on belong to. No parallel region is active.
    fn on_arrays(&self, arrays: &dyn Fn() -> Vec<ArrayRange>);
}

impl Tracer for () {
    type Sink<'a> = ();
    fn sink(&self, _: usize) {}
    fn on_arrays(&self, _: &dyn Fn() -> Vec<ArrayRange>) {}
}

/// Addresses of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayRange {
    /// Array.
    pub array: Array,
    /// Role, if a kernel has several arrays of that name; else empty.
    pub role: Cow<'static, str>,
    /// Addresses of the values.
    pub range: AddrRange,
}

impl ArrayRange {
    /// Returns the addresses of `values`.
    pub fn new<T>(array: Array, role: impl Into<Cow<'static, str>>, values: &[T]) -> Self {
        let start = VirtAddr::new(values.as_ptr().addr() as u64);
        let range = AddrRange::at(start, Bytes::new(size_of_val(values) as u64));
        Self { array, role: role.into(), range }
    }
}

/// Writes `property:ranks`, or `offsets` without a role.
impl fmt::Display for ArrayRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.role.is_empty() { "" } else { ":" };
        write!(f, "{}{separator}{}", self.array, self.role)
    }
}
