//! The summary of `status`: the reason that matters most, out of all.

use std::cmp::Reverse;

use hugepilot_record::Outlook;
use hugepilot_units::Bytes;

use super::{KernelShare, MainReason, StatusSummary};

/// Returns the summary of a process with this memory. `huge_page` is the size of a huge page. With
/// `pages_known`, the pagemap was read, so that the shares have all that `tune` can promote.
pub fn status_summary(
    huge_bytes: Bytes,
    resident_bytes: Bytes,
    shares: &[KernelShare],
    huge_page: Bytes,
    pages_known: bool,
) -> StatusSummary {
    if resident_bytes == Bytes::ZERO {
        return StatusSummary::NothingResident;
    }
    let matters = |share: &&KernelShare| !share.reason.is_structural() && share.bytes >= huge_page;
    let shares = by_code(shares);
    let Some(share) = shares.iter().filter(matters).max_by_key(|share| share.bytes) else {
        return if huge_bytes > Bytes::ZERO {
            StatusSummary::AllHuge { huge_bytes, resident_bytes }
        } else {
            StatusSummary::NothingSuitable { resident_bytes }
        };
    };
    let main = MainReason {
        reason: share.reason.clone(),
        bytes: share.bytes,
        eligible_bytes: pages_known.then_some(share.eligible_bytes),
        skip: share.not_huge_bytes.iter().max_by_key(|&(_, bytes)| bytes).map(|(&skip, _)| skip),
    };
    match share.outlook {
        Outlook::MayPromote => StatusSummary::KernelMayPromote { huge_bytes, resident_bytes, main },
        Outlook::WillNot => {
            StatusSummary::KernelWillNotPromote { huge_bytes, resident_bytes, main }
        }
    }
}

/// Adds up the shares of each code; their reason is that of the largest.
fn by_code(shares: &[KernelShare]) -> Vec<KernelShare> {
    let mut sorted: Vec<&KernelShare> = shares.iter().collect();
    sorted.sort_by_key(|share| Reverse(share.bytes));
    let mut sums: Vec<KernelShare> = Vec::new();
    for share in sorted {
        let code = share.reason.code();
        let Some(sum) = sums.iter_mut().find(|sum| sum.reason.code() == code) else {
            sums.push(share.clone());
            continue;
        };
        sum.bytes += share.bytes;
        sum.eligible_bytes += share.eligible_bytes;
        for (&skip, &bytes) in &share.not_huge_bytes {
            *sum.not_huge_bytes.entry(skip).or_insert(Bytes::ZERO) += bytes;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hugepilot_record::{KernelReason, SkipReason, ThpWord};

    use super::*;

    const PAGE: Bytes = Bytes::mib(2);

    fn share(reason: KernelReason, mib: u64, eligible: u64) -> KernelShare {
        let skipped = Bytes::mib(mib - eligible);
        let skips = [(SkipReason::Stack, Bytes::kib(4)), (SkipReason::Mlocked, skipped)];
        KernelShare {
            outlook: reason.outlook(),
            reason,
            bytes: Bytes::mib(mib),
            eligible_bytes: Bytes::mib(eligible),
            not_huge_bytes: BTreeMap::from(skips),
        }
    }

    fn summary(huge: u64, resident: u64, shares: &[KernelShare]) -> StatusSummary {
        status_summary(Bytes::mib(huge), Bytes::mib(resident), shares, PAGE, true)
    }

    #[test]
    fn a_process_without_the_means_for_huge_pages_needs_no_reason() {
        let small = [share(KernelReason::File, 30, 0), share(KernelReason::ThpDisabled, 1, 0)];
        assert_eq!(summary(0, 0, &[]), StatusSummary::NothingResident);
        let resident_bytes = Bytes::mib(31);
        assert_eq!(summary(0, 31, &small), StatusSummary::NothingSuitable { resident_bytes });
        let (huge_bytes, resident_bytes) = (Bytes::mib(64), Bytes::mib(95));
        let all = StatusSummary::AllHuge { huge_bytes, resident_bytes };
        assert_eq!(summary(64, 95, &small), all);
    }

    #[test]
    fn the_main_reason_is_the_largest_that_a_change_can_remove() {
        let never = KernelReason::ThpNever { setting: "enabled".to_owned() };
        let pending = KernelReason::KhugepagedPending { khugepaged: None, defrag: None };
        let shares =
            [share(KernelReason::File, 90, 0), share(never.clone(), 60, 50), share(pending, 8, 8)];
        let (huge_bytes, resident_bytes) = (Bytes::mib(2), Bytes::mib(160));
        let main = MainReason {
            reason: never,
            bytes: Bytes::mib(60),
            eligible_bytes: Some(Bytes::mib(50)),
            skip: Some(SkipReason::Mlocked),
        };
        let expected = StatusSummary::KernelWillNotPromote { huge_bytes, resident_bytes, main };
        assert_eq!(summary(2, 160, &shares), expected);
        let StatusSummary::KernelMayPromote { main, .. } = summary(2, 160, &shares[2..]) else {
            panic!("khugepaged may still promote it")
        };
        assert_eq!(main.bytes, Bytes::mib(8));
    }

    #[test]
    fn shares_of_one_code_count_together() {
        let pending =
            |defrag: Option<ThpWord>| KernelReason::KhugepagedPending { khugepaged: None, defrag };
        let shares = [
            share(pending(None), 50, 10),
            share(KernelReason::ThpDisabled, 90, 0),
            share(pending(Some(ThpWord::Madvise)), 60, 20),
        ];
        let StatusSummary::KernelMayPromote { main, .. } = summary(0, 200, &shares) else {
            panic!("110 MiB are pending")
        };
        assert_eq!((main.bytes, main.eligible_bytes), (Bytes::mib(110), Some(Bytes::mib(30))));
        assert_eq!(main.reason, pending(Some(ThpWord::Madvise)));
    }

    #[test]
    fn without_a_pagemap_the_part_for_tune_is_unknown() {
        let shares = [share(KernelReason::ThpDisabled, 8, 0)];
        let summary = status_summary(Bytes::ZERO, Bytes::mib(8), &shares, PAGE, false);
        let StatusSummary::KernelWillNotPromote { main, .. } = summary else {
            panic!("{summary:?}")
        };
        assert_eq!(main.eligible_bytes, None);
    }
}
