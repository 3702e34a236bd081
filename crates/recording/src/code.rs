//! Stall samples by code and memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use hugepilot_units::VirtAddr;

use super::areas::{NamedRange, range_start};
use super::stack_events::StackEvents;
use crate::{CodeSlice, CodeStall, Frame};

/// Distinct stacks of a process at most.
const MAX_STACKS: usize = 100_000;
/// Frames of a stack at most: twice as many as a recorder writes.
const MAX_DEPTH: usize = 128;
/// Bytes of the texts of all distinct frames and stacks of a process at most.
const MAX_TEXT: usize = 64 << 20;
/// Samples of a stack in a slice at most, so that no sum overflows.
const MAX_SAMPLES: u64 = u32::MAX as u64;
/// Distinct instructions of the stacks of a process at most; further ones are not compared.
const MAX_INSTRUCTIONS: usize = 1_000_000;

/// Code with its callers, and the memory for which it waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Frames, the instruction's own first. Stacks share them.
    pub frames: Vec<Arc<Frame>>,
    /// Mapping of the data; `None` if unknown.
    pub mapping: Option<String>,
    /// First address of that mapping; `None` if the recording has none.
    pub mapping_start: Option<u64>,
}

/// Source line and the memory for which it waited, whatever called it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CodeRow<'a> {
    pub(crate) frame: &'a Frame,
    /// Mapping of the data; `None` if unknown.
    pub(crate) mapping: Option<&'a str>,
    /// First address of the range of the mapping; `None` if the recording has none.
    pub(crate) start: Option<u64>,
    pub(crate) samples: u64,
    /// Samples of them that streamed.
    pub(crate) streamed: u64,
    /// Address and samples of the instruction with the most; `None` if none is recorded.
    pub(crate) hottest: Option<(u64, u64)>,
}

/// Stall samples of a process by code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CodeTrack {
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Samples of each stack, and the streamed ones among them.
    pub totals: Vec<(u64, u64)>,
    /// Samples over time.
    pub events: StackEvents,
    /// Samples of stacks beyond the limits.
    pub ignored: u64,
    index: HashMap<Stack, usize>,
    /// Samples by stack and address of the instruction.
    instructions: HashMap<(usize, u64), u64>,
    frames: HashSet<Arc<Frame>>,
    /// Bytes of the texts of `frames`, and of the mappings of stacks.
    text: usize,
}

impl CodeTrack {
    pub(crate) fn add(&mut self, slice: &CodeSlice, end: f64) {
        self.events.begin(end);
        slice.stalls.iter().for_each(|stall| self.stall(stall));
    }

    fn stall(&mut self, stall: &CodeStall) {
        let samples = stall.samples.min(MAX_SAMPLES);
        let Some(index) = self.stack(stall) else {
            self.ignored += samples;
            return;
        };
        let (all, streamed) = &mut self.totals[index];
        *all += samples;
        *streamed += stall.streamed.min(samples);
        self.instruction(index, stall.ip.get(), samples);
        self.events.add(index, samples);
    }

    /// Counts the samples of an instruction. Address 0 is that of several rare ones.
    fn instruction(&mut self, stack: usize, ip: u64, samples: u64) {
        let key = (stack, ip);
        let has_room = self.instructions.len() < MAX_INSTRUCTIONS;
        if ip != 0 && (has_room || self.instructions.contains_key(&key)) {
            *self.instructions.entry(key).or_default() += samples;
        }
    }

