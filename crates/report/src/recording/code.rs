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

    /// Samples of stacks with callers.
    pub fn samples_with_callers(&self) -> u64 {
        let stacks = self.stacks.iter().zip(&self.totals);
        stacks.filter(|(stack, _)| stack.frames.len() > 1).map(|(_, (samples, _))| samples).sum()
    }

    /// Instructions and the memory for which they waited, with all samples and the streamed ones,
    /// whatever called them; the most samples first.
    pub fn by_instruction(&self) -> Vec<(&Frame, Option<&str>, (u64, u64))> {
        let mut sums: HashMap<(&Frame, Option<&str>), (u64, u64)> = HashMap::new();
        for (stack, (samples, streamed)) in self.stacks.iter().zip(&self.totals) {
            let Some(frame) = stack.frames.first() else { continue };
            let sum = sums.entry((frame, stack.mapping.as_deref())).or_default();
            sum.0 = sum.0.saturating_add(*samples);
            sum.1 = sum.1.saturating_add(*streamed);
        }
        let mut all: Vec<_> =
            sums.into_iter().map(|((frame, mapping), sum)| (frame, mapping, sum)).collect();
        all.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (a.0, a.1).cmp(&(b.0, b.1))));
        all
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
