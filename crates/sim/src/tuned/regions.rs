//! Regions and samples of a simulated machine, as the engine has them.

use hugepilot_record::Window;
use hugepilot_units::{Region, VirtAddr};

use super::SIZES;
use crate::runs::Footprint;

pub(super) fn region_number(address: u64) -> Region {
    SIZES.region_of(VirtAddr::new(address))
}

pub(super) fn region_of(footprint: &Footprint, number: u32) -> Region {
    region_number(footprint.regions()[number as usize].address())
}

pub(super) fn add(window: &mut Window, region: Region, samples: f64) {
    if samples >= 1.0 {
        add_samples(window, samples);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let samples = samples as u32;
        let stalls = window.stalls.entry(region).or_insert(0);
        *stalls = stalls.saturating_add(samples);
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn add_samples(window: &mut Window, samples: f64) {
    window.samples += samples as u64;
}
