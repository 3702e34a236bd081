//! Settings by which khugepaged re-collapses split regions.

use hugepilot_record::{RecollapseRisk, ThpScope};

use crate::Root;
use crate::thp::ThpSettings;

/// Reads whether khugepaged, as it is set now, re-collapses split regions; `None` if it does not.
///
/// `advised`: whether the program requested huge pages for these regions (`MADV_HUGEPAGE`).
pub fn recollapse_risk(root: &Root, advised: bool) -> Option<RecollapseRisk> {
    let settings = ThpSettings::read(root);
    let max_ptes_none = settings.chosen("khugepaged/max_ptes_none")?.parse().ok()?;
    let thp_enabled = match settings.chosen("enabled")? {
        "always" => ThpScope::Always,
        "madvise" if advised => ThpScope::Madvise,
        _ => return None,
    };
    // Pages that a split freed count as empty, and no region has fewer than 0 empty pages.
    (max_ptes_none > 0).then_some(RecollapseRisk { thp_enabled, max_ptes_none })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_risk_follows_from_both_settings() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let set = |name: &str, text: &str| {
            let path = root.join(crate::thp::file(name));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(recollapse_risk(&root, true), None, "no such settings");
        set("khugepaged/max_ptes_none", "511\n");
        let risk = |thp_enabled| Some(RecollapseRisk { thp_enabled, max_ptes_none: 511 });
        for (enabled, expected) in [
            ("[always] madvise never", [risk(ThpScope::Always), risk(ThpScope::Always)]),
            ("always [madvise] never", [None, risk(ThpScope::Madvise)]),
            ("always madvise [never]", [None, None]),
        ] {
            set("enabled", enabled);
            assert_eq!([false, true].map(|advised| recollapse_risk(&root, advised)), expected);
        }
        set("enabled", "[always] madvise never");
        set("khugepaged/max_ptes_none", "0\n");
        assert_eq!(recollapse_risk(&root, true), None);
    }
}
