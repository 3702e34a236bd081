//! Tests of children whose parent's threads are busy in a heap.
//!
//! # Safety
//! Each object is written up to its size and freed once in each process. A child uses the heap, and
//! ends without destructors.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use hugepilot_alloc::{Backing, Heap, Options};

/// Sizes on both sides of each threshold.
const SIZES: [usize; 9] = [8, 200, 4000, 20_000, 150_000, 600_000, 1 << 20, 3 << 20, 9 << 20];

/// Object with a mark every 100,000 bytes: address, length, mark.
struct Object(NonNull<u8>, usize, u8);

impl Object {
    fn new(heap: &Heap, size: usize, mark: u8) -> Option<Self> {
        let object = Self(heap.allocate(layout(size))?, size, mark);
        object.fill();
        Some(object)
    }
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.1).step_by(100_000)
    }
    fn fill(&self) {
        // SAFETY: inside of the object.
        self.places().for_each(|place| unsafe { self.0.add(place).write(self.2) });
    }
    fn holds(&self) -> bool {
        // SAFETY: inside of the object.
        self.places().all(|place| unsafe { self.0.add(place).read() } == self.2)
    }
    /// Frees the object. Returns whether its marks were intact.
    fn free(self, heap: &Heap) -> bool {
        let holds = self.holds();
        // SAFETY: allocated by this heap, and gone with this value.
        unsafe { heap.deallocate(self.0) };
        holds
    }
    /// Returns whether the contents that fit are kept.
    fn resize(&mut self, heap: &Heap, size: usize) -> bool {
        // SAFETY: allocated by this heap.
        let Some(start) = (unsafe { heap.reallocate(self.0, layout(size)) }) else { return false };
        (self.0, self.1) = (start, size.min(self.1));
        let kept = self.holds();
        self.1 = size;
        self.fill();
        kept
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("a layout")
}

/// Fills and empties a heap until `stop`.
fn busy(heap: &Heap, seed: usize, stop: &AtomicBool) {
    let (mut live, mut at) = (Vec::new(), seed);
    while !stop.load(Relaxed) {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = SIZES[(at >> 33) % SIZES.len()];
        live.extend(Object::new(heap, size, seed as u8));
        if live.len() > 12 {
            assert!(live.swap_remove((at >> 40) % live.len()).free(heap));
        }
        if at >> 60 == 0 {
            heap.trim();
        }
    }
    assert!(live.into_iter().all(|object| object.free(heap)));
}

/// Uses the heap in a child. Returns whether all contents were intact.
fn in_child(heap: &Heap, mut old: Vec<Object>) -> bool {
    // SAFETY: ends the child if it hangs.
    unsafe { libc::alarm(20) };
    let mut new: Vec<_> = SIZES.iter().filter_map(|&size| Object::new(heap, size, 9)).collect();
    let mut holds = new.len() == SIZES.len() && old.iter().all(Object::holds);
    for (i, object) in old.iter_mut().chain(&mut new).enumerate() {
        let size = object.1;
        holds &= object.resize(heap, if i % 2 == 0 { size / 2 } else { size * 2 });
    }
    holds &= old.iter().all(Object::holds);
    holds &= old.into_iter().all(|object| object.free(heap));
    holds &= thread::scope(|scope| {
        let work = || {
            SIZES.iter().all(|&size| Object::new(heap, size, 3).is_some_and(|one| one.free(heap)))
        };
        scope.spawn(work).join().unwrap_or(false)
    });
    holds & new.into_iter().all(|object| object.free(heap))
}

/// Returns the exit status of a child that runs `work`: 0 for true; the negative signal, if any.
fn child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: see the module.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let status = i32::from(!work());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(status) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: this process's own child, awaited once; the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                -libc::WTERMSIG(status)
            }
        }
    }
}

#[test]
fn children_of_busy_threads_have_the_heap() {
    const CHILDREN: usize = 150;
    // On base pages, which are the cheapest to copy for a child.
    let (heap, stop) = (Heap::new(Options::only(Backing::Base)), AtomicBool::new(false));
    thread::scope(|scope| {
        for seed in 1..3 {
            let (heap, stop) = (&heap, &stop);
            scope.spawn(move || busy(heap, seed, stop));
        }
        let failed = (0..CHILDREN).find_map(|turn| {
            let old: Vec<_> =
                SIZES.iter().filter_map(|&size| Object::new(&heap, size, 7)).collect();
            let in_child =
                || in_child(&heap, old.iter().map(|of| Object(of.0, of.1, of.2)).collect());
            let status = child(in_child);
            let held = old.into_iter().all(|object| object.free(&heap));
            (status != 0 || !held).then_some((turn, status, held))
        });
        stop.store(true, Relaxed);
        assert_eq!(failed, None, "which child, its status, whether the parent's objects held");
    });
}

static BLOCKED: AtomicBool = AtomicBool::new(true);
static ASKED: AtomicBool = AtomicBool::new(false);

fn answers_late() -> Options {
    ASKED.store(true, Relaxed);
    while BLOCKED.load(Relaxed) {
        thread::yield_now();
    }
    Options::default()
}

#[test]
fn a_heap_that_is_just_asking_can_be_used_in_a_child() {
    static HEAP: Heap = Heap::lazy(answers_late);
    let use_it =
        || SIZES.iter().all(|&size| Object::new(&HEAP, size, 3).is_some_and(|one| one.free(&HEAP)));
    thread::scope(|scope| {
        let asks = scope.spawn(use_it);
        while !ASKED.load(Relaxed) {
            thread::yield_now();
        }
        let status = child(|| {
            // SAFETY: as above.
            unsafe { libc::alarm(20) };
            BLOCKED.store(false, Relaxed);
            use_it()
        });
        BLOCKED.store(false, Relaxed);
        assert!(status == 0 && asks.join().unwrap(), "{status}");
    });
}
