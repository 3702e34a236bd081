//! Shared memory in which the plugin for QEMU publishes accesses. `plugin.c` has the same layout.
//!
//! ```text
//! control   a page: whether the plugin is installed, the next sequence number, counts
//! headers   of each chunk: state, thread, sequence number, count
//! chunks    [`LANES`] rings of [`DEPTH`] chunks of [`CAPACITY`] accesses
//! ```
//!
//! A change of the mappings is the end of a chunk: [`CHANGE`] with its kind, then [`NUMBERS`]
//! numbers. Its thread waits until the chunk is free.
//!
//! A chunk is handed over by its state, which its writer stores last: the plugin sets [`FULL`]
//! after the accesses, this side sets [`FREE`] after it has read them. The plugin maps the memory;
//! this side reads and writes the same pages as a file, so it needs no unsafe code. A state has one
//! byte that is not zero, so no partial write of it is a third state.
//!
//! The traced program can write to all its memory, this one included. So each number is checked.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use hugepilot_record::trace::TraceAccess;
use hugepilot_sim::MappingChange;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

/// Most threads at a time.
const LANES: usize = 1024;
/// Chunks of a thread.
const DEPTH: usize = 8;
/// Accesses of a chunk.
const CAPACITY: u32 = 8192;
const HEADERS: u64 = 4096;
const HEADER: usize = 32;
const DATA: u64 = HEADERS + (LANES * DEPTH * HEADER) as u64;
const CHUNK: u64 = CAPACITY as u64 * 8;
const LENGTH: u64 = DATA + (LANES * DEPTH) as u64 * CHUNK;
const MAGIC: u64 = 0x3165_6361_7254_7048;
const STORE: u64 = 1 << 63;
const CHANGE: u64 = 1 << 62;
/// Numbers of a change.
const NUMBERS: usize = 4;
/// Places in the control page.
const CLOSED: u64 = 8;
const FINISHED: u64 = 12;

const FREE: u32 = 0;
const FILLING: u32 = 1;
const FULL: u32 = 2;

/// Counts of the control page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// Whether QEMU has loaded the plugin.
    pub(super) is_installed: bool,
    /// Whether the program exits and waits until all is read.
    pub(super) is_finished: bool,
    /// Accesses of threads beyond [`LANES`].
    pub(super) lost: u64,
    pub(super) forks: u32,
    lanes: u32,
}

/// Chunk that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    index: usize,
    pub(super) thread: u32,
    sequence: u64,
    count: u32,
    /// Accesses that the plugin folded.
    pub(super) folded: u32,
    /// Whether the thread has ended after them.
    pub(super) is_last: bool,
    state: u32,
}

/// Failure to read the shared memory.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the program overwrote the shared memory: {0}")]
    Damaged(String),
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

impl Control {
    fn parse(bytes: &[u8; 48]) -> Result<Self, ChannelError> {
        let lanes = word(bytes, 32);
        if lanes as usize > LANES {
            return Err(ChannelError::Damaged(format!("{lanes} threads at once")));
        }
        Ok(Self {
            is_installed: long(bytes, 0) == MAGIC,
            is_finished: word(bytes, 12) != 0,
            lost: long(bytes, 24),
            lanes,
            forks: word(bytes, 40),
        })
    }
}

impl Chunk {
    /// Parses a header; `None` if the chunk is free, or has no access yet.
    fn parse(index: usize, bytes: &[u8]) -> Result<Option<Self>, ChannelError> {
        let damaged = |what: String| Err(ChannelError::Damaged(format!("chunk {index}: {what}")));
        let chunk = Self {
            index,
            state: word(bytes, 0),
            thread: word(bytes, 4),
            sequence: long(bytes, 8),
            count: word(bytes, 16),
            folded: word(bytes, 20),
            is_last: long(bytes, 24) != 0,
        };
        match chunk.state {
            FREE => Ok(None),
            FILLING | FULL if chunk.count > CAPACITY => {
                damaged(format!("{} accesses", chunk.count))
            }
            FILLING if chunk.count == 0 => Ok(None),
            FILLING | FULL => Ok(Some(chunk)),
            state => damaged(format!("state {state}")),
        }
    }
}