    /// The index of a stack; `None` if there are too many.
    fn stack(&mut self, stall: &CodeStall) -> Option<usize> {
        let frames = std::iter::once(&stall.frame).chain(&stall.callers).take(MAX_DEPTH);
        let frames = frames.map(|frame| self.shared(frame)).collect::<Option<_>>()?;
        let mapping_start = stall.mapping_start.map(VirtAddr::get);
        let stack = Stack { frames, mapping: stall.mapping.clone(), mapping_start };
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

    /// Source lines and the memory for which they waited; the most samples first. A mapping that
    /// grew is one range of `ranges`.
    pub(crate) fn by_line(&self, ranges: &[NamedRange]) -> Vec<CodeRow<'_>> {
        let mut index: HashMap<(&Frame, Option<&str>, Option<u64>), usize> = HashMap::new();
        let (mut rows, mut row_of) = (Vec::new(), Vec::with_capacity(self.stacks.len()));
        for (stack, &(samples, streamed)) in self.stacks.iter().zip(&self.totals) {
            // A stack has at least the frame of its instruction.
            let (frame, mapping) = (&*stack.frames[0], stack.mapping.as_deref());
            let start = stack
                .mapping_start
                .map(|start| range_start(ranges, mapping.unwrap_or_default(), start));
            let at = *index.entry((frame, mapping, start)).or_insert(rows.len());
            if at == rows.len() {
                let hottest = None;
                rows.push(CodeRow { frame, mapping, start, samples: 0, streamed: 0, hottest });
            }
            rows[at].samples += samples;
            rows[at].streamed += streamed;
            row_of.push(at);
        }
        let mut sums: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        for (&(stack, ip), samples) in &self.instructions {
            *sums.entry((row_of[stack], ip)).or_default() += samples;
        }
        for ((at, ip), samples) in sums {
            if rows[at].hottest.is_none_or(|(_, most)| samples > most) {
                rows[at].hottest = Some((ip, samples));
            }
        }
        rows.sort_by(|a, b| {
            let key = |row: &CodeRow<'_>| (row.samples, row.streamed);
            key(b)
                .cmp(&key(a))
                .then_with(|| (a.frame, a.mapping, a.start).cmp(&(b.frame, b.mapping, b.start)))
        });
        rows
    }
}

/// Name of a frame: its function, or the file that it is in.
pub(crate) fn frame_name(frame: &Frame) -> String {
    match (&frame.function, &frame.object, frame.mapping_start) {
        (Some(function), ..) => function.clone(),
        (None, Some(object), _) => format!("[{}]", base_name(object)),
        (None, None, Some(start)) => format!("[code at {:#x}]", start.get()),
        (None, None, None) => "[unknown code]".to_owned(),
    }
}

/// Last part of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_units::Nanos;

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
            mapping_start: None,
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
    fn a_line_has_its_hottest_instruction_whatever_called_it() {
        let mut code = CodeTrack::default();
        let mut one = slice(&[("leaf", &["a"], 3), ("leaf", &["b"], 3), ("leaf", &[], 5)]);
        for (stall, ip) in one.stalls.iter_mut().zip([0x10, 0x10, 0x20]) {
            stall.ip = VirtAddr::new(ip);
        }
        code.add(&one, 1.0);
        // Rare instructions lose their address.
        let mut rare = slice(&[("leaf", &[], 90), ("other", &[], 1)]);
        rare.stalls.iter_mut().for_each(|stall| stall.ip = VirtAddr::new(0));
        code.add(&rare, 2.0);
        let rows = code.by_line(&[]);
        let found: Vec<_> = rows.iter().map(|row| (row.samples, row.hottest)).collect();
        assert_eq!(found, [(101, Some((0x10, 6))), (1, None)]);
    }

    #[test]
    fn mappings_of_one_name_are_apart_and_one_that_grew_is_not() {
        let mut code = CodeTrack::default();
        let mut all = slice(&[("f", &[], 1), ("f", &[], 2), ("f", &[], 4), ("f", &[], 8)]);
        for (stall, start) in all.stalls.iter_mut().zip([0x3000, 0x2000, 0x9000, 0]) {
            stall.mapping = Some("[anon]".to_owned());
            stall.mapping_start = (start > 0).then(|| VirtAddr::new(start));
        }
        code.add(&all, 1.0);
        let name = "[anon]".to_owned();
        let grown = NamedRange { start: 0x2000, end: 0x5000, name };
        let rows = code.by_line(&[grown]);
        let found: Vec<_> = rows.iter().map(|row| (row.samples, row.start)).collect();
        assert_eq!(found, [(8, None), (4, Some(0x9000)), (3, Some(0x2000))]);
    }

    #[test]
    fn generated_code_has_the_address_of_its_mapping() {
        let at = |start: u64| Some(VirtAddr::new(start)).filter(|_| start > 0);
        let frame = |start| Frame { mapping_start: at(start), ..Frame::default() };
        assert_eq!(frame_name(&frame(0x7f00)), "[code at 0x7f00]");
        assert_eq!(frame_name(&frame(0)), "[unknown code]");
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
