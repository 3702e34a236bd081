//! Vector on huge pages, with the pages that it is on.
//!
//! `cargo run --release -p hugepilot-alloc --example vec [CHAIN]`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use hugepilot_alloc::{HugeVec, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let chain = std::env::args().nth(1).unwrap_or_else(|| "hugetlb-2m,thp,base".to_owned());
    let mut numbers = HugeVec::new(Options::new(chain.parse()?).named("numbers")?);
    numbers.extend(0_u64..8 << 20)?;
    for error in numbers.refused() {
        println!("skipped: {error}");
        error.help().iter().for_each(|help| println!("help: {help}"));
    }
    let (backing, usage) = (numbers.backing().ok_or("nothing is mapped")?, numbers.usage()?);
    println!("backing {backing}: {} of {} on huge pages", usage.huge(), usage.resident());
    Ok(())
}
