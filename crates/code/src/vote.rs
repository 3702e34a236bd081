//! Instruction boundaries in bytes without a known boundary.
//!
//! Decoded from a wrong byte, x86 code synchronises with the true instructions after a few of them.
//! So the code is decoded from every byte of a range before the address, and instructions on which
//! nearly all decodings agree are taken as true.

use iced_x86::{Decoder, DecoderOptions};

/// Largest distance between the start of a decoding and the address.
const FURTHEST: usize = 192;
/// Smallest distance, so that decodings have time to synchronise.
const NEAREST: usize = 24;
/// Fewest decodings that must end at the address.
const MIN_VOTES: usize = 8;
/// Decodings of ten that must agree.
const AGREEING_TENTHS: usize = 9;
/// Distance over which instructions are searched.
const REACH: usize = 1024;

/// Returns the offset of the earliest instruction from which all instructions up to offset `end`
/// are agreed on; `None` if not even the one that ends at `end` is.
pub(super) fn first_agreed(code: &[u8], end: usize) -> Option<usize> {
    let base = end.saturating_sub(REACH + FURTHEST);
    let lengths = lengths(code.get(base..end)?);
    let mut first = previous(&lengths, end - base)?;
    while let Some(before) = previous(&lengths, first).filter(|_| end - base - first < REACH) {
        first = before;
    }
    Some(base + first)
}

/// Returns the length of the instruction at every byte; 0 for none.
fn lengths(code: &[u8]) -> Vec<usize> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut length_at = |at: usize| {
        decoder.set_position(at).ok()?;
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction.len())
    };
    (0..code.len()).map(|at| length_at(at).unwrap_or(0)).collect()
}

/// Returns the start of the instruction that ends at `end`, by vote.
fn previous(lengths: &[usize], end: usize) -> Option<usize> {
    let first = end.saturating_sub(FURTHEST);
    // For each byte from `first`: the start of the last instruction before `end` in the decoding
    // from that byte.
    let mut lasts: Vec<Option<usize>> = vec![None; end - first];
    for at in (first..end).rev() {
        let next = at + lengths[at];
        lasts[at - first] = match lengths[at] {
            0 => None,
            _ if next == end => Some(at),
            _ => lasts.get(next - first).copied().flatten(),
        };
    }
    let mut votes: Vec<usize> =
        lasts.iter().take((end - first).saturating_sub(NEAREST)).flatten().copied().collect();
    // A start with nine of ten votes also has the median one.
    votes.sort_unstable();
    let winner = *votes.get(votes.len() / 2)?;
    let agreeing = votes.iter().filter(|&&vote| vote == winner).count();
    (votes.len() >= MIN_VOTES && agreeing * 10 >= votes.len() * AGREEING_TENTHS).then_some(winner)
}
