//! Program of the mix that grows: it reads random words of all its memory.
//!
//! Argument: MiB at the start. A line `grow MIB` on stdin adds memory. Prints `ready`, then
//! `ops N` every second.

use std::env;
use std::io::stdin;
use std::sync::mpsc::{channel, Receiver};
use std::thread;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);
const BATCH: u64 = 4096;
/// Words in 1 MiB.
const PIECE: usize = 1 << 17;

fn main() {
    let mib = env::args().nth(1).and_then(|text| text.parse().ok()).expect("MiB");
    let mut pieces = Vec::new();
    add(&mut pieces, mib);
    println!("ready");
    let growth = requests();
    let (mut random, mut sum) = (88_172_645_463_325_252_u64, 0_u64);
    loop {
        let (begun, mut ops) = (Instant::now(), 0);
        while begun.elapsed() < EVERY {
            for _ in 0..BATCH {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let piece = pieces[(random >> 32) as usize % pieces.len()];
                sum = sum.wrapping_add(piece[random as usize % PIECE]);
            }
            ops += BATCH;
        }
        std::hint::black_box(sum);
        println!("ops {ops}");
        growth.try_iter().for_each(|mib| add(&mut pieces, mib));
    }
}

/// Allocates and fills memory, for as long as the program runs.
fn add(pieces: &mut Vec<&'static [u64]>, mib: usize) {
    let words: Vec<u64> = (0..(mib * PIECE) as u64).map(|word| word << 1 | 1).collect();
    pieces.extend(words.leak().chunks_exact(PIECE));
}

fn requests() -> Receiver<usize> {
    let (send, requests) = channel();
    thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            let mib = line.strip_prefix("grow ").and_then(|text| text.parse().ok());
            send.send(mib.expect("grow MIB")).expect("the program runs");
        }
    });
    requests
}
