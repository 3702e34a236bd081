//! Decompression of gzip and zstd.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Compression of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

impl Compression {
    /// Detects the compression by the first bytes of a file.
    pub(super) fn of_head(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // A frame, or a skippable frame before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Detects an unsupported compression by the first bytes of a file.
    pub(super) fn unsupported(head: &[u8]) -> Option<&'static str> {
        if head.starts_with(b"BZh") && head.get(4..10) == Some(b"1AY&SY") {
            return Some("bzip2");
        }
        [(&b"\xfd7zXZ\0"[..], "xz"), (b"PK\x03\x04", "zip"), (b"\x04\x22\x4d\x18", "lz4")]
            .into_iter()
            .find_map(|(magic, name)| head.starts_with(magic).then_some(name))
    }
}

/// Decompresses `input`, a file of `len` bytes.
pub(super) fn decompressed<'a>(
    input: impl BufRead + Send + 'a,
    compression: Option<Compression>,
    len: u64,
) -> Box<dyn BufRead + Send + 'a> {
    const AHEAD: usize = 1 << 20;
    match compression {
        None => Box::new(input),
        Some(Compression::Gzip) => {
            Box::new(BufReader::with_capacity(AHEAD, MultiGzDecoder::new(input)))
        }
        Some(Compression::Zstd) => {
            let mut decoder = FrameDecoder::new();
            // A frame requests the memory of its window. The levels of zstd request at most 8 MiB,
            // `--long` 128.
            decoder.set_max_window_size(len.saturating_mul(100).clamp(8 << 20, 128 << 20));
            let frames = Frames { input, decoder, inside: false };
            Box::new(BufReader::with_capacity(AHEAD, frames))
        }
    }
}

/// Sequence of zstd frames.
struct Frames<R> {
    input: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R: BufRead> Frames<R> {
    /// Enters the next frame. False at the end of the file.
    fn enter(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped =
                        io::copy(&mut (&mut self.input).take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside {
                self.inside = self.enter()?;
                if !self.inside {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.input, one).map_err(damaged)?;
            }
            let count = self.decoder.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            let stated = self.decoder.get_checksum_from_data();
            let calculated = self.decoder.get_calculated_checksum();
            if stated.is_some_and(|stated| calculated != Some(stated)) {
                return Err(damaged("checksum mismatch in a zstd frame"));
            }
            self.inside = false;
        }
    }
}

fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
