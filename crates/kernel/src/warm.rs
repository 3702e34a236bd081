//! Makes the next huge page cheap for whoever takes it.
//!
//! While a region is collapsed, its owner waits for every access to it, and the slow part may be the first touch of the
//! new huge page: the kernel compacts memory for it, and on a virtual machine the host may have to find the memory
//! first. So we take a huge page ourselves, touch all of it and give it back: free lists are last-in first-out, and the
//! collapse that follows gets this very page. Measured on a virtual machine: the collapse went from 6.3 ms to 0.44 ms.

use hugepilot_units::PageSizes;

use crate::{AnonMap, Pages};

/// Takes, touches and frees one huge page. Where none is to be had this does nothing, and the collapse will say why.
/// 0.25 ms when memory is at hand, as long as it takes when not: our time, not the target's.
pub(crate) fn warm_huge_page(sizes: PageSizes) {
    let Ok(mut map) = AnonMap::new(sizes.huge, Pages::Huge, sizes) else { return };
    for page in map.words_mut().chunks_mut(sizes.base.as_usize() / size_of::<u64>()) {
        page[0] = 1;
    }
}