fn change(kind: u64, numbers: &[u64]) -> Option<MappingChange> {
    let &[first, second, third, fourth]: &[u64; NUMBERS] = numbers.try_into().ok()?;
    Some(match kind {
        1 => MappingChange::Map { hint: first, bytes: second, start: third, flags: fourth },
        2 => MappingChange::Unmap { start: first, bytes: second },
        3 => MappingChange::Remap { old: first, old_bytes: second, start: third, bytes: fourth },
        _ => return None,
    })
}

/// Reading side of the shared memory.
#[derive(Debug)]
pub(super) struct Channel {
    file: File,
    /// Sequence number of the next chunk.
    next: u64,
    headers: Vec<u8>,
    data: Vec<u8>,
}

impl Channel {
    /// Makes the memory. A program that is started inherits its descriptor.
    ///
    /// # Errors
    /// EMFILE; EFBIG if the user's limit on the size of files is too low.
    pub(super) fn new() -> std::io::Result<Self> {
        let file: OwnedFd = memfd_create("hugepilot-trace", MemfdFlags::CLOEXEC)?;
        let file = File::from(file);
        // Sparse: a chunk takes memory when it is used.
        file.set_len(LENGTH)?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(Self { file, next: 0, headers: Vec::new(), data: Vec::new() })
    }

    /// Descriptor in a program that was started.
    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(super) fn control(&self) -> Result<Control, ChannelError> {
        let mut bytes = [0; 48];
        self.file.read_exact_at(&mut bytes, 0)?;
        Control::parse(&bytes)
    }

    /// Returns the published chunks that are next, in order.
    pub(super) fn published(&mut self, control: Control) -> Result<Vec<Chunk>, ChannelError> {
        let mut chunks = self.used(control)?;
        chunks.retain(|chunk| chunk.state == FULL);
        if let Some(early) = chunks.iter().find(|chunk| chunk.sequence < self.next) {
            let problem = format!("chunk {}: sequence {}", early.index, early.sequence);
            return Err(ChannelError::Damaged(problem));
        }
        chunks.sort_unstable_by_key(|chunk| chunk.sequence);
        // A thread may have taken the number before these, and not set the state yet.
        let next = self.next;
        let in_order = |(n, chunk): &(u64, &Chunk)| chunk.sequence == next + n;
        let count = (0..).zip(&chunks).take_while(in_order).count();
        chunks.truncate(count);
        Ok(chunks)
    }

    /// Returns all chunks with accesses, when nothing writes any more: the published ones in order,
    /// then the others by thread.
    pub(super) fn rest(&mut self, control: Control) -> Result<Vec<Chunk>, ChannelError> {
        let mut chunks = self.used(control)?;
        chunks.sort_unstable_by_key(|chunk| match chunk.state {
            FULL => (0, chunk.sequence),
            _ => (1, u64::from(chunk.thread)),
        });
        Ok(chunks)
    }

    fn used(&mut self, control: Control) -> Result<Vec<Chunk>, ChannelError> {
        self.headers.resize(control.lanes as usize * DEPTH * HEADER, 0);
        self.file.read_exact_at(&mut self.headers, HEADERS)?;
        let headers = self.headers.chunks_exact(HEADER).enumerate();
        headers.filter_map(|(index, bytes)| Chunk::parse(index, bytes).transpose()).collect()
    }

