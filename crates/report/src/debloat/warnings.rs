//! Sentences for the warnings of `debloat`.

use hugepilot_record::debloat::DebloatWarning;

use crate::exclusion::processes_were;
use crate::sentence::Sentence;
use crate::table::counted;

impl Sentence for DebloatWarning {
    fn text(&self) -> String {
        match self {
            Self::RecollapseRisk(risk) => risk.text(),
            Self::Recollapsed { huge_pages } => format!(
                "{} re-collapsed by the end; khugepaged or the program did it, or the program \
                 mapped new memory there",
                counted(*huge_pages, "split huge page was", "split huge pages were")
            ),
            Self::Unread { huge_pages } => format!(
                "{} could not be read, because the program forbids it (PROT_NONE) or the memory is \
                 broken; the bloat there is unknown, so the total is a lower bound",
                counted(*huge_pages, "huge page", "huge pages")
            ),
            Self::Sampled { .. } => {
                "only a sample of the huge pages was read; bloat, freed bytes, \
                                     splits and slowdown are estimates for all"
                    .to_owned()
            }
            Self::Shortfall { .. } => shortfall(self),
            Self::StillHuge { huge_pages } => format!(
                "{} not split, although the kernel reported success: it splits no pinned or \
                 shared page",
                counted(*huge_pages, "huge page was", "huge pages were")
            ),
            Self::ProcessExcluded { pid, command, stop } => {
                format!("process {pid} ({command}) was excluded before the end: {stop}")
            }
            Self::Excluded(count) => count.text(),
            Self::NotSampled { not_sampled, processes, error } => {
                format!("{not_sampled} of {} not sampled: {error}", processes_were(*processes))
            }
            Self::TooManyToSample { not_sampled, processes } => format!(
                "{not_sampled} of {} not sampled: the limit of open files is too low for all; the \
                 smallest were omitted",
                processes_were(*processes)
            ),
            Self::NoPrediction { error } => format!("no slowdown is predicted: {error}"),
        }
    }
    fn help(&self) -> Vec<String> {
        match self {
            Self::RecollapseRisk(risk) => risk.help(),
            Self::Excluded(count) => count.help(),
            Self::TooManyToSample { .. } => {
                vec!["raise the limit: ulimit -n 65536 (or LimitNOFILE= of systemd)".to_owned()]
            }
            _ => Vec::new(),
        }
    }
}

fn shortfall(warning: &DebloatWarning) -> String {
    let DebloatWarning::Shortfall {
        freed_bytes,
        requested_bytes,
        excluded_processes,
        protected_huge_pages,
    } = warning
    else {
        return String::new();
    };
    let mut causes = Vec::new();
    if *excluded_processes > 0 {
        causes.push(processes_were(*excluded_processes) + " excluded before the end");
    }
    if *protected_huge_pages > 0 {
        let (one, several) = ("huge page with bloat is", "huge pages with bloat are");
        causes.push(counted(*protected_huge_pages, one, several) + " protected");
    }
    if causes.is_empty() {
        causes.push("this order has no more huge pages to split".to_owned());
    }
    format!("freed {freed_bytes} of {requested_bytes} requested: {}", causes.join(", "))
}

#[cfg(test)]
mod tests {
    use hugepilot_units::Bytes;

    use super::*;

    #[test]
    fn a_shortfall_names_exclusions_before_the_end_of_the_plan() {
        let shortfall = |excluded_processes, protected_huge_pages| {
            let warning = DebloatWarning::Shortfall {
                freed_bytes: Bytes::mib(3),
                requested_bytes: Bytes::mib(4),
                excluded_processes,
                protected_huge_pages,
            };
            warning.text()
        };
        assert_eq!(
            shortfall(0, 0),
            "freed 3MiB of 4MiB requested: this order has no more huge pages to split"
        );
        assert!(shortfall(0, 16).ends_with(": 16 huge pages with bloat are protected"));
        assert!(shortfall(2, 0).ends_with(": 2 processes were excluded before the end"));
        assert!(
            shortfall(2, 16).ends_with("before the end, 16 huge pages with bloat are protected")
        );
    }
}
