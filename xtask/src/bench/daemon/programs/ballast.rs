//! Ballast: takes memory up to a wanted size, as far as the use of its cgroup stays below a
//! ceiling, and holds it until it is killed.
//!
//! Arguments: file with the use of the cgroup, ceiling and wanted size in bytes. Prints
//! `held BYTES SECONDS` after each step, with the time for which the ceiling made it wait so far.

use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Step and pause: 256 MiB per second at most.
const STEP: usize = 16 << 20;
const PAUSE: Duration = Duration::from_micros(62_500);
const PAGE: usize = 4096;

fn main() {
    let args: Vec<String> = env::args().collect();
    let number = |index: usize| args[index].parse::<usize>().expect("a number of bytes");
    let (ceiling, wanted) = (number(2), number(3));
    let (mut held, mut waited) = (Vec::new(), Duration::ZERO);
    while held.len() * STEP < wanted {
        let used = fs::read_to_string(&args[1]).expect("the use of the cgroup");
        let begun = Instant::now();
        let fits = used.trim().parse::<usize>().expect("bytes") + STEP <= ceiling;
        if fits {
            let mut memory = vec![0_u8; STEP];
            // No page is zero-filled, so that none of it is bloat.
            memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
            held.push(memory);
        }
        thread::sleep(PAUSE);
        if !fits {
            waited += begun.elapsed();
        }
        println!("held {} {:.2}", held.len() * STEP, waited.as_secs_f64());
    }
    loop {
        thread::park();
        std::hint::black_box(&held);
    }
}
