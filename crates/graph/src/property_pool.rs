//! Property arrays, allocated when a kernel starts or before the graph is built.
//!
//! When huge pages are scarce, the array touched first gets them. Graphs are built before a kernel
//! starts, so they take the huge pages from the property arrays, which need them most.
//! `--alloc-order property-first` maps and touches the property arrays before the build (Manocha et
//! al., IISWC'22, section 4.3).

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hugepilot_alloc::{HugeVec, Plain};

use crate::{Array, PagePlan, Result, ThreadPool};

/// Mapped and touched memory for property arrays. Each buffer serves one array at a time, and is
/// zeroed on return.
#[derive(Clone, Debug)]
pub struct PropertyPool {
    free: Arc<Mutex<Vec<HugeVec<u8>>>>,
    /// Time to map the buffers.
    pub allocate: Duration,
    /// Time of the page faults.
    pub first_touch: Duration,
}

impl PropertyPool {
    /// Allocates resident buffers of these sizes in bytes, on the pages of property arrays.
    ///
    /// # Errors
    /// [`GraphError::Memory`](crate::GraphError::Memory).
    pub fn new(pages: &PagePlan, sizes: &[usize], pool: ThreadPool) -> Result<Self> {
        let began = Instant::now();
        let buffers = sizes.iter().map(|&bytes| pages.zeroed(Array::Property, bytes));
        let buffers: Vec<HugeVec<u8>> = buffers.collect::<Result<_>>()?;
        let allocated = Instant::now();
        buffers.iter().try_for_each(|buffer| buffer.prefault(pool.threads()))?;
        Ok(Self {
            free: Arc::new(Mutex::new(buffers)),
            allocate: allocated - began,
            first_touch: allocated.elapsed(),
        })
    }

    /// Takes a buffer of exactly `len` values.
    fn take<T: Plain>(&self, len: usize) -> Option<HugeVec<T>> {
        let mut free = self.free.lock().ok()?;
        let place = free.iter().position(|buffer| buffer.len() == len * size_of::<T>())?;
        Some(free.swap_remove(place).recast())
    }

    fn put<T: Plain>(&self, values: HugeVec<T>) {
        let mut buffer = values.recast::<u8>();
        buffer.fill(0);
        if let Ok(mut free) = self.free.lock() {
            free.push(buffer);
        }
    }
}

/// Property array: one value per vertex.
#[derive(Debug)]
pub struct Property<T: Plain> {
    values: HugeVec<T>,
    /// Pool to return the buffer to.
    pool: Option<PropertyPool>,
}

impl<T: Plain> Property<T> {
    /// Allocates `len` zeroed values from the pool, or maps them if the pool has no such buffer.
    pub(crate) fn zeroed(
        pages: &PagePlan,
        pool: Option<&PropertyPool>,
        len: usize,
    ) -> Result<Self> {
        if let Some((pool, values)) = pool.and_then(|pool| Some((pool, pool.take(len)?))) {
            return Ok(Self { values, pool: Some(pool.clone()) });
        }
        Ok(Self { values: pages.zeroed(Array::Property, len)?, pool: None })
    }
}

impl<T: Plain> Drop for Property<T> {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            let none = HugeVec::new(*self.values.requested());
            pool.put(std::mem::replace(&mut self.values, none));
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
    fn buffers_are_reused() {
        let pages = PagePlan::default();
        let pool = PropertyPool::new(&pages, &[80, 80, 400_000], ThreadPool::new(2)).unwrap();
        let starts: Vec<usize> =
            pool.free.lock().unwrap().iter().map(|buffer| buffer.as_ptr().addr()).collect();
        let resident = |buffer: &HugeVec<u8>| buffer.usage().unwrap().untouched.get() == 0;
        assert!(pool.free.lock().unwrap().iter().all(resident));
        for _ in 0..3 {
            let property = || Property::<u64>::zeroed(&pages, Some(&pool), 10).unwrap();
            let [mut one, two, other] = [property(), property(), property()];
            assert!(one.iter().all(|&value| value == 0) && one.len() == 10);
            assert!([&one, &two].iter().all(|values| starts.contains(&values.as_ptr().addr())));
            assert!(!starts.contains(&other.as_ptr().addr()), "the pool had two of that size");
            one.fill(u64::MAX);
            let large = Property::<u32>::zeroed(&pages, Some(&pool), 100_000).unwrap();
            assert_eq!((large.as_ptr().addr(), large.len()), (starts[2], 100_000));
        }
        assert_eq!(pool.free.lock().unwrap().len(), 3);
    }
}
