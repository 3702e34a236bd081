//! Huge pages of a live process: resident and huge bytes of each mapping.
//!
//! `cargo run -p hugepilot-kernel --example huge_pages_of_a_process -- PID`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // an example prints its results

use hugepilot_kernel::{Process, Root, Target};
use hugepilot_record::Pid;
use hugepilot_units::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid: i32 = std::env::args().nth(1).ok_or("usage: huge_pages_of_a_process PID")?.parse()?;
    let process = Process::open(&Root::live(), Pid(pid))?;
    let mappings = process.mappings()?;
    println!("{:>10} {:>10}  MAPPING", "RSS", "THP");
    for mapping in mappings.iter().filter(|mapping| mapping.resident > Bytes::ZERO) {
        println!(
            "{:>10} {:>10}  {} {}",
            mapping.resident, mapping.huge, mapping.range, mapping.name
        );
    }
    let total = |bytes: fn(&_) -> Bytes| mappings.iter().map(bytes).sum::<Bytes>();
    println!("{:>10} {:>10}  total", total(|m| m.resident), total(|m| m.huge));
    Ok(())
}
