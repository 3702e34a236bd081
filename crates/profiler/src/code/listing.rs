//! The instructions around an IP, and what is branched to.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::effects::{entry, is_barrier};
use super::vote;

/// Instructions further than this from the IP are looked at for their branch targets only.
const KEEP_BYTES: u64 = 8 << 10;
/// Instructions that a straight line may have.
const MAX_LINE: usize = 128;

/// What is known about where instructions begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// The code is one whole function, from its first instruction to its end.
    Function,
    /// The code is a window around the IP that may begin and end inside an instruction, as in code made at run
    /// time.
    Unknown,
}

/// Decoded instructions in address order without gaps, as far as they are certain.
pub(super) struct Listing {
    pub(super) instructions: Vec<Instruction>,
    /// Index of the instruction at the IP; the number of instructions when none could be decoded there.
    pub(super) here: usize,
    /// Where control can enter from elsewhere, ascending.
    targets: Vec<u64>,
    /// Whether all ways into each place are known: a whole function, and no jump that computes its target.
    closed: bool,
    /// Branches to the instruction at the IP.
    branches_here: usize,
}

impl Listing {
    /// `None` when it is not certain that an instruction ends at `ip`.
    pub(super) fn around(ip: u64, code: &[u8], start: u64, boundary: Boundary) -> Option<Self> {
        start.checked_add(code.len() as u64).filter(|&end| start < ip && ip <= end)?;
        let (swept, clean) = Self::swept(ip, code, start);
        if boundary == Boundary::Function && clean && swept.here > 0 {
            return Some(swept);
        }
        // The sweep began, or data among the code put it, out of step. It falls into step again soon, so the
        // branches it saw are mostly true ones, and false ones only add doubt: they stay.
        Self::voted(ip, code, start, swept.targets)
    }

    /// Decodes one after the other from `start`. False when something before `ip` is no instruction, or none
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

    /// Takes the instructions before `ip` that nearly all ways to read the bytes agree on.
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

    /// Whether a branch leads there.
    pub(super) fn is_target(&self, ip: u64) -> bool {
        self.targets.binary_search(&ip).is_ok()
    }

    /// The index of the conditional branch that is the only way to the IP: nothing else in the function jumps there,
    /// and what lies before it (padding aside) never runs on into it.
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

    /// The instruction that begins there.
    pub(super) fn index_of(&self, ip: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&ip, Instruction::ip).ok()
    }

    /// The index of the first instruction of the straight line that leads to `end`: whoever is at `end` ran all
    /// instructions from there, in that order.
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
