//! Names the shared library for the run-time linker, `libhugepilot.so.ABI`, with the header's ABI
//! number.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // how a build script talks to cargo

const HEADER: &str = "include/hugepilot.h";

fn main() {
    println!("cargo::rerun-if-changed={HEADER}");
    let header = std::fs::read_to_string(HEADER).expect("the header is there");
    let abi = header
        .lines()
        .find_map(|line| line.strip_prefix("#define HUGEPILOT_ABI "))
        .expect("it names the ABI");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libhugepilot.so.{}", abi.trim());
    // Ending threads call it, so it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-env=HUGEPILOT_ABI={}", abi.trim());
}
