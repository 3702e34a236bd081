//! Blocks: kind, lengths, checksum, compressed bytes; and the numbers in them.

use std::io::Read as _;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::TraceError;

pub(super) const MAGIC: &[u8; 7] = b"HPTRACE";
/// Bytes before the stored bytes of a block.
pub(super) const HEAD: usize = 13;
/// Most bytes of a block before compression: [`super::MAX_PIECE`] accesses of 10 bytes.
pub(super) const MAX_RAW: usize = 12 << 20;
/// Most stored bytes: deflate adds little to bytes that it cannot compress.
const MAX_STORED: usize = MAX_RAW + (1 << 16);

/// Kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Accesses = b'A' as isize,
    Mappings = b'M' as isize,
    Phase = b'P' as isize,
    ThreadEnd = b'T' as isize,
    /// End of the file, with the number of its accesses and its warnings.
    End = b'E' as isize,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Accesses, Self::Mappings, Self::Phase, Self::ThreadEnd, Self::End]
            .into_iter()
            .find(|&kind| kind as isize == isize::from(byte))
    }
}

/// Head of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) stored: usize,
    raw: usize,
    checksum: u32,
}

impl Head {
    /// Parses a head, and refuses lengths that no writer makes.
    pub(super) fn parse(bytes: [u8; HEAD]) -> Result<Self, String> {
        let word = |at: usize| {
            bytes[at..at + 4].iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
        };
        let kind = Kind::of(bytes[0]).ok_or_else(|| format!("unknown kind {}", bytes[0]))?;
        let (stored, raw) = (word(1) as usize, word(5) as usize);
        if stored > MAX_STORED || raw > MAX_RAW {
            return Err(format!("{} bytes; at most {MAX_RAW}", stored.max(raw)));
        }
        Ok(Self { kind, stored, raw, checksum: word(9) })
    }

    /// Returns the bytes of the block before compression.
    pub(super) fn unpack(&self, stored: &[u8]) -> Result<Vec<u8>, String> {
        let checksum = crc32c::crc32c(stored);
        if checksum != self.checksum {
            return Err(format!("checksum {checksum:08x} instead of {:08x}", self.checksum));
        }
        let mut raw = Vec::with_capacity(self.raw);
        let mut limited = DeflateDecoder::new(stored).take(self.raw as u64 + 1);
        limited.read_to_end(&mut raw).map_err(|error| error.to_string())?;
        if raw.len() != self.raw {
            return Err(format!("its data is not {} bytes long", self.raw));
        }
        Ok(raw)
    }
}

/// Returns a block with `raw` in it.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn pack(kind: Kind, raw: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Write as _;
    let mut encoder = DeflateEncoder::new(vec![0; HEAD], Compression::fast());
    encoder.write_all(raw)?;
    let mut block = encoder.finish()?;
    let (stored, checksum) = (block.len() - HEAD, crc32c::crc32c(&block[HEAD..]));
    block[0] = kind as isize as u8;
    for (at, word) in [(1, stored as u32), (5, raw.len() as u32), (9, checksum)] {
        block[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    Ok(block)
}

/// Appends a number.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn put(raw: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        raw.push(number as u8 | 128);
        number >>= 7;
    }
    raw.push(number as u8);
}

/// Bytes of a block that are not read yet.
pub(super) struct Rest<'a> {
    bytes: &'a [u8],
}

impl<'a> Rest<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Takes a number of at most `limit`.
    pub(super) fn number(&mut self, what: &str, limit: u64) -> Result<u64, String> {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let Some((&byte, rest)) = self.bytes.split_first() else {
                return Err(format!("it ends within {what}"));
            };
            self.bytes = rest;
            let bits = u64::from(byte & 127);
            if shift > 63 || bits << shift >> shift != bits {
                return Err(format!("{what} has more than 64 bits"));
            }
            number |= bits << shift;
            shift += 7;
            if byte < 128 {
                break;
            }
        }
        if number > limit {
            return Err(format!("{what} is {number}; at most {limit}"));
        }
        Ok(number)
    }

    /// Takes text of at most `limit` bytes. Other bytes than UTF-8 are replaced.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn text(&mut self, what: &str, limit: usize) -> Result<String, String> {
        let length = self.number(what, limit as u64)? as usize;
        if length > self.bytes.len() {
            return Err(format!("it ends within {what}"));
        }
        let (text, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<(), String> {
        if self.bytes.is_empty() { Ok(()) } else { Err("bytes behind its data".to_owned()) }
    }
}

/// Makes the error of the block at `at`.
pub(super) fn damaged(at: u64) -> impl Fn(String) -> TraceError {
    move |problem| TraceError::Block { at, problem }
}
