use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use hugepilot_record::Errno;
use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;
use crate::sys::scripted::{Call, ScriptedSys, cases};

fn base() -> Options {
    Options::only(Backing::Base)
}

/// Logs its drop, and panics then if `panics`.
struct Noted {
    number: u32,
    log: Rc<RefCell<Vec<u32>>>,
    panics: bool,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.log.borrow_mut().push(self.number);
        assert!(!self.panics, "panics on purpose");
    }
}

fn noted(
    sys: &ScriptedSys,
    count: u32,
    panics_at: Option<u32>,
) -> (HugeVec<Noted, ScriptedSys>, Rc<RefCell<Vec<u32>>>) {
    let log = Rc::default();
    let mut vec = HugeVec::new_on(sys.clone(), base());
    let items = (0..count).map(|number| Noted {
        number,
        log: Rc::clone(&log),
        panics: panics_at == Some(number),
    });
    vec.extend(items).unwrap();
    (vec, log)
}

#[test]
fn items_are_dropped_once_and_in_order() {
    let sys = ScriptedSys::default();
    let (mut vec, log) = noted(&sys, 6, None);
    drop(vec.pop());
    vec.truncate(3);
    vec.truncate(99);
    assert_eq!(*log.borrow(), [5, 3, 4]);
    drop(vec);
    assert_eq!(*log.borrow(), [5, 3, 4, 0, 1, 2]);
    assert_eq!(sys.mappings(), 0);
}

#[test]
fn a_destructor_that_panics_neither_keeps_the_others_nor_the_memory() {
    let sys = ScriptedSys::default();
    let (vec, log) = noted(&sys, 4, Some(1));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(vec))).is_err());
    assert_eq!((log.borrow().as_slice(), sys.mappings()), ([0, 1, 2, 3].as_slice(), 0));

    let (mut vec, log) = noted(&sys, 4, Some(2));
    assert!(catch_unwind(AssertUnwindSafe(|| vec.truncate(1))).is_err());
    assert_eq!((vec.len(), log.borrow().as_slice()), (1, [1, 2, 3].as_slice()));
    drop(vec);
    assert_eq!(*log.borrow(), [1, 2, 3, 0]);
}

#[test]
fn a_clone_that_panics_leaves_what_it_cloned_to_be_dropped() {
    struct Fragile(Rc<Cell<i32>>);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            assert!(self.0.get() < 7, "panics on purpose");
            self.0.set(self.0.get() + 1);
            Self(Rc::clone(&self.0))
        }
    }
    impl Drop for Fragile {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    let (sys, alive) = (ScriptedSys::default(), Rc::new(Cell::new(4)));
    let mut vec = HugeVec::new_on(sys.clone(), base());
    vec.extend((0..4).map(|_| Fragile(Rc::clone(&alive)))).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| vec.try_clone())).is_err());
    assert_eq!((alive.get(), sys.mappings()), (4, 1));
    drop(vec);
    assert_eq!((alive.get(), sys.mappings()), (0, 0));
}

#[test]
fn items_without_size_need_no_memory_but_are_dropped() {
    thread_local! { static DROPPED: Cell<usize> = const { Cell::new(0) }; }
    #[derive(Clone)]
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPPED.set(DROPPED.get() + 1);
        }
    }
    let sys = ScriptedSys::default();
    sys.fail(Call::Map, 0, Errno::ENOMEM);
    let mut vec = HugeVec::new_on(sys.clone(), base());
    assert_eq!(vec.capacity(), usize::MAX);
    vec.extend((0..1000).map(|_| Nothing)).unwrap();
    vec.reserve(usize::MAX - 1000).unwrap();
    assert!(matches!(vec.reserve(usize::MAX), Err(AllocError::Overflow { size: 0, .. })));
    assert_eq!((vec.len(), vec.iter().count(), sys.calls(Call::Map)), (1000, 1000, 0));
    assert_eq!((vec.backing(), vec.usage()), (None, Ok(PageUsage::default())));
    drop(vec.try_clone().unwrap());
    drop(vec);
    assert_eq!(DROPPED.get(), 2000);
}

