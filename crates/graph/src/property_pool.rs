//! What kernels keep per vertex: mapped when a kernel begins, or set aside before the graph is built.
//!
//! Where huge pages are scarce, who touches memory first gets them. Graphs are read or made before a kernel begins, so they take
//! what there is from the array that needs it most, unless that comes first (Manocha and others, IISWC'22, section 4.3).

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hugepilot_alloc::{HugeVec, Plain};

use crate::{Array, PagePlan, Result, ThreadPool};

/// Memory for properties, mapped and touched: each piece is lent to one property at a time, and zeroed when it comes back.
#[derive(Clone, Debug)]
pub struct PropertyPool {
    free: Arc<Mutex<Vec<HugeVec<u8>>>>,
    /// How long mapping took.
    pub allocate: Duration,
    /// How long the page faults took.
    pub first_touch: Duration,
}

impl PropertyPool {
    /// WorkQueue of so many bytes each, on the pages of properties, all resident.
    ///
    /// # Errors
    /// [`GraphError::Memory`](crate::GraphError::Memory).
    pub fn new(pages: &PagePlan, sizes: &[usize], pool: ThreadPool) -> Result<Self> {
        let began = Instant::now();
        let pieces = sizes.iter().map(|&bytes| pages.zeroed(Array::Property, bytes));
        let pieces: Vec<HugeVec<u8>> = pieces.collect::<Result<_>>()?;
        let allocated = Instant::now();
        pieces.iter().try_for_each(|piece| piece.prefault(pool.threads()))?;
        Ok(Self {
            free: Arc::new(Mutex::new(pieces)),
            allocate: allocated - began,
            first_touch: allocated.elapsed(),
        })
    }

    /// A piece of exactly so many values.
    fn take<T: Plain>(&self, len: usize) -> Option<HugeVec<T>> {
        let mut free = self.free.lock().ok()?;
        let place = free.iter().position(|piece| piece.len() == len * size_of::<T>())?;
        Some(free.swap_remove(place).recast())
    }

    fn give<T: Plain>(&self, values: HugeVec<T>) {
        let mut piece = values.recast::<u8>();
        piece.fill(0);
        if let Ok(mut free) = self.free.lock() {
            free.push(piece);
        }
    }
}

/// One value for each vertex.
#[derive(Debug)]
pub struct Property<T: Plain> {
    values: HugeVec<T>,
    /// Where the memory goes back to.
    properties: Option<PropertyPool>,
}

impl<T: Plain> Property<T> {
    /// `len` values, all zero: of the properties, or mapped now if that has none so long.
    pub(crate) fn zeroed(
        pages: &PagePlan,
        properties: Option<&PropertyPool>,
        len: usize,
    ) -> Result<Self> {
        if let Some((properties, values)) =
            properties.and_then(|properties| Some((properties, properties.take(len)?)))
        {
            return Ok(Self { values, properties: Some(properties.clone()) });
        }
        Ok(Self { values: pages.zeroed(Array::Property, len)?, properties: None })
    }
}

impl<T: Plain> Drop for Property<T> {
    fn drop(&mut self) {
        if let Some(properties) = &self.properties {
            let none = HugeVec::new(*self.values.asked());
            properties.give(std::mem::replace(&mut self.values, none));
        }
    }
}

impl<T: Plain> Deref for Property<T> {
    type Target = HugeVec<T>;
    fn deref(&self) -> &HugeVec<T> {
        &self.values
    }
}

impl<T: Plain> DerefMut for Property<T> {
    fn deref_mut(&mut self) -> &mut HugeVec<T> {
        &mut self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_set_aside_is_used_again_and_again() {
        let pages = PagePlan::default();
        let properties = PropertyPool::new(&pages, &[80, 80, 400_000], ThreadPool::new(2)).unwrap();
        let starts: Vec<usize> =
            properties.free.lock().unwrap().iter().map(|piece| piece.as_ptr().addr()).collect();
        let resident = |piece: &HugeVec<u8>| piece.got().unwrap().untouched.get() == 0;
        assert!(properties.free.lock().unwrap().iter().all(resident));
        for _ in 0..3 {
            let property = || Property::<u64>::zeroed(&pages, Some(&properties), 10).unwrap();
            let [mut one, two, other] = [property(), property(), property()];
            assert!(one.iter().all(|&value| value == 0) && one.len() == 10);
            assert!([&one, &two].iter().all(|values| starts.contains(&values.as_ptr().addr())));
            assert!(!starts.contains(&other.as_ptr().addr()), "there were two of that size");
            one.fill(u64::MAX);
            let large = Property::<u32>::zeroed(&pages, Some(&properties), 100_000).unwrap();
            assert_eq!((large.as_ptr().addr(), large.len()), (starts[2], 100_000));
        }
        assert_eq!(properties.free.lock().unwrap().len(), 3);
    }
}
