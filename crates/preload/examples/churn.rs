//! Cost of `malloc` and `free`, and of accesses to their memory, with the preloaded allocator.
//! `cargo xtask bench malloc` compares several.
//!
//! `churn same|random|handed|larson|huge|access SIZE` prints nanoseconds for each pair of calls, or
//! for each access; `churn idle SIZE` prints the MiB that idle threads hold.
//!
//! # Safety
//! Each object is as large as the data written to it, and is freed once, by its last owner.
#![allow(unsafe_code, clippy::print_stdout)]

use std::error::Error;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// Object, freed on drop.
struct Object(NonNull<u8>);

// SAFETY: memory that only this value refers to.
unsafe impl Send for Object {}

impl Object {
    /// Allocates at least 8 bytes and writes the first ones, as a program would.
    #[inline]
    fn new(size: usize) -> Self {
        // SAFETY: takes no pointer.
        let start =
            NonNull::new(unsafe { libc::malloc(size.max(8)) }.cast::<u8>()).expect("memory");
        // SAFETY: just allocated, and large enough.
        unsafe { start.cast::<usize>().write(size) };
        Self(start)
    }
}

impl Drop for Object {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: allocated by `malloc`, and gone with this value.
        unsafe { libc::free(self.0.as_ptr().cast()) };
    }
}

/// Pseudo-random numbers (xorshift), the same in each run.
struct Random(u64);

impl Random {
    #[inline]
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((u128::from(self.0) * limit as u128) >> 64).unwrap_or(0)
    }
    /// Returns a size from 16 to 1023 bytes; each power of two is equally likely.
    #[inline]
    fn size(&mut self) -> usize {
        let least = 16 << self.below(6);
        least + self.below(least)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, size] = &args[..] else {
        return Err("usage: churn same|random|handed|larson|huge|access|idle BYTES".into());
    };
    let size: usize = size.parse()?;
    if what == "idle" {
        println!("{:.3}", idle()?);
        return Ok(());
    }
    let (took, count) = match what.as_str() {
        "same" => same(),
        "random" => random(),
        "handed" => handed(),
        "larson" => larson(),
        "huge" => huge(),
        "access" => access(size),
        other => return Err(format!("no benchmark {other}").into()),
    };
    #[allow(clippy::cast_precision_loss)]
    let nanos = took.as_nanos() as f64 / count as f64;
    println!("{nanos:.3}");
    Ok(())
}

/// Replaces objects of one size, first in, first out, 1000 at a time.
fn same() -> (Duration, usize) {
    const COUNT: usize = 20_000_000;
    let mut live: Vec<Object> = (0..1000).map(|_| Object::new(64)).collect();
    let start = Instant::now();
    for i in 0..COUNT {
        live[i % 1000] = Object::new(64);
    }
    (start.elapsed(), COUNT)
}

/// Replaces any of 20,000 objects by one of another size.
fn random() -> (Duration, usize) {
    const COUNT: usize = 10_000_000;
    let mut random = Random(1);
    let mut live: Vec<Object> = (0..20_000).map(|_| Object::new(random.size())).collect();
    let start = Instant::now();
    for _ in 0..COUNT {
        let which = random.below(live.len());
        live[which] = Object::new(random.size());
    }
    (start.elapsed(), COUNT)
}

/// Allocates in one thread and frees in another, a hundred objects at a time.
fn handed() -> (Duration, usize) {
    const BATCHES: usize = 40_000;
    let (sender, receiver) = sync_channel::<Vec<Object>>(16);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| receiver.into_iter().for_each(drop));
        let mut random = Random(2);
        for _ in 0..BATCHES {
            let batch = (0..100).map(|_| Object::new(random.size())).collect();
            sender.send(batch).expect("the other thread listens");
        }
        drop(sender);
    });
    (start.elapsed(), BATCHES * 100)
}

/// Replaces objects at random in two threads; each leaves its objects to a successor. After Larson
/// and Krishnan, *Memory Allocation for Long-Running Server Applications*, ISMM 1998.
fn larson() -> (Duration, usize) {
    const TURNS: usize = 20;
    const COUNT: usize = 100_000;
    fn turn(mut live: Vec<Object>, seed: u64) -> Vec<Object> {
        let mut random = Random(seed);
        for _ in 0..COUNT {
            let which = random.below(live.len());
            live[which] = Object::new(random.size());
        }
        live
    }
    let start = Instant::now();
    thread::scope(|scope| {
        for own in 1..=2 {
            scope.spawn(move || {
                let mut live: Vec<Object> = (0..5000).map(|_| Object::new(64)).collect();
                for next in 0..TURNS {
                    let seed = own * 1000 + next as u64;
                    live =
                        thread::spawn(move || turn(live, seed)).join().expect("no thread panics");
                }
            });
        }
    });
    (start.elapsed(), 2 * TURNS * COUNT)
}

/// Allocates 9 MB at a time, and writes each page.
fn huge() -> (Duration, usize) {
    const COUNT: usize = 500;
    const SIZE: usize = 9_000_000;
    let start = Instant::now();
    for _ in 0..COUNT {
        let object = Object::new(SIZE);
        for at in (0..SIZE).step_by(4096) {
            // SAFETY: inside of the object.
            unsafe { object.0.add(at).write_volatile(1) };
        }
    }
    (start.elapsed(), COUNT)
}

/// Lets each of 1,000 threads replace 10,000 objects of up to 8 KiB, free all and sleep. Returns
/// the MiB that became resident.
fn idle() -> Result<f64, Box<dyn Error>> {
    const THREADS: usize = 1000;
    let before = resident_mib()?;
    let (idle, end) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        for own in 1..=THREADS {
            let (idle, end) = (&idle, &end);
            let work = move || {
                let mut random = Random(own as u64);
                let mut live: Vec<Option<Object>> = (0..64).map(|_| None).collect();
                for _ in 0..10_000 {
                    let which = random.below(live.len());
                    live[which] = None;
                    live[which] = Some(Object::new(8 * random.size()));
                }
                drop(live);
                idle.wait();
                end.wait();
            };
            thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work)?;
        }
        idle.wait();
        let after = resident_mib();
        end.wait();
        Ok(after? - before)
    })
}

fn resident_mib() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Rss:")?.split_whitespace().next());
    Ok(kib.ok_or("no Rss")?.parse::<f64>()? / 1024.0)
}

/// Follows pointers through objects of 64 bytes, `size` bytes in total, in pseudo-random order.
fn access(size: usize) -> (Duration, usize) {
    const COUNT: usize = 10_000_000;
    let live: Vec<Object> = (0..size / 64).map(|_| Object::new(64)).collect();
    // One cycle through all of them (Sattolo).
    let (mut order, mut random): (Vec<u32>, _) = ((0..).take(live.len()).collect(), Random(3));
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i));
    }
    for (object, &next) in live.iter().zip(&order) {
        // SAFETY: inside of the object.
        unsafe { object.0.cast::<NonNull<u8>>().write(live[next as usize].0) };
    }
    drop(order);
    let mut at = live[0].0;
    let start = Instant::now();
    for _ in 0..COUNT {
        // SAFETY: each object begins with the address of the next.
        at = unsafe { at.cast::<NonNull<u8>>().read() };
    }
    black_box(at);
    let took = start.elapsed();
    // Freeing them is not measured.
    std::mem::forget(live);
    (took, COUNT)
}
