//! Kernel for tests: calls fail and settings read as scripted, plain memory stands in for pools,
//! and mappings are counted.
//!
//! # Safety
//! Memory comes from [`Linux`] and returns to it. The script only refuses calls, or keeps advice
//! from the kernel.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{AddrRange, Bytes, PageSizes, VirtAddr};

use proptest::prelude::ProptestConfig;

use super::{Advice, Linux, Pages, Setting, Sys};
use crate::{Label, Numa};

/// Settings of a property test with this number of cases; Miri is slow.
pub(crate) fn cases(cases: u32, under_miri: u32) -> ProptestConfig {
    let cases = if cfg!(miri) { under_miri } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Call that a script can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Map,
    Grow,
    Shrink,
    Advise(i32),
    Name,
    Bind,
    Scan,
    Discard,
    Setting,
}

impl From<Advice> for Call {
    fn from(advice: Advice) -> Self {
        Self::Advise(advice as i32)
    }
}

/// Handle of a script; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedSys(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Calls that fail, each after a number of successes.
    fail: HashMap<Call, (usize, Errno)>,
    settings: HashMap<Setting, String>,
    thp_disabled: bool,
    /// Largest number of mapped bytes.
    limit: Option<usize>,
    /// Free pages of the emulated pools, by page size.
    pools: BTreeMap<Bytes, u64>,
    /// Length, alignment and pages of each mapping, by address.
    mapped: BTreeMap<usize, (usize, usize, Pages)>,
    calls: HashMap<Call, usize>,
}

