//! Compact table of the functions of a file.

use std::cmp::Reverse;
use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};

/// Size limit of a function: larger ones are implausible, and too slow to decode.
const MAX_FUNCTION_BYTES: u32 = 1 << 20;
/// Limit of functions that start within another one, before the address.
const MAX_NESTED: usize = 16;

/// Functions by start address.
#[derive(Debug)]
pub(super) struct FunctionTable {
    /// Ascending and distinct.
    starts: Vec<u64>,
    /// Length of each, in bytes.
    lengths: Vec<u32>,
}

impl FunctionTable {
    /// Builds the table from the spans that start in `code`, with the longest span of each start. A
    /// span without length extends to the next one.
    pub(super) fn new(mut spans: Vec<Range<u64>>, code: &[Range<u64>]) -> Self {
        spans.retain(|span| code.iter().any(|part| part.contains(&span.start)));
        spans.sort_unstable_by_key(|span| (span.start, Reverse(span.end)));
        spans.dedup_by_key(|span| span.start);
        let code_end =
            |start| code.iter().find(|part| part.contains(&start)).map_or(start, |part| part.end);
        let lengths = spans.iter().enumerate().map(|(at, span)| {
            let limit = code_end(span.start);
            let end = match spans.get(at + 1) {
                Some(next) if span.is_empty() => next.start.min(limit),
                None if span.is_empty() => limit,
                _ => span.end.min(limit),
            };
            u32::try_from(end - span.start).unwrap_or(u32::MAX)
        });
        let lengths = lengths.collect();
        Self { starts: spans.iter().map(|span| span.start).collect(), lengths }
    }

    /// Returns the widest plausible function that contains the address.
    pub(super) fn containing(&self, address: u64) -> Option<Range<u64>> {
        let after = self.starts.partition_point(|&start| start <= address);
        let near = (after.saturating_sub(MAX_NESTED)..after).filter_map(|at| self.get(at));
        near.filter(|span| {
            span.contains(&address) && span.end - span.start <= u64::from(MAX_FUNCTION_BYTES)
        })
        .max_by_key(|span| span.end - span.start)
    }

    /// Returns all functions.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        (0..self.starts.len()).filter_map(|at| self.get(at))
    }

    fn get(&self, at: usize) -> Option<Range<u64>> {
        let (&start, &length) = (self.starts.get(at)?, self.lengths.get(at)?);
        Some(start..start.saturating_add(u64::from(length)))
    }
}

/// Returns the address ranges of an `.eh_frame` section at `address`. Damage ends the list; the
/// ranges before it remain valid.
pub(super) fn frame_spans(bytes: &[u8], address: u64) -> Vec<Range<u64>> {
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let (mut spans, mut entries, mut last_cie) = (Vec::new(), section.entries(&bases), None);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|section, bases, offset| match &last_cie {
            Some((at, cie)) if *at == offset => Ok(Clone::clone(cie)),
            _ => {
                let cie = section.cie_from_offset(bases, offset)?;
                last_cie = Some((offset, cie.clone()));
                Ok(cie)
            }
        });
        if let Ok(frame) = parsed {
            let start = frame.initial_address();
            spans.push(start..start.saturating_add(frame.len()));
        }
    }
    spans
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn spans_merge_into_functions() {
        let code = [0x1000..0x9000];
        let spans = vec![
            0x2000..0x2100, // by its frame
            0x2000..0x2080, // and, shorter, by its symbol
            0x2040..0x2050, // a label within it
            0x3000..0x3000, // no size: up to the next
            0x3100..0x3110,
            0x8f00..0xffff, // longer than the code
            0x500..0x5000,  // not code
        ];
        let table = FunctionTable::new(spans, &code);
        assert_eq!(table.containing(0x2045), Some(0x2000..0x2100));
        assert_eq!(table.containing(0x20ff), Some(0x2000..0x2100));
        assert_eq!(table.containing(0x2100), None);
        assert_eq!(table.containing(0x30ff), Some(0x3000..0x3100));
        assert_eq!(table.containing(0x8fff), Some(0x8f00..0x9000));
        assert_eq!(table.containing(0x1fff), None);
        assert_eq!(table.iter().count(), 5);
    }

    #[test]
    fn a_function_that_is_too_large_is_rejected() {
        let table = FunctionTable::new(vec![0..(1 << 20) + 1, 0x100..0x200], &[0..1 << 40]);
        assert_eq!(table.containing(0x10), None);
        assert_eq!(table.containing(0x180), Some(0x100..0x200));
        let endless = FunctionTable::new(vec![0..u64::MAX], &[0..u64::MAX]);
        assert_eq!(endless.containing(1), None);
    }
}
