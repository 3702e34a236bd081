//! Stall samples by code and memory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hugepilot_record::recording::{CodeSlice, CodeStall, Frame};

/// Distinct stacks of a process at most.
const MAX_STACKS: usize = 100_000;
/// Frames of a stack at most: twice as many as a recorder writes.
const MAX_DEPTH: usize = 128;
/// Bytes of the texts of all distinct frames and stacks of a process at most.
const MAX_TEXT: usize = 64 << 20;
/// Samples of a stack in a slice at most, so that no sum overflows.
const MAX_SAMPLES: u64 = u32::MAX as u64;
/// Events of a process at most.
const MAX_EVENTS: usize = 1_000_000;

/// Code with its callers, and the memory for which it waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Frames, the instruction's own first. Stacks share them.
    pub frames: Vec<Arc<Frame>>,
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
    frames: HashSet<Arc<Frame>>,
    /// Bytes of the texts of `frames`, and of the mappings of stacks.
    text: usize,
}

impl CodeTrack {
    pub(crate) fn add(&mut self, slice: &CodeSlice, end: f64) {
        for stall in &slice.stalls {
            self.stall(stall, end);
        }
    }

    fn stall(&mut self, stall: &CodeStall, end: f64) {
        let samples = stall.samples.min(MAX_SAMPLES);
        let Some(index) = self.stack(stall) else {
            self.ignored += samples;
            return;
        };
        let (all, streamed) = &mut self.totals[index];
        *all += samples;
        *streamed += stall.streamed.min(samples);
        if self.events.len() < MAX_EVENTS {
            self.events.push(StackEvent { end, stack: index, samples });
        } else {
            self.ignored += samples;
        }
    }

    /// The index of a stack; `None` if there are too many.
    fn stack(&mut self, stall: &CodeStall) -> Option<usize> {
        let frames = std::iter::once(&stall.frame).chain(&stall.callers).take(MAX_DEPTH);
        let frames = frames.map(|frame| self.shared(frame)).collect::<Option<_>>()?;
        let stack = Stack { frames, mapping: stall.mapping.clone() };
        if let Some(&known) = self.index.get(&stack) {
            return Some(known);
        }
        let (index, text) = (self.stacks.len(), stack.mapping.as_ref().map_or(0, String::len));
        (index < MAX_STACKS && text <= MAX_TEXT - self.text).then(|| {
            self.text += text;
            self.index.insert(stack.clone(), index);
            self.stacks.push(stack);
            self.totals.push((0, 0));
            index
        })
    }

    /// The frame that all stacks share; `None` if their texts are too long.
    fn shared(&mut self, frame: &Frame) -> Option<Arc<Frame>> {
        if let Some(known) = self.frames.get(frame) {
            return Some(known.clone());
        }
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let source = frame.source.as_ref().map_or(0, |(file, _)| file.len());
        let text = length(&frame.function) + length(&frame.object) + source + size_of::<Frame>();
        if text > MAX_TEXT - self.text {
            return None;
        }
        self.text += text;
        let shared = Arc::new(frame.clone());
        self.frames.insert(shared.clone());
        Some(shared)
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
            let sum = sums.entry((&**frame, stack.mapping.as_deref())).or_default();
            sum.0 += samples;
            sum.1 += streamed;
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

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_units::{Nanos, VirtAddr};

    use super::*;

    fn frame(name: &str) -> Frame {
        Frame { function: Some(name.to_owned()), ..Frame::default() }
    }

    fn slice(stalls: &[(&str, &[&str], u64)]) -> CodeSlice {
        let stall = |&(name, callers, samples): &(&str, &[&str], u64)| CodeStall {
            ip: VirtAddr::new(1),
            frame: frame(name),
            callers: callers.iter().map(|name| frame(name)).collect(),
            mapping: None,
            samples,
            streamed: u64::MAX,
        };
        CodeSlice { time: Nanos::ZERO, pid: Pid(1), stalls: stalls.iter().map(stall).collect() }
    }

    #[test]
    fn stacks_share_their_frames() {
        let mut code = CodeTrack::default();
        code.add(&slice(&[("leaf", &["main"], 1), ("other", &["main"], 2)]), 1.0);
        code.add(&slice(&[("leaf", &["main"], 3)]), 2.0);
        assert_eq!(code.totals, [(4, 4), (2, 2)]);
        let [leaf, other] = &code.stacks[..] else { panic!("{:?}", code.stacks) };
        assert!(Arc::ptr_eq(&leaf.frames[1], &other.frames[1]));
        assert_eq!(code.samples_with_callers(), 6);
    }

    #[test]
    fn hostile_stacks_are_bounded() {
        let mut code = CodeTrack::default();
        let deep = vec!["f"; 10 * MAX_DEPTH];
        code.add(&slice(&[("leaf", &deep, u64::MAX), ("leaf", &[], u64::MAX)]), 1.0);
        assert_eq!(code.stacks[0].frames.len(), MAX_DEPTH);
        assert_eq!(code.samples(), 2 * MAX_SAMPLES);
        let long = "x".repeat(MAX_TEXT / 2);
        code.add(&slice(&[(&long, &[], 7), (&long[1..], &[], 7), ("leaf", &[], 1)]), 2.0);
        assert_eq!((code.stacks.len(), code.ignored), (3, 7));
    }
}
