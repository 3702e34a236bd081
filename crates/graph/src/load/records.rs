//! Numbers of a binary file, read by all threads straight into an array where they are as wide as its own.

use crc32c::{crc32c, crc32c_combine};
use hugepilot_alloc::{bytes, bytes_mut};

use super::blocks::FileBlocks;
use crate::error::WIDER;
use crate::{Result, ThreadPool, Width};

/// Numbers read at once: 1 or 2 MiB of an array.
const PIECE: usize = 1 << 18;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "files have their lowest byte first, and are read as they are"
);

/// Records of one number, or of several in a row, from a byte of a file on.
#[derive(Clone, Copy)]
pub(super) struct Records<'a, const N: usize> {
    pub(super) file: &'a FileBlocks<'a>,
    pub(super) at: u64,
    /// Bytes from one record to the next, at most 16.
    pub(super) size: usize,
    /// Where in a record each number is, and how many bytes it has, 4 or 8.
    pub(super) fields: [(usize, usize); N],
}

impl<'a> Records<'a, 1> {
    /// Numbers of `width` bytes, one after the other.
    pub(super) fn of(file: &'a FileBlocks<'a>, at: u64, width: usize) -> Self {
        Self { file, at, size: width, fields: [(0, width)] }
    }
}

/// Some of the records, for one thread.
struct Piece<'a, V, const N: usize> {
    first: usize,
    into: [&'a mut [V]; N],
}

impl<const N: usize> Records<'_, N> {
    /// Fills the arrays, which are equally long. Gives the CRC-32C of what was read.
    ///
    /// # Errors
    /// [`GraphError::Io`](crate::GraphError::Io); [`GraphError::Format`](crate::GraphError::Format) where the file ends
    /// before, and for a number that `V` has no place for.
    pub(super) fn read<V: Width>(&self, into: [&mut [V]; N], pool: ThreadPool) -> Result<u32> {
        let found = pool.share(pieces(into), |pieces| -> Result<Vec<_>> {
            let (mut reader, mut sums) = (self.file.reader(), Vec::new());
            for mut piece in pieces {
                let len = piece.into[0].len() * self.size;
                let at = self.at + (piece.first * self.size) as u64;
                let sum = if N == 1 && self.size == size_of::<V>() && self.fields[0].1 == self.size
                {
                    reader.fill(at, bytes_mut(piece.into[0]))?;
                    crc32c(bytes(piece.into[0]))
                } else {
                    let found = reader.bytes(at, len)?;
                    self.convert(found, at, &mut piece)?;
                    crc32c(found)
                };
                sums.push((piece.first, sum, len));
            }
            Ok(sums)
        });
        let mut sums = Vec::new();
        for of_worker in found {
            sums.append(&mut of_worker?);
        }
        sums.sort_unstable();
        Ok(sums.into_iter().fold(0, |all, (_, sum, len)| crc32c_combine(all, sum, len)))
    }

    fn convert<V: Width>(&self, found: &[u8], at: u64, piece: &mut Piece<'_, V, N>) -> Result<()> {
        for (field, into) in self.fields.iter().zip(&mut piece.into) {
            for (i, value) in into.iter_mut().enumerate() {
                let start = i * self.size + field.0;
                let number = number(&found[start..start + field.1]);
                // The largest means "none". What has no more bits in the file is no wider with 64: a weight of -1 is wrong.
                if field.1 > size_of::<V>() && number >= V::NONE.at() as u64 {
                    let what = format!("{number} is more than 32 bits count; {WIDER}");
                    return Err(self.file.error_at(at + start as u64, what));
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

fn pieces<V, const N: usize>(mut into: [&mut [V]; N]) -> Vec<Piece<'_, V, N>> {
    let len = into[0].len();
    (0..len)
        .step_by(PIECE)
        .map(|first| {
            let count = PIECE.min(len - first);
            Piece {
                first,
                into: into.each_mut().map(|all| all.split_off_mut(..count).unwrap_or_default()),
            }
        })
        .collect()
}