#[test]
fn nothing_is_mapped_for_nothing() {
    let sys = ScriptedSys::default();
    let mut vec = HugeVec::<u64, _>::new_on(sys.clone(), base());
    vec.reserve(0).unwrap();
    vec.extend([]).unwrap();
    vec.clear();
    assert_eq!((vec.pop(), vec.len(), vec.capacity(), &*vec), (None, 0, 0, &[][..]));
    vec.prefault(4).unwrap();
    assert_eq!((vec.collapse(), sys.calls(Call::Map)), (Ok(CollapseOutcome::default()), 0));
    assert_eq!(HugeVec::<u8>::with_capacity(0, base()).unwrap().capacity(), 0);
}

#[test]
fn memory_after_the_items_is_unmapped() {
    let sys = ScriptedSys::default();
    let mut vec = HugeVec::new_on(sys.clone(), base());
    vec.extend(0..10_000_u32).unwrap();
    vec.truncate(1500);
    sys.fail(Call::Shrink, 0, Errno::ENOMEM);
    vec.shrink_to_fit();
    assert!(vec.capacity() >= 10_000 && vec.iter().copied().eq(0..1500));
    sys.clear_failures();
    vec.shrink_to_fit();
    // Miri cannot unmap single pages.
    assert!((cfg!(miri) || vec.capacity() == 2048) && vec.iter().copied().eq(0..1500));
    vec.extend(1500..9000).unwrap();
    assert!(vec.iter().copied().eq(0..9000));
    vec.clear();
    vec.shrink_to_fit();
    assert_eq!((vec.capacity(), vec.backing(), sys.mappings()), (0, None, 0));
    vec.push(7).unwrap();
    assert_eq!(*vec, [7]);
    let mut nothing = HugeVec::from_fn(5, base(), |_| ()).unwrap();
    nothing.shrink_to_fit();
    assert_eq!((nothing.len(), nothing.capacity()), (5, usize::MAX));
}

#[test]
fn numbers_become_numbers_of_another_width_where_they_are() {
    let sys = ScriptedSys::default();
    let mut bytes = HugeVec::<u8, _>::new_on(sys.clone(), base());
    bytes.extend((0..27).map(|i| i + 1)).unwrap();
    let (start, backing) = (bytes.as_ptr().addr(), bytes.backing());
    let words = bytes.recast::<u64>();
    let plainly = |i: usize| {
        u64::from_ne_bytes(std::array::from_fn(|byte| u8::try_from(8 * i + byte + 1).unwrap()))
    };
    assert!(words.iter().copied().eq((0..3).map(plainly)) && words.len() == 3);
    assert_eq!((words.as_ptr().addr(), words.backing(), words.capacity()), (start, backing, 512));
    let mut halves = words.recast::<u32>();
    assert_eq!(halves.len(), 6);
    halves.push(5).unwrap();
    assert_eq!((halves.pop(), sys.mappings()), (Some(5), 1));
    drop(halves);
    assert_eq!(sys.mappings(), 0);
    assert!(HugeVec::<u32>::new(base()).recast::<u64>().is_empty());
}

#[test]
fn products_that_no_number_holds_are_refused() {
    for count in [usize::MAX, usize::MAX / 8 + 1, usize::MAX / 8, isize::MAX as usize / 8 + 1] {
        let error = HugeVec::<u64>::with_capacity(count, base()).unwrap_err();
        assert_eq!(error, AllocError::Overflow { count, size: 8 });
    }
    let mut vec = HugeVec::from_fn(3, base(), |i| i).unwrap();
    assert!(matches!(vec.reserve(usize::MAX - 1), Err(AllocError::Overflow { .. })));
    assert_eq!(*vec, [0, 1, 2]);
}

#[test]
fn a_push_that_fails_keeps_the_rest() {
    let sys = ScriptedSys::default();
    let mut vec = HugeVec::new_on(sys.clone(), base());
    vec.extend(0..1024_u32).unwrap();
    assert_eq!((vec.len(), vec.capacity()), (1024, 1024));
    sys.fail(Call::Map, 0, Errno::ENOMEM);
    sys.fail(Call::Grow, 0, Errno::ENOMEM);
    assert!(matches!(vec.push(5), Err(AllocError::Map { errno: Errno::ENOMEM, .. })));
    assert!(vec.iter().copied().eq(0..1024));
    sys.clear_failures();
    vec.push(1024).unwrap();
    assert!(vec.iter().copied().eq(0..1025) && vec.capacity() >= 2048);
}

