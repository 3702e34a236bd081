//! Writer of traces.

use std::io::Write;

use super::block::{Kind, MAGIC, pack, put};
use super::end::put_end;
use super::{
    ADDRESS_BITS, MAX_MAPPINGS, MAX_NAME, MAX_PIECE, TraceAccess, TraceError, TraceMapping,
    TracePiece, TraceWarning, VERSION,
};

/// Writer of a trace. A file without [`Self::finish`] reads as truncated.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    file: W,
    at: u64,
    accesses: u64,
    raw: Vec<u8>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header. Each block is one write, so `file` needs no buffer.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn new(file: W) -> Result<Self, TraceError> {
        let mut writer = Self { file, at: 0, accesses: 0, raw: Vec::new() };
        let mut header = MAGIC.to_vec();
        header.push(VERSION);
        writer.write(&header)?;
        Ok(writer)
    }

    /// Writes a piece. An address keeps its lower [`ADDRESS_BITS`]. Accesses above [`MAX_PIECE`] go
    /// into further blocks; mappings above [`MAX_MAPPINGS`] are omitted, and names are cut.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn piece(&mut self, piece: &TracePiece) -> Result<(), TraceError> {
        match piece {
            TracePiece::Accesses { thread, accesses } => {
                accesses.chunks(MAX_PIECE).try_for_each(|part| self.accesses(*thread, part))
            }
            TracePiece::Mappings(mappings) => {
                let mappings = &mappings[..mappings.len().min(MAX_MAPPINGS)];
                put(&mut self.raw, mappings.len() as u64);
                mappings.iter().for_each(|mapping| put_mapping(&mut self.raw, mapping));
                self.block(Kind::Mappings)
            }
            TracePiece::Phase(name) => {
                put_text(&mut self.raw, name);
                self.block(Kind::Phase)
            }
            TracePiece::ThreadEnd(thread) => {
                put(&mut self.raw, u64::from(*thread));
                self.block(Kind::ThreadEnd)
            }
        }
    }

    /// Ends the trace, with the accesses that its source folded and the warnings about it. Returns
    /// the file.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn finish(mut self, folded: u64, warnings: &[TraceWarning]) -> Result<W, TraceError> {
        put_end(&mut self.raw, self.accesses, folded, warnings);
        self.block(Kind::End)?;
        self.file.flush().map_err(|source| TraceError::Io { at: self.at, source })?;
        Ok(self.file)
    }

    /// Returns the bytes written.
    pub const fn bytes(&self) -> u64 {
        self.at
    }
    /// Returns the accesses written.
    pub const fn written(&self) -> u64 {
        self.accesses
    }

    fn accesses(&mut self, thread: u16, accesses: &[TraceAccess]) -> Result<(), TraceError> {
        put(&mut self.raw, u64::from(thread));
        put(&mut self.raw, accesses.len() as u64);
        let mut before = 0;
        for access in accesses {
            // Sign and store fit beside the difference.
            let address = access.address & ((1 << ADDRESS_BITS) - 1);
            let delta = address.wrapping_sub(before).cast_signed();
            before = address;
            let zigzag = (delta << 1 ^ delta >> 63).cast_unsigned();
            put(&mut self.raw, zigzag << 1 | u64::from(access.store));
        }
        self.accesses += accesses.len() as u64;
        self.block(Kind::Accesses)
    }

    fn block(&mut self, kind: Kind) -> Result<(), TraceError> {
        let block = pack(kind, &self.raw);
        self.raw.clear();
        let block = block.map_err(|source| TraceError::Io { at: self.at, source })?;
        self.write(&block)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let at = self.at;
        self.file.write_all(bytes).map_err(|source| TraceError::Io { at, source })?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn put_mapping(raw: &mut Vec<u8>, mapping: &TraceMapping) {
    put(raw, mapping.range.start.get());
    put(raw, mapping.range.end.get());
    put_text(raw, &mapping.name);
}

fn put_text(raw: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put(raw, end as u64);
    raw.extend_from_slice(&text.as_bytes()[..end]);
}
