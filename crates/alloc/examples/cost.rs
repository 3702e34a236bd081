//! Cost of memory on a backing, from mapping to unmapping with every page prefaulted: by this
//! crate, or by bare system calls for the same pages. `cargo xtask bench alloc` compares the two.
//!
//! `cost hugepilot|bare BACKING SIZE THREADS` prints nanoseconds, and the bytes on huge pages with
//! `ours`.
//!
//! # Safety
//! The kernel places the bare mapping. It is advised as a whole and unmapped once.
#![allow(unsafe_code, clippy::print_stdout)]

use std::error::Error;
use std::io;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use hugepilot_alloc::{Backing, HugeRegion, Linux, Options, Sys};
use hugepilot_units::Bytes;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [who, backing, size, threads] = &args[..] else {
        return Err("usage: cost hugepilot|bare BACKING SIZE THREADS".into());
    };
    let (backing, len, threads) = (backing.parse()?, size.parse()?, threads.parse()?);
    let (took, huge) = match who.as_str() {
        "hugepilot" => hugepilot(backing, len, threads).map_err(|error| match error.help() {
            Some(help) => format!("{error}; help: {help}"),
            None => error.to_string(),
        })?,
        _ => (bare(backing, len.as_usize(), threads)?, Bytes::ZERO),
    };
    println!("{} {}", took.as_nanos(), huge.get());
    Ok(())
}

fn hugepilot(
    backing: Backing,
    len: Bytes,
    threads: usize,
) -> hugepilot_alloc::Result<(Duration, Bytes)> {
    let start = Instant::now();
    let region = HugeRegion::map(len, &Options::only(backing))?;
    region.prefault(threads)?;
    let made = start.elapsed();
    let huge = region.usage()?.huge();
    let start = Instant::now();
    drop(region);
    Ok((made + start.elapsed(), huge))
}

/// Bare mapping, shared with threads.
#[derive(Clone, Copy)]
struct Bare(NonNull<libc::c_void>);

// SAFETY: an address; the kernel serialises the calls of the threads.
unsafe impl Send for Bare {}

impl Bare {
    fn advise(self, from: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: callers stay inside of the mapping, which is neither read nor written.
        let done = unsafe { libc::madvise(self.0.as_ptr().byte_add(from), len, advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Maps, populates and unmaps `len` bytes, a multiple of the page size: the kernel aligns by itself
/// (6.7).
fn bare(backing: Backing, len: usize, threads: usize) -> io::Result<Duration> {
    let pool = backing.pool_page().map_or(0, |page| {
        libc::MAP_HUGETLB | (i32::try_from(page.get().ilog2()).unwrap_or(0) << libc::MAP_HUGE_SHIFT)
    });
    let (rights, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | pool);
    let start = Instant::now();
    // SAFETY: no address is requested, so no existing mapping is affected.
    let whole = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, -1, 0) };
    let whole = NonNull::new(whole).filter(|whole| whole.as_ptr() != libc::MAP_FAILED);
    let whole = Bare(whole.ok_or_else(io::Error::last_os_error)?);
    match backing {
        Backing::Base => whole.advise(0, len, libc::MADV_NOHUGEPAGE)?,
        Backing::Thp(_) => whole.advise(0, len, libc::MADV_HUGEPAGE)?,
        Backing::System | Backing::Collapse(_) | Backing::Hugetlb2M | Backing::Hugetlb1G => {}
    }
    let unit = backing.pool_page().unwrap_or(Linux.sizes().huge).as_usize();
    let slice = (len / unit).div_ceil(threads) * unit;
    std::thread::scope(|scope| {
        let rest: Vec<_> = (1..threads)
            .map(|i| {
                scope.spawn(move || {
                    populate(whole, i * slice, slice.min(len.saturating_sub(i * slice)))
                })
            })
            .collect();
        populate(whole, 0, slice.min(len))?;
        rest.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    if matches!(backing, Backing::Collapse(_)) {
        whole.advise(0, len, libc::MADV_COLLAPSE)?;
    }
    // SAFETY: mapped above with this length, and unreferenced.
    unsafe { libc::munmap(whole.0.as_ptr(), len) };
    Ok(start.elapsed())
}

fn populate(whole: Bare, from: usize, len: usize) -> io::Result<()> {
    whole.advise(from, len, libc::MADV_POPULATE_WRITE)
}