    /// Reads the accesses of a chunk, and the change of the mappings after them.
    pub(super) fn read(
        &mut self,
        chunk: Chunk,
    ) -> Result<(Vec<TraceAccess>, Option<MappingChange>), ChannelError> {
        self.data.resize(chunk.count as usize * 8, 0);
        self.file.read_exact_at(&mut self.data, DATA + chunk.index as u64 * CHUNK)?;
        let words = self.data.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let access = |word: u64| TraceAccess { address: word & !STORE, store: word & STORE != 0 };
        let is_access = |word: &u64| word & (STORE | CHANGE) != CHANGE;
        let accesses: Vec<TraceAccess> = words.clone().take_while(is_access).map(access).collect();
        let mut rest = words.skip(accesses.len());
        let Some(kind) = rest.next() else { return Ok((accesses, None)) };
        let numbers: Vec<u64> = rest.collect();
        let change = change(kind & !CHANGE, &numbers).ok_or_else(|| {
            let problem = format!("chunk {}: change {kind:#x} of {numbers:x?}", chunk.index);
            ChannelError::Damaged(problem)
        })?;
        Ok((accesses, Some(change)))
    }

    /// Frees a chunk that was read. Its thread may wait for that.
    pub(super) fn free(&mut self, chunk: Chunk) -> Result<(), ChannelError> {
        let state = HEADERS + (chunk.index * HEADER) as u64;
        self.file.write_all_at(&FREE.to_le_bytes(), state)?;
        if chunk.state == FULL {
            self.next = chunk.sequence.saturating_add(1);
        }
        Ok(())
    }

    /// Notifies the plugin that nothing is read any more, so that no thread waits.
    pub(super) fn close(&self) -> std::io::Result<()> {
        self.file.write_all_at(&1u32.to_le_bytes(), CLOSED)
    }

