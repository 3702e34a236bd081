//! Re-collapse: split regions that become huge pages again, and its possible causes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sentence::Sentence;

const KEEP_SPLIT: &str = "keep them split: \
    echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";
const MAPPED: &str = "the program mapped new memory at the same address";

/// The settings by which khugepaged collapses split regions.
///
/// It collapses a region whose empty base pages do not exceed `max_ptes_none`. Pages that a split
/// freed count as empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("sentence" = true))]
pub struct RecollapseRisk {
    /// Mode under which khugepaged collapses these regions.
    pub thp_enabled: ThpScope,
    /// `khugepaged/max_ptes_none`, above 0.
    pub max_ptes_none: u64,
}

impl Sentence for RecollapseRisk {
    fn text(&self) -> String {
        format!("khugepaged can re-collapse the split huge pages, because {}", reason(self))
    }
    fn help(&self) -> Vec<String> {
        vec![KEEP_SPLIT.to_owned()]
    }
}

fn reason(risk: &RecollapseRisk) -> String {
    let scope = match risk.thp_enabled {
        ThpScope::Always => "transparent_hugepage/enabled is always",
        ThpScope::Madvise => "the program requested huge pages there (MADV_HUGEPAGE)",
    };
    format!("{scope} and khugepaged/max_ptes_none is {}", risk.max_ptes_none)
}

/// Regions that khugepaged collapses, by `transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThpScope {
    /// All regions.
    Always,
    /// Regions for which the program requested huge pages (`MADV_HUGEPAGE`), as here.
    Madvise,
}

/// Possible causes of a re-collapse. New memory that a program maps at the same address is always
/// among them: neither the pagemap nor smaps shows the age of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum RecollapseCause {
    /// khugepaged, as it is set now, or new memory of the program.
    #[text("khugepaged re-collapsed them, because {}; or {MAPPED}", reason(a))]
    #[help(all = a.help())]
    KhugepagedOrProgram(RecollapseRisk),
    /// The program or another tool: khugepaged, as it is set now, does not collapse these regions.
    #[text(
        "{MAPPED}, or the program or another tool collapsed them (MADV_COLLAPSE); khugepaged, as \
         it is set now, does not"
    )]
    NotKhugepaged,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn khugepaged_is_never_the_only_suspect() {
        let risk = RecollapseRisk { thp_enabled: ThpScope::Madvise, max_ptes_none: 511 };
        let by_khugepaged = RecollapseCause::KhugepagedOrProgram(risk);
        assert_eq!(
            by_khugepaged.text(),
            "khugepaged re-collapsed them, because the program requested huge pages there \
             (MADV_HUGEPAGE) and khugepaged/max_ptes_none is 511; or the program mapped new memory \
             at the same address"
        );
        assert_eq!(by_khugepaged.help(), risk.help());
        let by_others = RecollapseCause::NotKhugepaged;
        assert!(by_others.text().contains("new memory") && by_others.help().is_empty());
    }
}
