//! Page sizes of the simulated machine, and the hash of page numbers.

use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

/// Size of a page: 4 KiB, 2 MiB or 1 GiB, as on x86-64 and on ARM with a granule of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageClass {
    /// 4 KiB.
    #[default]
    Base,
    /// 2 MiB.
    Huge,
    /// 1 GiB.
    Giant,
}

impl PageClass {
    /// All classes, smallest first.
    pub const ALL: [Self; 3] = [Self::Base, Self::Huge, Self::Giant];

    /// Returns the number of low bits of a base page's number that are within a page of this class.
    pub const fn shift(self) -> u32 {
        match self {
            Self::Base => 0,
            Self::Huge => 9,
            Self::Giant => 18,
        }
    }
    /// Returns the size as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "4 KiB",
            Self::Huge => "2 MiB",
            Self::Giant => "1 GiB",
        }
    }
}

/// Bits of an address within a base page.
pub const BASE_SHIFT: u32 = 12;
/// Base pages of a 2 MiB region.
pub const BASE_PER_REGION: usize = 512;
/// Bits of a base page's number below those of the process: 57-bit addresses have 45.
const PROCESS_SHIFT: u32 = 45;

/// Returns the number of the base page of `address`, unique among processes.
pub const fn base_page(process: u16, address: u64) -> u64 {
    (process as u64) << PROCESS_SHIFT | (address >> BASE_SHIFT) & ((1 << PROCESS_SHIFT) - 1)
}

/// Returns the process and the first address of a base page.
#[allow(clippy::cast_possible_truncation)]
pub const fn place_of(page: u64) -> (u16, u64) {
    ((page >> PROCESS_SHIFT) as u16, (page & ((1 << PROCESS_SHIFT) - 1)) << BASE_SHIFT)
}

/// Map from page numbers, without the random seed that would make runs differ.
pub(crate) type PageMap<V> = hashbrown::HashMap<u64, V, BuildHasherDefault<PageHasher>>;

/// Hash of one page number: a multiplication whose halves are combined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 ^ u64::from(byte)));
    }
    fn write_u64(&mut self, page: u64) {
        self.0 = mix(page);
    }
}

/// Returns `page` with its bits spread over the word.
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn mix(page: u64) -> u64 {
    let product = (page ^ 0x2545_f491_4f6c_dd1d) as u128 * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}
