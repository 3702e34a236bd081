//! Folded stacks: a line for each stack, for flamegraph.pl, inferno and speedscope.

use std::collections::BTreeMap;
use std::fmt::Write;

use hugepilot_render::back_end::printable;

use crate::{Timeline, frame_name};

/// Samples of each stack: the process, its frames from the outermost caller, and the mapping of the
/// data.
pub fn folded(timeline: &Timeline) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for process in &timeline.processes {
        for (stack, (samples, _)) in process.code.stacks.iter().zip(&process.code.totals) {
            let mut parts = vec![part(&process.title())];
            parts.extend(stack.frames.iter().rev().map(|frame| part(&frame_name(frame))));
            parts.extend(stack.mapping.iter().map(|name| part(&format!("memory of {name}"))));
            *lines.entry(parts.join(";")).or_default() += samples;
        }
    }
    lines.into_iter().fold(String::new(), |mut text, (line, samples)| {
        let _ = writeln!(text, "{line} {samples}");
        text
    })
}

/// A frame: semicolons separate frames, so they become colons.
fn part(name: &str) -> String {
    printable(name).replace(';', ":")
}
