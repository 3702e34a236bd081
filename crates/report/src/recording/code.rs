//! Stall samples by code and memory.

use std::collections::HashMap;

use hugepilot_record::recording::{CodeSlice, CodeStall, Frame};

/// Distinct stacks of a process at most.
const MAX_STACKS: usize = 100_000;
/// Events of a process at most.
const MAX_EVENTS: usize = 1_000_000;

/// Code with its callers, and the memory for which it waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Frames, the instruction's own first.
    pub frames: Vec<Frame>,
    /// Mapping of the data; `None` if unknown.
    pub mapping: Option<String>,
}

/// Samples of a stack in a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StackEvent {
    /// End of the slice, in seconds since the start of the recording.
    pub end: f64,
    /// Index of the stack.
    pub stack: usize,
    /// Samples.
    pub samples: u64,
}

/// Stall samples of a process by code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CodeTrack {
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Samples of each stack, and the streamed ones among them.
    pub totals: Vec<(u64, u64)>,
    /// Samples over time.
    pub events: Vec<StackEvent>,
    /// Samples of stacks or events beyond the limits.
    pub ignored: u64,
    index: HashMap<Stack, usize>,
}

impl CodeTrack {
    pub(crate) fn add(&mut self, slice: &CodeSlice, end: f64) {
        for stall in &slice.stalls {
            self.stall(stall, end);
        }
    }

    fn stall(&mut self, stall: &CodeStall, end: f64) {
        let mut frames = vec![stall.frame.clone()];
        frames.extend(stall.callers.iter().cloned());
        let stack = Stack { frames, mapping: stall.mapping.clone() };
        let known = self.index.get(&stack).copied();
        let index = match known {
            Some(index) => index,
            None if self.stacks.len() < MAX_STACKS => {
                self.index.insert(stack.clone(), self.stacks.len());
                self.stacks.push(stack);
                self.totals.push((0, 0));
                self.stacks.len() - 1
            }
            None => {
                self.ignored = self.ignored.saturating_add(stall.samples);
                return;
            }
        };
        let (samples, streamed) = &mut self.totals[index];
        *samples = samples.saturating_add(stall.samples);
        *streamed = streamed.saturating_add(stall.streamed);
        if self.events.len() < MAX_EVENTS {
            self.events.push(StackEvent { end, stack: index, samples: stall.samples });
        } else {
            self.ignored = self.ignored.saturating_add(stall.samples);
        }
    }

    /// All samples.
    pub fn samples(&self) -> u64 {
        self.totals.iter().map(|(samples, _)| samples).sum()
    }

    /// Whether any stack has callers.
    pub fn has_callers(&self) -> bool {
        self.stacks.iter().any(|stack| stack.frames.len() > 1)
    }
}

/// Name of a frame: its function, or the file that it is in.
pub(crate) fn frame_name(frame: &Frame) -> String {
    match (&frame.function, &frame.object) {
        (Some(function), _) => function.clone(),
        (None, Some(object)) => format!("[{}]", base_name(object)),
        (None, None) => "[unknown code]".to_owned(),
    }
}

/// Last part of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}
