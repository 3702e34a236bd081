//! Statistics of the heap at program exit: one line of JSON, `hugepilot.preload/2`.
//!
//! # Safety
//! The C library calls the function in the section below once, when the program exits.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;

use hugepilot_alloc::{AllocError, PageUsage};
use serde::Serialize;

use crate::c::HEAP;
use crate::environment::{Value, print_line};

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Statistics line. Numbers are those at exit, except the sum `returned_bytes`.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// File name of the executable.
    program: String,
    pid: u32,
    /// Requested backings.
    pages: String,
    /// Last error of a backing, if any was refused.
    refused: Option<RefusedBacking>,
    allocated_bytes: u64,
    held_bytes: u64,
    idle_bytes: u64,
    returned_bytes: u64,
    mapped_bytes: u64,
    /// Bytes by kind of page; `None` if the pagemap cannot be read.
    usage: Option<Usage>,
    threads: usize,
    large: Objects,
    /// Small objects in use, by size class.
    classes: Vec<Objects>,
}

#[derive(Serialize)]
struct RefusedBacking {
    /// Name that stays the same between versions.
    code: &'static str,
    error: String,
    help: Option<String>,
}

impl From<AllocError> for RefusedBacking {
    fn from(error: AllocError) -> Self {
        let help = error.help().map(|help| help.to_string());
        Self { code: error.code(), error: error.to_string(), help }
    }
}

#[derive(Serialize)]
struct Usage {
    base_bytes: u64,
    thp_bytes: u64,
    hugetlb_2m_bytes: u64,
    hugetlb_1g_bytes: u64,
}

#[derive(Serialize)]
struct Objects {
    size_bytes: u64,
    count: u64,
    bytes: u64,
}

impl From<hugepilot_alloc::ObjectCount> for Objects {
    fn from(of: hugepilot_alloc::ObjectCount) -> Self {
        Self { size_bytes: of.size.get(), count: of.count, bytes: of.bytes.get() }
    }
}

impl From<PageUsage> for Usage {
    fn from(usage: PageUsage) -> Self {
        Self {
            base_bytes: usage.base.get(),
            thp_bytes: usage.thp.get(),
            hugetlb_2m_bytes: usage.hugetlb_2m.get(),
            hugetlb_1g_bytes: usage.hugetlb_1g.get(),
        }
    }
}

impl Report {
    fn now() -> Self {
        let (stats, usage) = (HEAP.stats(), HEAP.usage());
        Self {
            schema: "hugepilot.preload/2",
            program: program(),
            pid: std::process::id(),
            pages: HEAP.requested().chain.to_string(),
            refused: HEAP.refused().map(RefusedBacking::from),
            allocated_bytes: stats.allocated.get(),
            held_bytes: stats.held.get(),
            idle_bytes: stats.idle.get(),
            returned_bytes: stats.returned.get(),
            mapped_bytes: stats.mapped.get(),
            usage: usage.ok().map(Usage::from),
            threads: stats.threads,
            large: stats.large.into(),
            classes: stats
                .classes
                .into_iter()
                .filter(|of| of.count > 0)
                .map(Objects::from)
                .collect(),
        }
    }
}

/// Returns the file name of the executable; empty without `/proc`.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The kernel marks an executable that was replaced meanwhile.
    name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned()
}

extern "C" fn at_exit() {
    let Some(value) = Value::of("HUGEPILOT_STATS") else { return };
    let place = value.text();
    if place.is_empty() || place == "0" {
        return;
    }
    let Ok(mut line) = serde_json::to_vec(&Report::now()) else { return };
    line.push(b'\n');
    // One write, so that lines of several processes do not interleave.
    let written = match place {
        "1" => std::io::stderr().write_all(&line),
        file => OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .and_then(|mut file| file.write_all(&line)),
    };
    if let Err(error) = written {
        print_line(format_args!("HUGEPILOT_STATS={place}: {error}"));
    }
}
