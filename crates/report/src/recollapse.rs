//! Sentences about re-collapse.

use hugepilot_record::{RecollapseCause, RecollapseRisk, ThpScope};

use crate::sentence::Sentence;

const KEEP_SPLIT: &str = "keep them split: \
    echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";

impl Sentence for RecollapseRisk {
    fn text(&self) -> String {
        format!("khugepaged can re-collapse the split huge pages, because {}", reason(self))
    }
    fn help(&self) -> Vec<String> {
        vec![KEEP_SPLIT.to_owned()]
    }
}

impl Sentence for RecollapseCause {
    fn text(&self) -> String {
        let mapped = "the program mapped new memory at the same address";
        match self {
            Self::KhugepagedOrProgram(risk) => {
                format!("khugepaged re-collapsed them, because {}; or {mapped}", reason(risk))
            }
            Self::NotKhugepaged => format!(
                "{mapped}, or the program or another tool collapsed them (MADV_COLLAPSE); \
                 khugepaged, as it is set now, does not"
            ),
        }
    }
    fn help(&self) -> Vec<String> {
        match self {
            Self::KhugepagedOrProgram(risk) => risk.help(),
            Self::NotKhugepaged => Vec::new(),
        }
    }
}

fn reason(risk: &RecollapseRisk) -> String {
    let scope = match risk.thp_enabled {
        ThpScope::Always => "transparent_hugepage/enabled is always",
        ThpScope::Madvise => "the program requested huge pages there (MADV_HUGEPAGE)",
    };
    format!("{scope} and khugepaged/max_ptes_none is {}", risk.max_ptes_none)
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
