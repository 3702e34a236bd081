//! What a user should know beside the figures: who might undo the work, and what made it come short.

use hugepilot_kernel::Root;
use hugepilot_kernel::thp::ThpSettings;
use hugepilot_record::debloat::DebloatReport;
use hugepilot_units::Share;

use super::{DebloatOptions, Member};

/// khugepaged collapses a region again when no more of its pages are empty than `max_ptes_none`, and pages that a split gave
/// back count as empty.
pub(crate) struct Trap {
    /// Mode of THP: `always`, `madvise` or `never`.
    enabled: String,
    max_ptes_none: Option<u64>,
    /// Whether bloat lies in memory for which the program asked for huge pages.
    advised: bool,
}

impl Trap {
    pub(super) fn read(members: &[Member]) -> Self {
        let advised = |member: &Member| {
            let of_bloat = |start| member.found.mappings.iter().find(|mapping| mapping.range.contains(start));
            let census = &member.found.census;
            let mut starts = census.bloated.iter().map(|page| page.region.range(census.sizes).start);
            starts.any(|start| of_bloat(start).is_some_and(|mapping| mapping.flags.has("hg")))
        };
        let root = members.first().map(|member| member.subject.process.root());
        root.map_or_else(
            || Self::of(&ThpSettings::default(), false),
            |root| Self::of(&ThpSettings::read(root), members.iter().any(advised)),
        )
    }

    /// As set now, for memory for which huge pages were asked (`advised`) or not.
    pub(crate) fn now(root: &Root, advised: bool) -> Self {
        Self::of(&ThpSettings::read(root), advised)
    }

    fn of(settings: &ThpSettings, advised: bool) -> Self {
        Self {
            enabled: settings.chosen("enabled").unwrap_or("never").to_owned(),
            max_ptes_none: settings.chosen("khugepaged/max_ptes_none").and_then(|text| text.parse().ok()),
            advised,
        }
    }

    /// Why khugepaged collapses what was split, and what to change; `None` where it does not.
    pub(crate) fn cause(&self) -> Option<String> {
        let max = self.max_ptes_none.filter(|&max| max > 0)?;
        let why = match self.enabled.as_str() {
            "always" => "transparent_hugepage/enabled is always",
            "madvise" if self.advised => "the program asked for huge pages here (MADV_HUGEPAGE)",
            _ => return None,
        };
        Some(format!(
            "because {why} and khugepaged/max_ptes_none is {max}; to keep what is \
             freed: echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none"
        ))
    }
}

/// Adds the warnings that follow from the report.
pub(super) fn add(report: &mut DebloatReport, trap: &Trap, options: &DebloatOptions) {
    let mut warn = |text: String| report.warnings.push(text);
    if report.huge_pages_split > 0 {
        let may = |cause| format!("khugepaged may make these pages huge again, {cause}");
        trap.cause().map(may).into_iter().for_each(&mut warn);
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
