//! Instructions around an IP, and branch targets among them.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::effects::{entry, is_barrier};
use super::vote;

/// Instructions further than this from the IP are decoded only for their branch targets.
const KEEP_BYTES: u64 = 8 << 10;
/// Limit of instructions in a straight line.
const MAX_LINE: usize = 128;

/// Knowledge of instruction boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// The code is one whole function, from its first instruction to its end.
    Function,
    /// The code is a window around the IP that may start and end inside an instruction, as in
    /// run-time code.
    Unknown,
}

/// Decoded instructions in address order without gaps, as far as they are certain.
pub(super) struct Listing {
    pub(super) instructions: Vec<Instruction>,
    /// Index of the instruction at the IP; the number of instructions if none could be decoded
    /// there.
    pub(super) here: usize,
    /// Addresses that control can enter from elsewhere, ascending.
    targets: Vec<u64>,
    /// Whether all entries are known: a whole function, without computed jumps.
    closed: bool,
    /// Branches to the instruction at the IP.
    branches_here: usize,
}

impl Listing {
    /// Decodes the code; `None` if it is not certain that an instruction ends at `ip`.
    pub(super) fn around(ip: u64, code: &[u8], start: u64, boundary: Boundary) -> Option<Self> {
        start.checked_add(code.len() as u64).filter(|&end| start < ip && ip <= end)?;
        let (swept, clean) = Self::swept(ip, code, start);
        if boundary == Boundary::Function && clean && swept.here > 0 {
            return Some(swept);
        }
        // The sweep started at a wrong byte, or data among the code desynchronised it. It
        // resynchronises soon, so most of its branches are correct. Wrong ones only add doubt, so
        // all stay.
        Self::voted(ip, code, start, swept.targets)
    }

    /// Decodes from `start` on. Returns false if bytes before `ip` are not an instruction, or none
    /// ends there.
    fn swept(ip: u64, code: &[u8], start: u64) -> (Self, bool) {
        let (mut instructions, mut targets) = (Vec::new(), Vec::new());
        let (mut clean, mut closed, mut branches_here, mut here) = (true, true, 0, None);
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            clean &= !instruction.is_invalid() || instruction.ip() >= ip;
            closed &= instruction.flow_control() != FlowControl::IndirectBranch;
            branches_here += usize::from(entry(&instruction) == Some(ip));
            targets.extend(entry(&instruction));
            if instruction.ip() == ip {
                here = Some(instructions.len());
            }
            if instruction.ip().abs_diff(ip) <= KEEP_BYTES {
                instructions.push(instruction);
            }
        }
        let ends_here = instructions.last().is_some_and(|last: &Instruction| last.next_ip() == ip);
        let here = here.or(ends_here.then_some(instructions.len()));
        targets.sort_unstable();
        targets.dedup();
        let listing =
            Self { instructions, here: here.unwrap_or(0), targets, closed, branches_here };
        (listing, clean && here.is_some())
    }

    /// Uses the instructions before `ip` on which nearly all decodings agree.
    fn voted(ip: u64, code: &[u8], start: u64, mut targets: Vec<u64>) -> Option<Self> {
        let at = usize::try_from(ip - start).ok()?;
        let first = vote::first_agreed(code, at)?;
        let mut instructions = Vec::new();
        let mut decoder =
            Decoder::with_ip(64, &code[first..], start + first as u64, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() || instruction.ip().abs_diff(ip) > KEEP_BYTES {
                break;
            }
            instructions.push(instruction);
        }
        let here = instructions.iter().position(|instruction| instruction.next_ip() == ip)? + 1;
        targets.extend(instructions.iter().filter_map(entry));
        targets.sort_unstable();
        targets.dedup();
        Some(Self { instructions, here, targets, closed: false, branches_here: 0 })
    }

    /// Whether a branch leads to `ip`.
    pub(super) fn is_target(&self, ip: u64) -> bool {
        self.targets.binary_search(&ip).is_ok()
    }

    /// Returns the index of the conditional branch that is the only way to the IP: no other jump of
    /// the function leads there, and the code before it (except padding) does not continue there.
    pub(super) fn only_branch_here(&self) -> Option<usize> {
        let ip = self.instructions.get(self.here)?.ip();
        let before = self.instructions[..self.here].iter().rev();
        let last = before
            .take_while(|instruction| !self.is_target(instruction.ip()))
            .find(|instruction| instruction.mnemonic() != Mnemonic::Nop)?;
        if !self.closed
            || self.branches_here != 1
            || !is_barrier(last)
            || last.flow_control() == FlowControl::Call
        {
            return None;
        }
        self.instructions.iter().position(|instruction| {
            instruction.flow_control() == FlowControl::ConditionalBranch
                && entry(instruction) == Some(ip)
        })
    }

    /// Returns the index of the instruction at `ip`.
    pub(super) fn index_of(&self, ip: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&ip, Instruction::ip).ok()
    }

    /// Returns the index of the first instruction of the straight line to `end`: execution at `end`
    /// implies that all instructions from there ran, in order.
    pub(super) fn line_start(&self, end: usize) -> usize {
        let mut first = end;
        while first > 0 && end - first < MAX_LINE {
            let entered_here = first < end && self.is_target(self.instructions[first].ip());
            if entered_here || is_barrier(&self.instructions[first - 1]) {
                break;
            }
            first -= 1;
        }
        first
    }
}
