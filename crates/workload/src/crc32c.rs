//! CRC-32C of a word, from a state of 0, as the instruction `crc32` of SSE 4.2 computes it.
//!
//! The crate `crc32c` has the instruction behind a safe function, at the cost of a call. Without
//! the instruction, eight lookups in tables of 8 KiB together give the same. The hash of
//! [`hash_insert`](super::hash_insert).

const POLYNOMIAL: u32 = 0x82f6_3b78; // Castagnoli's, bits reversed

/// `TABLES[k][byte]`: the contribution of a byte that `k` bytes follow.
static TABLES: [[u32; 256]; 8] = tables();

/// Returns the CRC-32C of the eight bytes of `word`, the lowest first, without the two complements
/// of a message's checksum: `_mm_crc32_u64(0, word)`.
#[inline]
pub(super) fn of_word(word: u64) -> u32 {
    if has_instruction() { by_instruction(word) } else { by_tables(word) }
}

#[inline]
fn has_instruction() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("sse4.2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Alignment with which the crate reads it as one word, not byte by byte.
#[repr(align(8))]
struct Aligned([u8; 8]);

#[inline]
fn by_instruction(word: u64) -> u32 {
    !crc32c::crc32c_append(!0, &Aligned(word.to_le_bytes()).0)
}

#[inline]
fn by_tables(word: u64) -> u32 {
    let bytes = word.to_le_bytes();
    TABLES
        .iter()
        .zip(bytes.iter().rev())
        .fold(0, |crc, (table, &byte)| crc ^ table[usize::from(byte)])
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[k - 1][byte];
            tables[k][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;

    /// Bit by bit, from the polynomial.
    fn by_definition(state: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(state, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (POLYNOMIAL * (crc & 1)))
        })
    }

    #[test]
    fn the_definition_gives_the_published_values() {
        // RFC 3720, B.4, and the check value of CRC-32/ISCSI.
        let ascending: Vec<u8> = (0..32).collect();
        let table: [(&[u8], u32); 4] = [
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
        ];
        for (message, crc) in table {
            assert_eq!(!by_definition(!0, message), crc, "{message:?}");
        }
    }

    #[test]
    fn both_ways_agree_with_the_definition() {
        let mut rng = Rng::new(3, 0);
        for word in (0..300).chain([u64::MAX, 1 << 63]).chain((0..3000).map(|_| rng.bits())) {
            let crc = by_definition(0, &word.to_le_bytes());
            // The crate computes it in software if the processor lacks the instruction.
            assert_eq!(
                (by_instruction(word), by_tables(word), of_word(word)),
                (crc, crc, crc),
                "{word:#x}"
            );
        }
    }

    #[test]
    fn a_state_carries_from_word_to_word() {
        // The published message of 32 bytes, word by word. The CRC is linear, so the state is added
        // to the first bytes.
        let step = |state: u32, word: u64| by_tables(word ^ u64::from(state));
        let words = [
            0x0706_0504_0302_0100,
            0x0f0e_0d0c_0b0a_0908,
            0x1716_1514_1312_1110,
            0x1f1e_1d1c_1b1a_1918,
        ];
        assert_eq!(!words.into_iter().fold(!0, step), 0x46dd_794e);
    }
}
