//! Numbers of a binary file, read by all threads, without a copy if their width is that of the
//! array.

use crc32c::{crc32c, crc32c_combine};
use hugepilot_alloc::{bytes, bytes_mut};

use super::file_blocks::FileBlocks;
use crate::error::LoadFault;
use crate::{Result, ThreadPool, Width};

/// Numbers of one read: 1 or 2 MiB of an array.
const CHUNK: usize = 1 << 18;

const _: () = assert!(cfg!(target_endian = "little"), "files are little-endian and read in place");

/// Records of one or more numbers each, from a byte of a file on.
#[derive(Clone, Copy)]
pub(super) struct Records<'a, const N: usize> {
    pub(super) file: &'a FileBlocks<'a>,
    pub(super) at: u64,
    /// Bytes of a record, at most 16.
    pub(super) size: usize,
    /// Offset in the record and width, 4 or 8 bytes, of each number.
    pub(super) fields: [(usize, usize); N],
}

impl<'a> Records<'a, 1> {
    /// Describes consecutive numbers of `width` bytes.
    pub(super) fn of(file: &'a FileBlocks<'a>, at: u64, width: usize) -> Self {
        Self { file, at, size: width, fields: [(0, width)] }
    }
}

/// Consecutive records for one thread.
struct Chunk<'a, V, const N: usize> {
    first: usize,
    into: [&'a mut [V]; N],
}

impl<const N: usize> Records<'_, N> {
    /// Fills arrays of equal length. Returns the CRC-32C of the bytes read, if wanted, otherwise 0.
    ///
    /// # Errors
    /// [`GraphError::Io`](crate::GraphError::Io); [`LoadFault::Truncated`];
    /// [`LoadFault::NumberTooWide`].
    pub(super) fn read<V: Width>(
        &self,
        into: [&mut [V]; N],
        wants_sum: bool,
        pool: ThreadPool,
    ) -> Result<u32> {
        let sum_of = |bytes: &[u8]| if wants_sum { crc32c(bytes) } else { 0 };
        let of_workers = pool.share(chunks(into), |chunks| -> Result<Vec<_>> {
            let (mut reader, mut sums) = (self.file.reader(), Vec::new());
            for mut chunk in chunks {
                let len = chunk.into[0].len() * self.size;
                let at = self.at + (chunk.first * self.size) as u64;
                let sum = if N == 1 && self.size == size_of::<V>() && self.fields[0].1 == self.size
                {
                    reader.fill(at, bytes_mut(chunk.into[0]))?;
                    sum_of(bytes(chunk.into[0]))
                } else {
                    let raw = reader.bytes(at, len)?;
                    self.convert(raw, at, &mut chunk)?;
                    sum_of(raw)
                };
                sums.push((chunk.first, sum, len));
            }
            Ok(sums)
        });
        let mut sums = Vec::new();
        for of_worker in of_workers {
            sums.append(&mut of_worker?);
        }
        if !wants_sum {
            return Ok(0);
        }
        sums.sort_unstable();
        Ok(sums.into_iter().fold(0, |all, (_, sum, len)| crc32c_combine(all, sum, len)))
    }

    fn convert<V: Width>(&self, raw: &[u8], at: u64, chunk: &mut Chunk<'_, V, N>) -> Result<()> {
        for (field, into) in self.fields.iter().zip(&mut chunk.into) {
            for (i, value) in into.iter_mut().enumerate() {
                let start = i * self.size + field.0;
                let number = number(&raw[start..start + field.1]);
                // The largest number means "none". A field of the width of `V` gains nothing by
                // --width 64: a weight of -1 is invalid.
                if field.1 > size_of::<V>() && number >= V::NONE.at() as u64 {
                    let fault = LoadFault::NumberTooWide(number);
                    return Err(self.file.error_at(at + start as u64, fault));
                }
                *value = V::new(number as usize);
            }
        }
        Ok(())
    }
}

#[inline]
fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

fn chunks<V, const N: usize>(mut into: [&mut [V]; N]) -> Vec<Chunk<'_, V, N>> {
    let len = into[0].len();
    (0..len)
        .step_by(CHUNK)
        .map(|first| {
            let count = CHUNK.min(len - first);
            Chunk {
                first,
                into: into.each_mut().map(|all| all.split_off_mut(..count).unwrap_or_default()),
            }
        })
        .collect()
}
