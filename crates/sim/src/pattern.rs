//! Patterns: accesses without a program, whose reuse is known.

use std::fmt;
use std::str::FromStr;

use hugepilot_units::Bytes;
use serde::Serialize;

/// First address of a pattern's memory.
pub const PATTERN_START: u64 = 1 << 40;
/// Bytes of a base page.
const PAGE: u64 = 4096;
const LINE: u64 = 64;

/// Rule by which a pattern accesses its memory. All but [`PatternKind::Stream`] begin with a store
/// to each page, so that all memory is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PatternKind {
    /// A random cache line each time.
    Random,
    /// The first line of each page in turn, again and again.
    Cyclic,
    /// Each eight bytes in turn, again and again.
    Stream,
    /// A random line each time, of the first eighth of the memory in seven of eight.
    Skewed,
    /// An element of four bytes in turn, then a random line: the edges and the property array of
    /// a graph.
    Gather,
}

impl PatternKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Random, Self::Cyclic, Self::Stream, Self::Skewed, Self::Gather];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Cyclic => "cyclic",
            Self::Stream => "stream",
            Self::Skewed => "skewed",
            Self::Gather => "gather",
        }
    }
}

/// Accesses by a rule to a memory of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pattern {
    /// Rule.
    pub kind: PatternKind,
    /// Size of the memory, at least a base page.
    pub bytes: Bytes,
}

impl Pattern {
    /// Returns the accesses, without an end: addresses, and whether they are stores. A seed gives
    /// the same ones each time.
    pub fn accesses(self, seed: u64) -> impl Iterator<Item = (u64, bool)> {
        let bytes = self.bytes.get().max(PAGE);
        let fill = if self.kind == PatternKind::Stream { 0..0 } else { 0..bytes / PAGE };
        // A state of 0 would stay 0.
        let mut rng = Rng(seed | 1);
        let mut turn = 0;
        let body = std::iter::from_fn(move || {
            let offset = self.offset(turn, bytes, &mut rng);
            turn += 1;
            Some((PATTERN_START + offset, false))
        });
        fill.map(|page| (PATTERN_START + page * PAGE, true)).chain(body)
    }

    #[inline]
    fn offset(self, turn: u64, bytes: u64, rng: &mut Rng) -> u64 {
        let half = (bytes / 2).max(LINE);
        match self.kind {
            PatternKind::Random => rng.below(bytes / LINE) * LINE,
            PatternKind::Cyclic => turn % (bytes / PAGE) * PAGE,
            PatternKind::Stream => turn % (bytes / 8) * 8,
            PatternKind::Skewed if rng.below(8) < 7 => rng.below((bytes / 8 / LINE).max(1)) * LINE,
            PatternKind::Skewed => rng.below(bytes / LINE) * LINE,
            PatternKind::Gather if turn.is_multiple_of(2) => half + turn / 2 % (half / 4) * 4,
            PatternKind::Gather => rng.below(half / LINE) * LINE,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.bytes)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let names = PatternKind::ALL.map(PatternKind::name).join(", ");
            format!("{text:?} is not KIND:SIZE, such as random:1GiB; kinds: {names}")
        };
        let (kind, size) = text.split_once(':').ok_or_else(wrong)?;
        let found = PatternKind::ALL.into_iter().find(|one| one.name() == kind);
        let kind = found.ok_or_else(wrong)?;
        let size: Bytes = size.parse().map_err(|error| format!("{text:?}: {error}"))?;
        if !(PAGE..=1 << 40).contains(&size.get()) {
            return Err(format!("{text:?}: the size must be 4KiB to 1TiB"));
        }
        Ok(Self { kind, bytes: Bytes::new(size.get() / PAGE * PAGE) })
    }
}

/// Generator of random numbers (xorshift64*, Vigna 2016).
struct Rng(u64);

impl Rng {
    /// Returns a number below `limit`.
    #[inline]
    fn below(&mut self, limit: u64) -> u64 {
        let mut bits = self.0;
        bits ^= bits >> 12;
        bits ^= bits << 25;
        bits ^= bits >> 27;
        self.0 = bits;
        let drawn = bits.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(drawn) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_pattern_is_a_kind_and_a_size() {
        for name in PatternKind::ALL.map(PatternKind::name) {
            let pattern: Pattern = format!("{name}:64MiB").parse().unwrap();
            assert_eq!(pattern.to_string(), format!("{name}:64MiB"));
        }
        for wrong in ["", "random", "random:", "random:0", "random:2TiB", "walk:1GiB", "random:x"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn accesses_stay_in_the_memory_and_use_all_of_it() {
        for name in PatternKind::ALL.map(PatternKind::name) {
            let pattern: Pattern = format!("{name}:1MiB").parse().unwrap();
            let taken: Vec<(u64, bool)> = pattern.accesses(1).take(300_000).collect();
            let memory = PATTERN_START..PATTERN_START + (1 << 20);
            assert!(taken.iter().all(|(address, _)| memory.contains(address)), "{name}");
            let pages: BTreeSet<u64> = taken.iter().map(|(address, _)| address / PAGE).collect();
            assert_eq!(pages.len(), 256, "{name}");
            assert!(pattern.accesses(1).take(1000).eq(taken.into_iter().take(1000)));
        }
    }

    #[test]
    fn random_lines_are_uniform() {
        let mut counts = [0_u32; 16];
        let pattern: Pattern = "random:64KiB".parse().unwrap();
        for (address, _) in pattern.accesses(5).skip(16).take(160_000) {
            counts[((address - PATTERN_START) / PAGE) as usize] += 1;
        }
        // Five standard deviations of 10,000.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }
}