#[test]
fn alignments_of_types_above_a_page_are_kept() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(16384))]
    struct Above4K(u8);
    let mut vec = HugeVec::new(Options::default());
    for i in 0..20 {
        vec.push(Above4K(i)).unwrap();
        assert!(vec.as_ptr().is_aligned());
    }
    assert!(vec.iter().enumerate().all(|(i, item)| usize::from(item.0) == i));
    // Values aligned above a huge page do not fit on a stack, so the alignment is requested.
    let mut vec = HugeVec::new(base().aligned(Bytes::mib(4)));
    for i in 0..20 {
        vec.push(Above4K(i)).unwrap();
        assert!(vec.as_ptr().addr().is_multiple_of(4 << 20));
    }
    assert!(vec.iter().enumerate().all(|(i, item)| usize::from(item.0) == i));
}

#[test]
fn it_goes_between_threads_as_its_items_do() {
    fn goes<T: Send + Sync>(_: &T) {}
    let mut vec = HugeVec::from_fn(100, base(), |i| i).unwrap();
    goes(&vec);
    std::thread::scope(|scope| {
        for part in vec.chunks_mut(25) {
            scope.spawn(|| part.iter_mut().for_each(|item| *item += 1));
        }
    });
    let vec = std::thread::spawn(move || vec).join().unwrap();
    assert!(vec.iter().copied().eq(1..101));
    assert_eq!(format!("{:?}", HugeVec::from_fn(2, base(), |i| i).unwrap()), "[0, 1]");
}

#[derive(Clone, Debug)]
enum Step {
    Push(u16),
    Pop,
    Extend(u16),
    Truncate(usize),
    Reserve(usize),
    Clone,
    Sort,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u16>().prop_map(Step::Push),
        1 => Just(Step::Pop),
        3 => (0..if cfg!(miri) { 40_u16 } else { 5000 }).prop_map(Step::Extend),
        1 => (0..3000_usize).prop_map(Step::Truncate),
        1 => (0..2000_usize).prop_map(Step::Reserve),
        1 => Just(Step::Clone),
        1 => Just(Step::Sort),
    ]
}

proptest! {
    #![proptest_config(cases(100, 4))]
    /// Boxes, so that a lost or doubled item shows as a leak or a double free.
    #[test]
    fn a_vector_behaves_like_vec(
        steps in vec_of(step(), 1..40),
        pool in 0..3_u64,
    ) {
        run(steps, pool);
    }
}

/// Runs the steps on a vector and on a `Vec`, and compares them after each.
fn run(steps: Vec<Step>, pool: u64) {
    let sys = ScriptedSys::default();
    sys.pool(Bytes::mib(2), pool);
    let options = Options::new("hugetlb-2m,base".parse().unwrap());
    let (mut ours, mut model) = (HugeVec::new_on(sys.clone(), options), Vec::new());
    for step in steps {
        match step {
            Step::Push(item) => {
                ours.push(Box::new(item)).unwrap();
                model.push(Box::new(item));
            }
            Step::Pop => assert_eq!(ours.pop(), model.pop()),
            Step::Extend(more) => {
                ours.extend((0..more).map(Box::new)).unwrap();
                model.extend((0..more).map(Box::new));
            }
            Step::Truncate(len) => {
                ours.truncate(len);
                model.truncate(len);
            }
            Step::Reserve(more) => {
                ours.reserve(more).unwrap();
                assert!(ours.capacity() >= ours.len() + more);
            }
            Step::Clone => ours = ours.try_clone().unwrap(),
            Step::Sort => {
                ours.sort_unstable();
                model.sort_unstable();
            }
        }
        assert_eq!(&*ours, &*model);
        assert!(sys.mappings() <= 1 && ours.len() <= ours.capacity());
    }
    drop(ours);
    assert_eq!((sys.mappings(), sys.pool_free(Bytes::mib(2))), (0, pool));
}
