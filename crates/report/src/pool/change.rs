//! Text and JSON of `hugepilot pool set`.

use std::fmt::Write;

use hugepilot_record::pool::{PoolChange, PoolNote, PoolShortfall};
use serde_json::Value;

use hugepilot_record::sentence::numbered;

use super::memory;
use crate::Sentence;
use crate::json::JsonReport;
use crate::sentence::{explain_all, lines};
use crate::table::Width;

/// Prints the result, the causes of a shortfall, and how to undo the change or make it permanent.
pub fn pool_change_text(change: &PoolChange, width: Width) -> String {
    let mut text = format!("{}\n", result(change));
    for cause in &change.causes {
        text.push_str(&lines("cause", cause));
    }
    let is_short = change.after.is_some_and(|after| after.persistent() < change.requested);
    if is_short && !change.interrupted {
        text.push_str(&memory(&change.memory, &[change.page_bytes], width));
    }
    for note in &change.warnings {
        text.push_str(&lines("note", note));
    }
    if let Some(undo) = &change.undo {
        let _ = writeln!(text, "undo: {undo}");
    }
    text.push_str(&permanent(change));
    text
}

impl JsonReport for PoolChange {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/causes", &self.causes);
        explain_all(json, "/warnings", &self.warnings);
    }
}

impl Sentence for PoolShortfall {
    fn text(&self) -> String {
        match self {
            Self::ExceedsMemory { requested_bytes, total_bytes, node } => format!(
                "{requested_bytes} requested, but total memory is {total_bytes}{}; nothing was \
                 changed",
                on_node(*node)
            ),
            Self::BelowFloor {
                growth_bytes,
                left_bytes,
                available_bytes,
                floor_bytes,
                node,
                max_pages,
            } => {
                let unchanged = if max_pages.is_some() { "; nothing was changed" } else { "" };
                format!(
                    "another {growth_bytes} would leave {left_bytes} of {available_bytes} \
                     available{}, less than the floor of {floor_bytes}{unchanged}",
                    on_node(*node)
                )
            }
            Self::BootOnly { page_bytes, .. } => {
                format!("this kernel allocates pages of {page_bytes} only at boot (EINVAL)")
            }
            Self::WriteFailed { error } => error.clone(),
            Self::Interrupted => {
                "a signal ended the request; pages allocated by then stay".to_owned()
            }
            Self::ChangedMeanwhile { extra_pages } => format!(
                "the pool has {} more than requested: another process may have resized it \
                 meanwhile",
                numbered(*extra_pages, "page", "pages")
            ),
            Self::PagesHeld { page_bytes, surplus_pages, held_pages } => format!(
                "the pool keeps {} of {page_bytes}: {} in use or reserved, and each returns to the \
                 system when its program frees it",
                numbered(*surplus_pages, "surplus page", "surplus pages"),
                numbered(*held_pages, "page is", "pages are")
            ),
            Self::NotContiguous { page_bytes, free_bytes, largest_block_bytes, node, .. } => {
                format!(
                    "pages of {page_bytes} need contiguous memory without unmovable pages, and the \
                     kernel found no more{} ({free_bytes} free, in blocks of at most \
                     {largest_block_bytes})",
                    on_node(*node)
                )
            }
            Self::MemoryInUse { missing_bytes, available_bytes, total_bytes, node, .. } => format!(
                "memory is in use: {missing_bytes} are missing, and {available_bytes} of \
                 {total_bytes} are available{}",
                on_node(*node)
            ),
            Self::Fragmented { page_bytes, free_bytes, free_block_bytes, node, .. } => format!(
                "memory is fragmented: {free_bytes} are free{}, but only {free_block_bytes} in \
                 blocks of at least {page_bytes}, and unmovable pages separate the rest",
                on_node(*node)
            ),
        }
    }

