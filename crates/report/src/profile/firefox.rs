//! Processed profile of the Firefox profiler: a thread for each process, a sample for each slice
//! and stack, weighted by its stall samples. Tables are columns, as that format has them.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::back_end::printable;
use crate::model::{Cell, Unit};
use crate::recording::{ProcessTrack, Timeline, frame_name};

/// Version of the processed profile format.
const VERSION: u64 = 48;

/// Stalls over time as a profile. The innermost frame is the memory that was waited for.
pub fn firefox(timeline: &Timeline) -> String {
    let threads: Vec<Value> = timeline
        .processes
        .iter()
        .filter(|process| !process.code.events.all().is_empty())
        .map(|process| thread(process, timeline))
        .collect();
    let category = |name: &str, color: &str| {
        let below = ["Other"];
        json!({ "name": name, "color": color, "subcategories": below })
    };
    let profile = json!({
        "meta": {
            "interval": timeline.head.every.as_seconds() * 1e3 * merged_slices(timeline) as f64,
            "startTime": timeline.head.started_unix_seconds * 1e3,
            "processType": 0,
            "product": "hugepilot",
            "stackwalk": 1,
            "version": 29,
            "preprocessedProfileVersion": VERSION,
            "symbolicated": true,
            "categories": [category("Code", "blue"), category("Memory", "orange")],
            "markerSchema": [],
            "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs" },
        },
        "libs": [],
        "threads": threads,
    });
    profile.to_string()
}

/// Slices of the recording in each slice of the profile, of the process with the most.
fn merged_slices(timeline: &Timeline) -> usize {
    let merged = timeline.processes.iter().map(|process| process.code.events.merged());
    merged.max().unwrap_or(1)
}

/// The width of the slices of the profile; `None` if it is that of the recording.
pub fn firefox_note(timeline: &Timeline) -> Option<String> {
    let merged = merged_slices(timeline);
    let every = Cell::of(Some(timeline.head.every.as_seconds()), Unit::Seconds, "").text();
    let text = format!("the profile merges every {merged} slices of {every} into one");
    (merged > 1).then_some(text)
}

/// Tables of a thread.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    text_index: HashMap<String, usize>,
    /// Names of functions, and their files with lines.
    functions: Vec<(usize, Option<usize>, Option<u32>)>,
    function_index: HashMap<(usize, Option<usize>, Option<u32>), usize>,
    /// Categories of frames, one for each function.
    categories: Vec<usize>,
    /// Frames and callers.
    stacks: Vec<(usize, Option<usize>)>,
    stack_index: HashMap<(usize, Option<usize>), usize>,
}

impl Tables {
    fn text(&mut self, text: &str) -> usize {
        let text = printable(text);
        let next = self.texts.len();
        let index = *self.text_index.entry(text.clone()).or_insert(next);
        if index == next {
            self.texts.push(text);
        }
        index
    }

    fn frame(&mut self, key: (usize, Option<usize>, Option<u32>), category: usize) -> usize {
        let next = self.functions.len();
        let index = *self.function_index.entry(key).or_insert(next);
        if index == next {
            self.functions.push(key);
            self.categories.push(category);
        }
        index
    }

    fn stack(&mut self, frame: usize, caller: Option<usize>) -> usize {
        let next = self.stacks.len();
        let index = *self.stack_index.entry((frame, caller)).or_insert(next);
        if index == next {
            self.stacks.push((frame, caller));
        }
        index
    }
}

