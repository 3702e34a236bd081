//! Random lookups in a map of Rust's standard library, one in eight an update.
//!
//! Arguments: `btree` or `hash`, entries.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(20);
const ROUND: u64 = 1024;

fn main() {
    let args: Vec<String> = env::args().collect();
    let entries: u64 = args[2].parse().expect("a number of entries");
    let pairs = (0..entries).map(|key| (key, key));
    if args[1] == "btree" {
        let mut map: BTreeMap<u64, u64> = pairs.collect();
        run(entries, |key, update| change(map.get_mut(&key), update));
    } else {
        let mut map: HashMap<u64, u64> = pairs.collect();
        run(entries, |key, update| change(map.get_mut(&key), update));
    }
}

fn change(value: Option<&mut u64>, update: bool) -> u64 {
    let value = value.expect("every key is in the map");
    if update {
        *value += 1;
    }
    *value
}

fn run(entries: u64, mut operation: impl FnMut(u64, bool) -> u64) {
    println!("ready");
    let (mut random, mut sum) = (88_172_645_463_325_252_u64, 0_u64);
    loop {
        let (begun, mut ops) = (Instant::now(), 0);
        while begun.elapsed() < EVERY {
            for i in 0..ROUND {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                sum = sum.wrapping_add(operation(random % entries, i % 8 == 0));
            }
            ops += ROUND;
        }
        std::hint::black_box(sum);
        println!("ops {ops}");
    }
}