    fn help(&self) -> Vec<String> {
        let (first, boot_parameters) = match self {
            Self::BelowFloor { max_pages: Some(max_pages), .. } => {
                return vec![
                    format!("at most --count {max_pages}"),
                    "a smaller --floor, or --force".to_owned(),
                ];
            }
            Self::PagesHeld { .. } => {
                return vec!["end the programs that hugepilot pool show lists".to_owned()];
            }
            Self::BootOnly { boot_parameters, .. }
            | Self::NotContiguous { boot_parameters, .. } => (None, boot_parameters),
            Self::MemoryInUse { boot_parameters, .. } => {
                (Some("end programs that use much memory, and repeat the command"), boot_parameters)
            }
            Self::Fragmented { compacted: false, boot_parameters, .. } => {
                (Some("compact memory first, for seconds: --compact"), boot_parameters)
            }
            Self::Fragmented { boot_parameters, .. } => (None, boot_parameters),
            _ => return Vec::new(),
        };
        let boot =
            |parameters| format!("allocate them at boot, on the kernel command line: {parameters}");
        let boot = boot_parameters.as_ref().map(boot);
        first.map(str::to_owned).into_iter().chain(boot).collect()
    }
}

impl Sentence for PoolNote {
    fn text(&self) -> String {
        match self {
            Self::NotCompacted { error } => format!("memory was not compacted: {error}"),
            Self::PagesHeld { pages } => format!(
                "{} in use or reserved, and would stay as surplus until freed",
                numbered(*pages, "page is", "pages are")
            ),
            Self::ContiguityUnknown { growth_bytes, page_bytes, largest_block_bytes } => format!(
                "the kernel counts free blocks of at most {largest_block_bytes}, so only a real \
                 run shows whether it finds {growth_bytes} in pages of {page_bytes}"
            ),
            Self::ReclaimNeeded { growth_bytes, page_bytes, free_block_bytes } => format!(
                "{free_block_bytes} of {growth_bytes} are free in blocks of at least {page_bytes}; \
                 for the rest the kernel must move or reclaim pages, and may fail"
            ),
        }
    }
}

/// ` on node 1`
fn on_node(node: Option<u32>) -> String {
    node.map_or_else(String::new, |node| format!(" on node {node}"))
}

fn result(change: &PoolChange) -> String {
    let (size, before, requested) = (change.page_bytes, &change.before, change.requested);
    let place = on_node(change.node);
    let was = before.persistent();
    let Some(after) = &change.after else {
        let outcome = match (change.dry_run, change.is_complete()) {
            (true, true) => format!("would request {requested}; nothing was changed"),
            (_, _) => format!("{requested} requested, but rejected"),
        };
        return format!("{} of {size}{place}; {outcome}", numbered(was, "page", "pages"));
    };
    let persistent = after.persistent();
    let memory = size.times(after.total);
    let compacted = if change.compacted { ", memory compacted first" } else { "" };
    let seconds = change.seconds.unwrap_or(0.0);
    let surplus = match after.surplus {
        0 => String::new(),
        surplus => format!(" and {}", numbered(surplus, "surplus page", "surplus pages")),
    };
    format!(
        "{persistent} of {} of {size}{place}{surplus}, {was} before: {memory}, free pages: {}; \
         took {seconds:.2} s{compacted}",
        numbered(requested, "page", "pages"),
        after.free
    )
}

fn permanent(change: &PoolChange) -> String {
    let is_wanted = change.is_complete() || change.after.is_some();
    let Some(permanent) = change.permanent.as_ref().filter(|_| is_wanted) else {
        return String::new();
    };
    let apply = if permanent.file.contains("tmpfiles") {
        "sudo systemd-tmpfiles --create"
    } else {
        "sudo sysctl --system"
    };
    format!(
        "for {} after each boot, either\n  echo '{}' | sudo tee {} && {apply}\nor, safer, on the \
         kernel command line\n  {}\n",
        change.requested, permanent.line, permanent.file, permanent.kernel_command_line
    )
}
