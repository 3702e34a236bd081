//! Reader of traces.

use std::io::{ErrorKind, Read};

use hugepilot_units::{AddrRange, VirtAddr};

use super::block::{HEAD, Head, Kind, MAGIC, Rest, damaged};
use super::end;
use super::{
    ADDRESS_BITS, MAX_MAPPINGS, MAX_NAME, MAX_PIECE, TraceAccess, TraceError, TraceMapping,
    TracePiece, TraceWarning, VERSION,
};

/// Reader of a trace.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    file: R,
    version: u8,
    at: u64,
    accesses: u64,
    is_complete: bool,
    warnings: Vec<TraceWarning>,
    folded: u64,
}

impl<R: Read> TraceReader<R> {
    /// Reads the header. A block takes three reads, so a file deserves a buffer.
    ///
    /// # Errors
    ///
    /// [`TraceError::Header`] if `file` is not a trace, or of a later version;
    /// [`TraceError::Io`].
    pub fn new(mut file: R) -> Result<Self, TraceError> {
        let mut header = [0; MAGIC.len() + 1];
        match file.read_exact(&mut header) {
            Ok(()) if header.starts_with(MAGIC) => {}
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                return Err(TraceError::Io { at: 0, source: error });
            }
            _ => return Err(TraceError::Header("not a trace of hugepilot".to_owned())),
        }
        let version = header[MAGIC.len()];
        if !(1..=VERSION).contains(&version) {
            let problem = format!("version {version}; this hugepilot reads up to {VERSION}");
            return Err(TraceError::Header(problem));
        }
        let (at, warnings) = (header.len() as u64, Vec::new());
        Ok(Self { file, version, at, accesses: 0, is_complete: false, warnings, folded: 0 })
    }

    /// Reads the next piece; `None` at the end of the trace, or where the file was cut.
    ///
    /// # Errors
    ///
    /// [`TraceError::Block`] if the file is damaged; [`TraceError::Io`]. The pieces before are
    /// valid.
    pub fn piece(&mut self) -> Result<Option<TracePiece>, TraceError> {
        if self.is_complete {
            return Ok(None);
        }
        let Some(head) = self.read(HEAD)? else { return Ok(None) };
        let damage = damaged(self.at);
        let mut bytes = [0; HEAD];
        bytes.copy_from_slice(&head);
        let head = Head::parse(bytes).map_err(&damage)?;
        let Some(stored) = self.read(head.stored)? else { return Ok(None) };
        let raw = head.unpack(&stored).map_err(&damage)?;
        let piece = self.parse(head.kind, &raw).map_err(&damage)?;
        self.at += (HEAD + head.stored) as u64;
        if self.is_complete && self.read(1)?.is_some() {
            return Err(damaged(self.at)("bytes behind the end of the trace".to_owned()));
        }
        Ok(piece)
    }

    /// Whether the end of the trace was read. If not, the file was cut.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }
    /// Returns what the writer stated about the trace; known at its end, and since version 3.
    pub fn warnings(&self) -> &[TraceWarning] {
        &self.warnings
    }
    /// Returns the accesses that the source of the trace folded; known at its end, and since
    /// version 4, otherwise 0.
    pub const fn folded(&self) -> u64 {
        self.folded
    }
    /// Returns the bytes read, of complete blocks.
    pub const fn bytes(&self) -> u64 {
        self.at
    }
    /// Returns the accesses read.
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Reads `count` bytes; `None` if the file has fewer.
    fn read(&mut self, count: usize) -> Result<Option<Vec<u8>>, TraceError> {
        // The vector grows as bytes arrive, so that a length in a damaged file takes no memory.
        let mut bytes = Vec::new();
        let read = self.file.by_ref().take(count as u64).read_to_end(&mut bytes);
        read.map_err(|source| TraceError::Io { at: self.at, source })?;
        Ok((bytes.len() == count).then_some(bytes))
    }

    fn parse(&mut self, kind: Kind, raw: &[u8]) -> Result<Option<TracePiece>, String> {
        let mut rest = Rest::new(raw);
        let piece = match kind {
            Kind::Accesses => Some(accesses(&mut rest)?),
            Kind::ThreadEnd => Some(TracePiece::ThreadEnd(thread(&mut rest)?)),
            Kind::Mappings => Some(mappings(&mut rest)?),
            Kind::Phase => Some(TracePiece::Phase(rest.text("the name", MAX_NAME)?)),
            Kind::End => {
                let written = rest.number("the number of accesses", u64::MAX)?;
                if written != self.accesses {
                    return Err(format!("{written} accesses written, {} read", self.accesses));
                }
                if self.version >= 3 {
                    self.warnings = end::warnings(&mut rest)?;
                }
                if self.version >= 4 {
                    self.folded = rest.number("the number of folded accesses", u64::MAX)?;
                }
                self.is_complete = true;
                None
            }
        };
        if let Some(TracePiece::Accesses { accesses, .. }) = &piece {
            self.accesses += accesses.len() as u64;
        }
        rest.end()?;
        Ok(piece)
    }
}

#[allow(clippy::cast_possible_truncation)]
fn thread(rest: &mut Rest<'_>) -> Result<u16, String> {
    Ok(rest.number("the thread", u64::from(u16::MAX))? as u16)
}

#[allow(clippy::cast_possible_truncation)]
fn accesses(rest: &mut Rest<'_>) -> Result<TracePiece, String> {
    let thread = thread(rest)?;
    let count = rest.number("the number of accesses", MAX_PIECE as u64)? as usize;
    let (mut accesses, mut address) = (Vec::new(), 0u64);
    for _ in 0..count {
        let number = rest.number("an address", u64::MAX)?;
        let zigzag = number >> 1;
        let delta = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
        address = address.wrapping_add_signed(delta);
        if address >> ADDRESS_BITS != 0 {
            return Err(format!("an address is {address:#x}; at most {ADDRESS_BITS} bits"));
        }
        accesses.push(TraceAccess { address, store: number & 1 == 1 });
    }
    Ok(TracePiece::Accesses { thread, accesses })
}

fn mappings(rest: &mut Rest<'_>) -> Result<TracePiece, String> {
    let count = rest.number("the number of mappings", MAX_MAPPINGS as u64)?;
    let mut mappings = Vec::new();
    for _ in 0..count {
        let start = rest.number("an address", u64::MAX)?;
        let end = rest.number("an address", u64::MAX)?;
        if start > end {
            return Err(format!("a mapping from {start:#x} to {end:#x}"));
        }
        let range = AddrRange { start: VirtAddr::new(start), end: VirtAddr::new(end) };
        mappings.push(TraceMapping { range, name: rest.text("a name", MAX_NAME)? });
    }
    Ok(TracePiece::Mappings(mappings))
}
