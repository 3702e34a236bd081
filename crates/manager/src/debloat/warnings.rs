//! What a user should know beside the figures: who might undo the work, and what made it come short.

use hugepilot_kernel::KhugepagedRisk;
use hugepilot_kernel::thp::ThpSettings;
use hugepilot_record::SkipReason;
use hugepilot_record::debloat::DebloatReport;
use hugepilot_units::Share;

use super::{DebloatOptions, DebloatProcess};

/// The risk for the bloated pages of `members`, as THP is set now.
pub(super) fn khugepaged_risk(members: &[DebloatProcess]) -> KhugepagedRisk {
    let advised = |member: &DebloatProcess| {
        let of_bloat =
            |start| member.found.mappings.iter().find(|mapping| mapping.range.contains(start));
        let census = &member.found.census;
        let mut starts = census.bloated.iter().map(|page| page.region.range(census.sizes).start);
        starts.any(|start| of_bloat(start).is_some_and(|mapping| mapping.flags.has("hg")))
    };
    let root = members.first().map(|member| member.target.process.root());
    root.map_or_else(
        || KhugepagedRisk::of(&ThpSettings::default(), false),
        |root| KhugepagedRisk::of(&ThpSettings::read(root), members.iter().any(advised)),
    )
}

/// Why less was freed than was asked for, when so many processes were `excluded` half-way; `None` when it was not.
fn shortfall(report: &DebloatReport, excluded: usize) -> Option<String> {
    if report.dry_run || report.stopped.is_some() || report.freed_bytes >= report.requested_bytes {
        return None;
    }
    let protected = report.skipped.get(&SkipReason::Protected.to_string()).copied().unwrap_or(0);
    let mut why = Vec::new();
    if excluded > 0 {
        why.push(format!("{excluded} of the processes were left alone half-way"));
    }
    if protected > 0 {
        why.push(format!("{protected} huge pages with bloat are protected"));
    }
    let why = if why.is_empty() {
        "there is no more to split in this order".to_owned()
    } else {
        why.join(", ")
    };
    Some(format!("freed {} of the {} asked for: {why}", report.freed_bytes, report.requested_bytes))
}

/// That the bloat of so many huge pages is unknown.
pub(crate) fn unread(huge_pages: u64) -> String {
    format!(
        "{huge_pages} huge pages could not be read, because the program forbids it (PROT_NONE) or their memory is broken: their \
         bloat is unknown, and the bloat above is the least that there is"
    )
}

/// Adds the warnings that follow from the report, when so many processes were `excluded` half-way.
pub(super) fn add(
    report: &mut DebloatReport,
    trap: &KhugepagedRisk,
    options: &DebloatOptions,
    excluded: usize,
) {
    let shortfall = shortfall(report, excluded);
    let mut warn = |text: String| report.warnings.push(text);
    if report.huge_pages_split > 0 {
        let may = |cause| format!("khugepaged may make these pages huge again, {cause}");
        trap.cause().map(may).into_iter().for_each(&mut warn);
    }
    if report.recollapsed > 0 {
        warn(format!(
            "{} of the split huge pages were huge again at the end: somebody collapsed them, or new memory was mapped there",
            report.recollapsed
        ));
    }
    if report.unread_huge_pages > 0 {
        warn(unread(report.unread_huge_pages));
    }
    if options.part < Share::ALL {
        warn("a sample of the huge pages was read: the bloat, and what would be split, freed and lost, are estimates for all".into());
    }
    shortfall.into_iter().for_each(&mut warn);
    if let Some(still) = report.failed.get("still_huge") {
        warn(format!(
            "{still} huge pages were not split, though the kernel said so: they are pinned, or shared"
        ));
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_units::Bytes;

    use super::*;

    #[test]
    fn who_was_left_alone_is_the_reason_and_not_that_there_is_no_more() {
        let (freed_bytes, requested_bytes) = (Bytes::mib(3), Bytes::mib(4));
        let short = DebloatReport { freed_bytes, requested_bytes, ..DebloatReport::default() };
        let skipped = |count| [("protected".to_owned(), count)].into();
        let of = |report: &DebloatReport, excluded| shortfall(report, excluded).unwrap_or_default();
        assert_eq!(
            of(&short, 0),
            "freed 3MiB of the 4MiB asked for: there is no more to split in this order"
        );
        assert!(
            of(&DebloatReport { skipped: skipped(0), ..short.clone() }, 0)
                .contains("no more to split")
        );
        let protected = of(&DebloatReport { skipped: skipped(16), ..short.clone() }, 0);
        assert!(protected.ends_with(": 16 huge pages with bloat are protected"), "{protected}");
        let ended = of(&short, 2);
        assert!(ended.ends_with(": 2 of the processes were left alone half-way"), "{ended}");
        assert_eq!(
            shortfall(&DebloatReport { requested_bytes: freed_bytes, ..short.clone() }, 2),
            None
        );
        assert_eq!(shortfall(&DebloatReport { dry_run: true, ..short }, 2), None);
    }
}
