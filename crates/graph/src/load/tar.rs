//! Members of a tar archive (POSIX.1-1988), as SuiteSparse delivers matrices.

use std::io::{self, BufRead, Read};

use super::compression::{Compression, decompressed};

/// Bytes of a header, and unit of the contents.
const BLOCK: usize = 512;
/// Bytes of headers and contents that a list of members skips at most.
const MAX_SKIPPED: u64 = 64 << 20;

/// Input of any kind.
pub(super) type Input<'a> = Box<dyn BufRead + Send + 'a>;

/// Whether text starts as an archive.
pub(super) fn is_archive(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

/// Header of a member.
struct Header {
    name: String,
    is_file: bool,
    len: u64,
    /// Length with the bytes up to the next header.
    padded: u64,
}

/// Reads the next header; `None` at the end of the archive.
fn header(input: &mut impl Read) -> io::Result<Option<Header>> {
    let mut block = [0; BLOCK];
    input.read_exact(&mut block)?;
    if block == [0; BLOCK] {
        return Ok(None);
    }
    let text = |field: &[u8]| {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).trim().to_owned()
    };
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "damaged header of a tar archive");
    let len = match block[124] & 0x80 {
        0 => u64::from_str_radix(&text(&block[124..136]), 8).map_err(|_| damaged())?,
        // Sizes from 8 GiB on are binary.
        _ => block[128..136].iter().fold(0, |len, &byte| len << 8 | u64::from(byte)),
    };
    let padded = len.checked_next_multiple_of(BLOCK as u64).ok_or_else(damaged)?;
    let (prefix, name) = (text(&block[345..500]), text(&block[..100]));
    let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
    Ok(Some(Header { name, is_file: matches!(block[156], b'0' | 0), len, padded }))
}

/// Skips bytes.
fn skip(input: &mut impl Read, len: u64) -> io::Result<()> {
    match io::copy(&mut input.take(len), &mut io::sink())? == len {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Lists the first members.
pub(super) fn names(mut input: impl BufRead) -> io::Result<Vec<String>> {
    let (mut names, mut skipped) = (Vec::new(), 0);
    while let Some(header) = header(&mut input)? {
        names.extend(Some(header.name).filter(|_| header.is_file));
        skipped += header.padded.min(MAX_SKIPPED) + BLOCK as u64;
        if skipped > MAX_SKIPPED {
            break;
        }
        skip(&mut input, header.padded)?;
    }
    Ok(names)
}

/// Returns the contents of a member, decompressed; `None` if there is no such member.
pub(super) fn member<'a>(mut input: Input<'a>, name: &str) -> io::Result<Option<Input<'a>>> {
    while let Some(header) = header(&mut input)? {
        if header.is_file && header.name == name {
            let mut contents = Contents(input.take(header.len));
            let compression = Compression::of_head(contents.fill_buf()?);
            return Ok(Some(decompressed(contents, compression, header.len)));
        }
        skip(&mut input, header.padded)?;
    }
    Ok(None)
}

/// Contents of a member. An archive that ends before them is an error.
struct Contents<'a>(io::Take<Input<'a>>);

impl BufRead for Contents<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let left = self.0.limit();
        match self.0.fill_buf()? {
            [] if left > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            ahead => Ok(ahead),
        }
    }
    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

impl Read for Contents<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut ahead = self.fill_buf()?;
        let count = ahead.read(into)?;
        self.consume(count);
        Ok(count)
    }
}
