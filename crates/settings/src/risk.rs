//! THP settings that are known to hurt programs.

use hugepilot_record::{Khugepaged, ThpConfig, ThpSize, ThpWord};
use hugepilot_reports::doctor::SettingRisk;
use hugepilot_units::{Bytes, Nanos, PageSizes};

/// Pause of khugepaged below which it takes a noticeable part of a core.
const SHORT_PAUSE: Nanos = Nanos::millis(1000);

/// Judges the THP settings of a kernel: those that stall programs, take memory that they freed, or
/// use a core.
pub fn setting_risks(thp: &ThpConfig, sizes: PageSizes) -> Vec<SettingRisk> {
    let everywhere = thp.enabled == Some(ThpWord::Always);
    let mut risks = Vec::new();
    if thp.defrag == Some(ThpWord::Always) && thp.enabled != Some(ThpWord::Never) {
        risks.push(SettingRisk::FaultsCompact { everywhere });
    }
    if let Some(khugepaged) = thp.khugepaged.filter(|_| thp.enabled != Some(ThpWord::Never)) {
        risks.extend(of_khugepaged(khugepaged, sizes, everywhere));
    }
    let smaller = thp.sizes.iter().filter(|size| size.page_bytes < sizes.huge);
    risks.extend(smaller.filter_map(|size| of_size(size, thp.enabled)));
    risks
}

fn of_khugepaged(
    Khugepaged { max_ptes_none, scan_sleep_ns, .. }: Khugepaged,
    sizes: PageSizes,
    everywhere: bool,
) -> impl Iterator<Item = SettingRisk> {
    // Above half, a collapse adds more memory than the region has.
    let refills = (max_ptes_none > sizes.base_per_huge() / 2)
        .then_some(SettingRisk::FreedMemoryRefills { max_ptes_none, everywhere });
    let scans = (scan_sleep_ns < SHORT_PAUSE)
        .then_some(SettingRisk::ScansWithoutPause { pause_ns: scan_sleep_ns });
    refills.into_iter().chain(scans)
}

/// A smaller page size that the kernel uses everywhere.
fn of_size(size: &ThpSize, all: Option<ThpWord>) -> Option<SettingRisk> {
    let enabled = match size.enabled? {
        ThpWord::Inherit => all?,
        word => word,
    };
    let page_bytes: Bytes = size.page_bytes;
    (enabled == ThpWord::Always).then_some(SettingRisk::SmallerPages { page_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> ThpConfig {
        ThpConfig {
            enabled: Some(ThpWord::Madvise),
            defrag: Some(ThpWord::Madvise),
            shmem_enabled: Some(ThpWord::Never),
            sizes: vec![ThpSize {
                page_bytes: Bytes::kib(64),
                enabled: Some(ThpWord::Never),
                shmem_enabled: None,
            }],
            khugepaged: Some(Khugepaged {
                defrag: true,
                pages_to_scan: 4096,
                scan_sleep_ns: Nanos::seconds(10),
                max_ptes_none: 0,
                max_ptes_swap: 64,
                max_ptes_shared: 256,
            }),
        }
    }

    fn risks(change: impl FnOnce(&mut ThpConfig)) -> Vec<SettingRisk> {
        let mut thp = usual();
        change(&mut thp);
        setting_risks(&thp, PageSizes::X86_64)
    }

    fn khugepaged(thp: &mut ThpConfig) -> &mut Khugepaged {
        thp.khugepaged.as_mut().unwrap()
    }

    #[test]
    fn each_setting_that_hurts_is_named() {
        assert_eq!(risks(|_| {}), []);
        let compacts = |everywhere| [SettingRisk::FaultsCompact { everywhere }];
        assert_eq!(risks(|thp| thp.defrag = Some(ThpWord::Always)), compacts(false));
        let refills = [SettingRisk::FreedMemoryRefills { max_ptes_none: 511, everywhere: false }];
        assert_eq!(risks(|thp| khugepaged(thp).max_ptes_none = 511), refills);
        assert_eq!(risks(|thp| khugepaged(thp).max_ptes_none = 64), []);
        let scans = [SettingRisk::ScansWithoutPause { pause_ns: Nanos::ZERO }];
        assert_eq!(risks(|thp| khugepaged(thp).scan_sleep_ns = Nanos::ZERO), scans);
        let smaller = [SettingRisk::SmallerPages { page_bytes: Bytes::kib(64) }];
        assert_eq!(risks(|thp| thp.sizes[0].enabled = Some(ThpWord::Always)), smaller);
        let inherits = |thp: &mut ThpConfig| {
            (thp.enabled, thp.sizes[0].enabled) = (Some(ThpWord::Always), Some(ThpWord::Inherit));
        };
        assert_eq!(risks(inherits), smaller);
    }

    #[test]
    fn what_is_off_hurts_nobody() {
        let off = |thp: &mut ThpConfig| {
            thp.enabled = Some(ThpWord::Never);
            thp.defrag = Some(ThpWord::Always);
            khugepaged(thp).max_ptes_none = 511;
            khugepaged(thp).scan_sleep_ns = Nanos::ZERO;
        };
        assert_eq!(risks(off), []);
    }
}