fn thread(process: &ProcessTrack, timeline: &Timeline) -> Value {
    let mut tables = Tables::default();
    let stacks: Vec<Option<usize>> = process
        .code
        .stacks
        .iter()
        .map(|stack| {
            let mut caller = None;
            for frame in stack.frames.iter().rev() {
                let name = tables.text(&frame_name(frame));
                let file = frame.source.as_ref().map(|(file, _)| tables.text(file));
                let line = frame.source.as_ref().map(|(_, line)| *line);
                let frame = tables.frame((name, file, line), 0);
                caller = Some(tables.stack(frame, caller));
            }
            let mapping = stack.mapping.as_deref().unwrap_or("[unknown address]");
            let name = tables.text(&format!("memory of {mapping}"));
            let frame = tables.frame((name, None, None), 1);
            Some(tables.stack(frame, caller))
        })
        .collect();
    let events = process.code.events.all();
    let times: Vec<f64> = events.iter().map(|event| event.end * 1e3).collect();
    let samples = json!({
        "length": events.len(),
        "stack": events.iter().map(|event| stacks[event.stack]).collect::<Vec<_>>(),
        "time": times,
        "weight": events.iter().map(|event| event.samples).collect::<Vec<_>>(),
        "weightType": "samples",
    });
    let mut thread = thread_tables(&tables);
    thread["samples"] = samples;
    thread["name"] = json!(printable(&process.name));
    thread["processName"] = json!(printable(&process.title()));
    thread["pid"] = json!(process.pid.to_string());
    thread["tid"] = json!(process.pid.0);
    thread["unregisterTime"] = json!(timeline.duration * 1e3);
    thread
}

/// The tables, without samples.
fn thread_tables(tables: &Tables) -> Value {
    let (functions, frames) = (tables.functions.len(), tables.functions.len());
    let nulls = vec![Value::Null; frames];
    let texts = &tables.functions;
    json!({
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "pausedRanges": [],
        "isMainThread": true,
        "markers": {
            "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [],
            "startTime": [],
        },
        "stackTable": {
            "length": tables.stacks.len(),
            "frame": tables.stacks.iter().map(|stack| stack.0).collect::<Vec<_>>(),
            "prefix": tables.stacks.iter().map(|stack| stack.1).collect::<Vec<_>>(),
            "category":
                tables.stacks.iter().map(|stack| tables.categories[stack.0]).collect::<Vec<_>>(),
            "subcategory": vec![0; tables.stacks.len()],
        },
        "frameTable": {
            "length": frames,
            "address": vec![-1; frames],
            "inlineDepth": vec![0; frames],
            "category": tables.categories,
            "subcategory": vec![0; frames],
            "func": (0..frames).collect::<Vec<_>>(),
            "nativeSymbol": nulls,
            "innerWindowID": nulls,
            "implementation": nulls,
            "line": texts.iter().map(|function| function.2).collect::<Vec<_>>(),
            "column": nulls,
        },
        "funcTable": {
            "length": functions,
            "name": texts.iter().map(|function| function.0).collect::<Vec<_>>(),
            "isJS": vec![false; functions],
            "relevantForJS": vec![false; functions],
            "resource": vec![-1; functions],
            "fileName": texts.iter().map(|function| function.1).collect::<Vec<_>>(),
            "lineNumber": texts.iter().map(|function| function.2).collect::<Vec<_>>(),
            "columnNumber": nulls,
        },
        "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
        "nativeSymbols": {
            "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [],
        },
        "stringArray": tables.texts,
    })
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_record::recording::{CodeSlice, CodeStall, Frame, Head, Line};
    use hugepilot_units::{Nanos, VirtAddr};

    use super::*;
    use crate::recording::Window;

    #[test]
    fn slices_of_long_recordings_are_merged_with_a_note() {
        let head = Head { every: Nanos::millis(100), ..Head::default() };
        let mut timeline = Timeline::new(head, Window::default());
        let stall = CodeStall {
            ip: VirtAddr::new(1),
            frame: Frame::default(),
            callers: Vec::new(),
            mapping: None,
            mapping_start: None,
            samples: 1,
            streamed: 0,
        };
        let (time, stalls) = (Nanos::millis(100), vec![stall]);
        timeline.add(Line::Code(CodeSlice { time, pid: Pid(7), stalls }));
        let events = &mut timeline.processes[0].code.events;
        for slice in 2..=1_000_000 {
            events.begin(f64::from(slice) / 10.0);
            events.add(0, 1);
        }
        assert_eq!(firefox_note(&timeline), None);
        let events = &mut timeline.processes[0].code.events;
        events.begin(100_000.1);
        events.add(0, 1);
        let note = "the profile merges every 2 slices of 100ms into one";
        assert_eq!(firefox_note(&timeline).as_deref(), Some(note));
        let profile: Value = serde_json::from_str(&firefox(&timeline)).unwrap();
        assert_eq!(profile["meta"]["interval"], 200.0);
        assert_eq!(profile["threads"][0]["samples"]["length"], 500_001);
    }
}