    /// Lets a program that exits end.
    pub(super) fn release(&self) -> std::io::Result<()> {
        self.file.write_all_at(&2u32.to_le_bytes(), FINISHED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(state: u32, thread: u32, sequence: u64, count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(state.to_le_bytes());
        bytes.extend(thread.to_le_bytes());
        bytes.extend(sequence.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.resize(HEADER, 0);
        bytes
    }

    /// A channel of two lanes with these headers; each chunk has its index as addresses.
    fn channel(headers: &[(usize, Vec<u8>)]) -> (Channel, Control) {
        let channel = Channel::new().unwrap();
        for (index, bytes) in headers {
            channel.file.write_all_at(bytes, HEADERS + (index * HEADER) as u64).unwrap();
            let access = (*index as u64 | STORE).to_le_bytes().repeat(3);
            channel.file.write_all_at(&access, DATA + *index as u64 * CHUNK).unwrap();
        }
        (channel, Control { lanes: 2, ..Control::default() })
    }

    fn indices(chunks: &[Chunk]) -> Vec<usize> {
        chunks.iter().map(|chunk| chunk.index).collect()
    }

    #[test]
    fn chunks_come_in_the_order_of_their_numbers() {
        let headers = [
            (0, header(FULL, 0, 1, 3)),
            (1, header(FULL, 0, 3, 3)),
            (2, header(FILLING, 0, 0, 2)),
            (8, header(FULL, 1, 0, 3)),
            (9, header(FILLING, 1, 0, 0)),
        ];
        let (mut channel, control) = channel(&headers);
        let chunks = channel.published(control).unwrap();
        assert_eq!(indices(&chunks), [8, 0], "number 2 is missing");
        let (accesses, change) = channel.read(chunks[0]).unwrap();
        assert_eq!(accesses, [TraceAccess { address: 8, store: true }; 3]);
        assert_eq!(change, None);
        chunks.iter().for_each(|&chunk| channel.free(chunk).unwrap());
        assert!(channel.published(control).unwrap().is_empty());
        // The program was killed: the rest is read, too.
        let rest = channel.rest(control).unwrap();
        assert_eq!(indices(&rest), [1, 2]);
        assert_eq!(channel.read(rest[1]).unwrap().0.len(), 2);
    }

    #[test]
    fn a_chunk_may_end_with_a_change() {
        let of = |words: &[u64]| {
            #[allow(clippy::cast_possible_truncation)]
            let headers = [(0, header(FULL, 0, 0, words.len() as u32))];
            let (mut channel, control) = channel(&headers);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            channel.file.write_all_at(&bytes, DATA).unwrap();
            let chunk = channel.published(control).unwrap()[0];
            channel.read(chunk).map_err(|error| error.to_string())
        };
        let load = TraceAccess { address: 8, store: false };
        let map = MappingChange::Map { hint: 0, bytes: 2, start: 3, flags: 4 };
        assert_eq!(of(&[8, CHANGE | 1, 0, 2, 3, 4]), Ok((vec![load], Some(map))));
        let unmap = MappingChange::Unmap { start: CHANGE, bytes: STORE };
        assert_eq!(of(&[CHANGE | 2, CHANGE, STORE, 0, 0]), Ok((vec![], Some(unmap))));
        let remap = MappingChange::Remap { old: 1, old_bytes: 2, start: 3, bytes: 4 };
        assert_eq!(of(&[CHANGE | 3, 1, 2, 3, 4]), Ok((vec![], Some(remap))));
        for words in
            [&[CHANGE | 1, 1, 2, 3][..], &[CHANGE | 1, 1, 2, 3, 4, 5], &[CHANGE, 1, 2, 3, 4]]
        {
            let error = of(words).unwrap_err();
            assert!(error.contains("chunk 0: change 0x400000000000000"), "{error}");
        }
    }

    #[test]
    fn damaged_headers_are_errors() {
        let table = [
            (header(FULL, 0, 0, CAPACITY + 1), "chunk 3: 8193 accesses"),
            (header(FILLING, 0, 0, u32::MAX), "chunk 3: 4294967295 accesses"),
            (header(3, 0, 0, 1), "chunk 3: state 3"),
            (header(0x0200_0000, 0, 0, 1), "chunk 3: state 33554432"),
        ];
        for (bytes, problem) in table {
            let (mut channel, control) = channel(&[(3, bytes)]);
            let error = channel.published(control).unwrap_err().to_string();
            assert!(error.ends_with(problem), "{error}");
        }
        // A number that was read before.
        let (mut channel, control) =
            channel(&[(0, header(FULL, 0, 0, 3)), (1, header(FULL, 0, u64::MAX, 3))]);
        let first = channel.published(control).unwrap();
        channel.free(first[0]).unwrap();
        channel.file.write_all_at(&header(FULL, 0, 0, 3), HEADERS).unwrap();
        let error = channel.published(control).unwrap_err().to_string();
        assert!(error.ends_with("chunk 0: sequence 0"), "{error}");
        let rest = channel.rest(control).unwrap();
        channel.free(rest[1]).unwrap();
        assert_eq!(channel.next, u64::MAX);
    }

    #[test]
    fn a_damaged_control_page_is_an_error() {
        let mut bytes = [0; 48];
        bytes[32..36].copy_from_slice(&1025u32.to_le_bytes());
        assert!(Control::parse(&bytes).is_err());
        bytes[32..36].copy_from_slice(&1024u32.to_le_bytes());
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        let control = Control::parse(&bytes).unwrap();
        assert!(control.is_installed && !control.is_finished && control.lanes == 1024);
    }

    /// The plugin has the same numbers.
    #[test]
    fn the_plugin_has_this_layout() {
        let plugin = include_str!("plugin.c");
        for line in [
            format!("#define LANES {LANES}\n"),
            format!("#define DEPTH {DEPTH}\n"),
            format!("#define CAPACITY {CAPACITY}\n"),
            format!("#define HEADERS {HEADERS}\n"),
            format!("#define MAGIC {MAGIC:#x}u\n"),
            format!("#define NUMBERS {NUMBERS}\n"),
        ] {
            assert!(plugin.contains(&line), "{line}");
        }
    }
}
