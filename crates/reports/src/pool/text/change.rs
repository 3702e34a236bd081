//! Text and JSON of `hugepilot pool set`.

use std::fmt::Write;

use hugepilot_record::sentence::numbered;
use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{explain_all, lines};
use hugepilot_render::table::Width;
use serde_json::Value;

use super::memory;
use crate::pool::{PoolChange, on_node};

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
