//! Where instructions begin in bytes without a known boundary.
//!
//! Read from a wrong byte, x86 code falls into step with the true instructions after a few of them. So the code is
//! read from every byte of a stretch before the place in question, and what nearly all readings that end there
//! agree on is taken for true.

use iced_x86::{Decoder, DecoderOptions};

/// Readings begin this far before the place at most ...
const FURTHEST: usize = 192;
/// ... and this far at least, so that they had time to fall into step.
const NEAREST: usize = 24;
/// Readings that must end at the place.
const MIN_VOTES: usize = 8;
/// Of these, how many of ten must agree.
const AGREEING_TENTHS: usize = 9;
/// How far back instructions are looked for.
const REACH: usize = 1024;

/// The offset of the earliest instruction from which all up to offset `end` are agreed upon; `None` when not even
/// the one that ends at `end` is.
pub(super) fn first_agreed(code: &[u8], end: usize) -> Option<usize> {
    let base = end.saturating_sub(REACH + FURTHEST);
    let lengths = lengths(code.get(base..end)?);
    let mut first = previous(&lengths, end - base)?;
    while let Some(before) = previous(&lengths, first).filter(|_| end - base - first < REACH) {
        first = before;
    }
    Some(base + first)
}

/// For every byte, how long the instruction is that begins there; 0 for none.
fn lengths(code: &[u8]) -> Vec<usize> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut length_at = |at: usize| {
        decoder.set_position(at).ok()?;
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction.len())
    };
    (0..code.len()).map(|at| length_at(at).unwrap_or(0)).collect()
}

/// Where the instruction that ends at `end` begins, by vote.
fn previous(lengths: &[usize], end: usize) -> Option<usize> {
    let first = end.saturating_sub(FURTHEST);
    // For each byte from `first`: where the last instruction before `end` begins in the reading from that byte.
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
    // Whoever has nine of ten votes also has the one in the middle.
    votes.sort_unstable();
    let winner = *votes.get(votes.len() / 2)?;
    let agreeing = votes.iter().filter(|&&vote| vote == winner).count();
    (votes.len() >= MIN_VOTES && agreeing * 10 >= votes.len() * AGREEING_TENTHS).then_some(winner)
}