impl ScriptedSys {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the script")
    }

    /// Makes `call` fail from its `after`-th time on, counted from 0.
    pub(crate) fn fail(&self, call: impl Into<Call>, after: usize, errno: Errno) {
        self.state().fail.insert(call.into(), (after, errno));
    }
    /// Makes all calls succeed again.
    pub(crate) fn clear_failures(&self) {
        self.state().fail.clear();
    }
    /// Makes `setting` read as `text`.
    pub(crate) fn set(&self, setting: Setting, text: &str) {
        self.state().settings.insert(setting, text.to_owned());
    }
    /// Disables THP for the process.
    pub(crate) fn disable_thp(&self) {
        self.state().thp_disabled = true;
    }
    /// Limits the mapped bytes.
    pub(crate) fn limit(&self, most: Bytes) {
        self.state().limit = Some(most.as_usize());
    }
    /// Adds a pool with this number of pages.
    pub(crate) fn pool(&self, page: Bytes, pages: u64) {
        self.state().pools.insert(page, pages);
    }
    /// Returns the free pages of a pool.
    pub(crate) fn pool_free(&self, page: Bytes) -> u64 {
        self.state().pools.get(&page).copied().unwrap_or(0)
    }
    /// Returns the number of mappings.
    pub(crate) fn mappings(&self) -> usize {
        self.state().mapped.len()
    }
    /// Returns how often `call` was made.
    pub(crate) fn calls(&self, call: impl Into<Call>) -> usize {
        self.state().calls.get(&call.into()).copied().unwrap_or(0)
    }

    fn called(&self, call: impl Into<Call>) -> Result<(), Errno> {
        let (mut state, call) = (self.state(), call.into());
        *state.calls.entry(call).or_default() += 1;
        match state.fail.get_mut(&call) {
            Some((0, errno)) => Err(*errno),
            Some((after, _)) => {
                *after -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

// SAFETY: memory comes from `Linux`.
unsafe impl Sys for ScriptedSys {
    fn sizes(&self) -> PageSizes {
        Linux.sizes()
    }

    fn map(&self, len: usize, align: usize, pages: Pages) -> Result<NonNull<u8>, Errno> {
        self.called(Call::Map)?;
        let state = self.state();
        let mapped: usize = state.mapped.values().map(|&(len, ..)| len).sum();
        if state.limit.is_some_and(|limit| mapped + len > limit) {
            return Err(Errno::ENOMEM);
        }
        drop(state);
        if let Pages::Pool(page) = pages {
            let wanted = len as u64 / page.get();
            assert_eq!(wanted * page.get(), len as u64, "whole hugetlb pages");
            let mut state = self.state();
            let free = state.pools.get_mut(&page).ok_or(Errno::EINVAL)?;
            *free = free.checked_sub(wanted).ok_or(Errno::ENOMEM)?;
        }
        let start = Linux.map(len, align, Pages::Plain)?;
        assert!(start.as_ptr().addr().is_multiple_of(align));
        self.state().mapped.insert(start.as_ptr().addr(), (len, align, pages));
        Ok(start)
    }

    unsafe fn unmap(&self, start: NonNull<u8>, len: usize, align: usize) {
        let mut state = self.state();
        let was =
            state.mapped.remove(&start.as_ptr().addr()).expect("mapped, and not unmapped yet");
        assert_eq!((was.0, was.1), (len, align), "unmapped as it was mapped");
        if let Pages::Pool(page) = was.2 {
            *state.pools.entry(page).or_default() += len as u64 / page.get();
        }
        // SAFETY: by contract, and as just checked.
        unsafe { Linux.unmap(start, len, align) };
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: usize,
        new: usize,
        align: usize,
    ) -> Result<NonNull<u8>, Errno> {
        self.called(Call::Grow)?;
        let was = self.state().mapped[&start.as_ptr().addr()];
        assert_eq!(was, (old, align, Pages::Plain), "a pool's mapping cannot grow");
        // SAFETY: by contract.
        let moved = unsafe { Linux.grow(start, old, new, align) }?;
        assert!(moved.as_ptr().addr().is_multiple_of(align));
        let mut state = self.state();
        state.mapped.remove(&start.as_ptr().addr());
        state.mapped.insert(moved.as_ptr().addr(), (new, was.1, was.2));
        Ok(moved)
    }

    unsafe fn shrink(&self, start: NonNull<u8>, old: usize, new: usize) -> Result<(), Errno> {
        self.called(Call::Shrink)?;
        let (was, align, pages) = self.state().mapped[&start.as_ptr().addr()];
        assert!(was == old && new > 0 && new < old, "{new} of {old}, which are {was}");
        // SAFETY: by contract.
        unsafe { Linux.shrink(start, old, new) }?;
        let mut state = self.state();
        state.mapped.insert(start.as_ptr().addr(), (new, align, pages));
        if let Pages::Pool(page) = pages {
            *state.pools.entry(page).or_default() += (old - new) as u64 / page.get();
        }
        Ok(())
    }

    unsafe fn advise(&self, start: NonNull<u8>, len: usize, advice: Advice) -> Result<(), Errno> {
        self.called(advice)?;
        let from = start.as_ptr().addr();
        let (first, (mapped, ..)) = self
            .state()
            .mapped
            .range(..=from)
            .next_back()
            .map(|(&at, &of)| (at, of))
            .expect("mapped");
        assert!(from + len <= first + mapped, "advice stays inside of a mapping");
        // SAFETY: as just checked.
        unsafe { Linux.advise(start, len, advice) }
    }

    unsafe fn discard(&self, start: NonNull<u8>, len: usize) -> Result<(), Errno> {
        self.called(Call::Discard)?;
        let from = start.as_ptr().addr();
        let (first, (mapped, _, pages)) = self
            .state()
            .mapped
            .range(..=from)
            .next_back()
            .map(|(&at, &of)| (at, of))
            .expect("mapped");
        assert!(from + len <= first + mapped && pages == Pages::Plain, "inside of a plain mapping");
        // SAFETY: as just checked.
        unsafe { Linux.discard(start, len) }
    }

    fn knows(&self, advice: Advice) -> bool {
        self.state()
            .fail
            .get(&advice.into())
            .is_none_or(|&(after, errno)| (after, errno) != (0, Errno::EINVAL))
    }

    fn name(&self, start: NonNull<u8>, len: usize, name: &Label) -> Result<(), Errno> {
        self.called(Call::Name)?;
        Linux.name(start, len, name)
    }

    fn bind(&self, _start: NonNull<u8>, _len: usize, _numa: Numa) -> Result<(), Errno> {
        self.called(Call::Bind)
    }

    fn scan(&self, range: AddrRange, each: &mut dyn FnMut(PageRun)) -> Result<(), Errno> {
        self.called(Call::Scan)?;
        let state = self.state();
        let inside = state.mapped.iter().any(|(&at, &(len, ..))| {
            AddrRange::at(VirtAddr::new(at as u64), Bytes::new(len as u64)).covers(range)
        });
        drop(state);
        assert!(inside, "only mapped memory is scanned");
        Linux.scan(range, each)
    }

    fn setting<'a>(&self, setting: Setting, buffer: &'a mut [u8]) -> Option<&'a str> {
        self.called(Call::Setting).ok()?;
        let state = self.state();
        let Some(text) = state.settings.get(&setting) else {
            drop(state);
            return Linux.setting(setting, buffer);
        };
        let copy = buffer.get_mut(..text.len())?;
        copy.copy_from_slice(text.as_bytes());
        std::str::from_utf8(copy).ok()
    }

    fn thp_disabled(&self) -> bool {
        self.state().thp_disabled
    }
}
