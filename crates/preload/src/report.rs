//! What the heap came to, when the program exits: a line of JSON, `hugepilot.preload/1`.
//!
//! # Safety
//! The linker calls the function in the section below once, at the end of the program.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;

use hugepilot_alloc::PageUsage;
use serde::Serialize;

use crate::c::HEAP;
use crate::environment::{Value, tell};

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// The line. Numbers are of this moment, but for `returned_bytes`, which is a sum.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    pid: u32,
    /// The backings that were asked for.
    pages: String,
    /// Why memory was last not to be had on one of them.
    refused: Option<String>,
    allocated_bytes: u64,
    held_bytes: u64,
    idle_bytes: u64,
    returned_bytes: u64,
    mapped_bytes: u64,
    /// On which pages it is; `None` where the page map cannot be read.
    on: Option<On>,
    threads: usize,
    large: Objects,
    /// Those before guard pages (`HUGEPILOT_CHECK=1`), and how many had none since the program began.
    guarded: Objects,
    unguarded: u64,
    /// Those in use, by class.
    classes: Vec<Objects>,
}

#[derive(Serialize)]
struct On {
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

impl From<PageUsage> for On {
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
            schema: "hugepilot.preload/1",
            pid: std::process::id(),
            pages: HEAP.requested().chain.to_string(),
            refused: HEAP.refused().map(|error| error.to_string()),
            allocated_bytes: stats.allocated.get(),
            held_bytes: stats.held.get(),
            idle_bytes: stats.idle.get(),
            returned_bytes: stats.returned.get(),
            mapped_bytes: stats.mapped.get(),
            on: usage.ok().map(On::from),
            threads: stats.threads,
            large: stats.large.into(),
            guarded: stats.guarded.into(),
            unguarded: stats.unguarded,
            classes: stats
                .classes
                .into_iter()
                .filter(|of| of.count > 0)
                .map(Objects::from)
                .collect(),
        }
    }
}

extern "C" fn at_exit() {
    let Some(value) = Value::of("HUGEPILOT_STATS") else { return };
    let place = value.text();
    if place.is_empty() || place == "0" {
        return;
    }
    let Ok(mut line) = serde_json::to_vec(&Report::now()) else { return };
    line.push(b'\n');
    // One write, so that lines of several processes do not mix.
    let written = match place {
        "1" => std::io::stderr().write_all(&line),
        file => OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .and_then(|mut file| file.write_all(&line)),
    };
    if let Err(error) = written {
        tell(format_args!("HUGEPILOT_STATS={place}: {error}"));
    }
}
