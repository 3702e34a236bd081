//! What a user should know beside the figures: who might undo the work, and what made it come short.

use hugepilot_kernel::thp::ThpSettings;
use hugepilot_record::debloat::DebloatReport;
use hugepilot_units::Share;

use super::{DebloatOptions, Member};

/// khugepaged collapses a region again when no more of its pages are empty than `max_ptes_none`, and pages that a split gave
/// back count as empty.
pub(super) struct Trap {
    /// Mode of THP: `always`, `madvise` or `never`.
    enabled: String,
    max_ptes_none: Option<u64>,
    /// Whether bloat lies in memory for which the program asked for huge pages.
    advised: bool,
}

impl Trap {
    pub(super) fn read(members: &[Member]) -> Self {
        let settings = members
            .first()
            .map(|member| ThpSettings::read(member.subject.process.root()))
            .unwrap_or_default();
        let number = |name: &str| settings.chosen(name).and_then(|text| text.parse().ok());
        let advised = |member: &Member| {
            let of_bloat = |start| member.found.mappings.iter().find(|mapping| mapping.range.contains(start));
            let census = &member.found.census;
            let mut starts = census.bloated.iter().map(|page| page.region.range(census.sizes).start);
            starts.any(|start| of_bloat(start).is_some_and(|mapping| mapping.flags.has("hg")))
        };
        Self {
            enabled: settings.chosen("enabled").unwrap_or("never").to_owned(),
            max_ptes_none: number("khugepaged/max_ptes_none"),
            advised: members.iter().any(advised),
        }
    }

    /// Who would collapse what was split, and what to change.
    fn warning(&self) -> Option<String> {
        let max = self.max_ptes_none.filter(|&max| max > 0)?;
        let why = match self.enabled.as_str() {
            "always" => "transparent_hugepage/enabled is always",
            "madvise" if self.advised => "the program asked for huge pages here (MADV_HUGEPAGE)",
            _ => return None,
        };
        Some(format!(
            "khugepaged may make these pages huge again, because {why} and khugepaged/max_ptes_none is {max}; to keep what is \
             freed: echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none"
        ))
    }
}

/// Adds the warnings that follow from the report.
pub(super) fn add(report: &mut DebloatReport, trap: &Trap, options: &DebloatOptions) {
    let mut warn = |text: String| report.warnings.push(text);
    if report.huge_pages_split > 0 {
        trap.warning().into_iter().for_each(&mut warn);
    }
    if report.huge_again > 0 {
        warn(format!("{} of the split huge pages were huge again at the end", report.huge_again));
    }
    if options.part < Share::ALL {
        warn("a sample of the huge pages was read: the bloat is an estimate, and only what was read is planned for".into());
    }
    if !report.dry_run && report.stopped.is_none() && report.freed_bytes < report.requested_bytes {
        warn(format!(
            "freed {} of the {} asked for: there is no more to split in this order",
            report.freed_bytes, report.requested_bytes
        ));
    }
    if let Some(still) = report.failed.get("still_huge") {
        warn(format!(
            "{still} huge pages were not split, though the kernel said so: they are pinned, or shared"
        ));
    }
}
