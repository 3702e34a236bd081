//! Version that wrote a journal.

/// Version of hugepilot, as [`ExplainReport::version`] has it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
use crate::explain::ExplainReport;

/// The note about the version that wrote a journal, if decisions differ.
pub(super) fn note(report: &ExplainReport) -> String {
    if report.is_reproduced() {
        return String::new();
    }
    let by = match &*report.version {
        VERSION => format!("hugepilot {VERSION}, perhaps by another build of it than this"),
        version => format!("hugepilot {version}, and this is {VERSION}"),
    };
    format!("note: the journal was written by {by}; other rules can decide otherwise\n")
}

#[cfg(test)]
mod tests {
    use hugepilot_render::table::Width;

    use super::*;
    use crate::explain::text::explain_text;

    #[test]
    fn decisions_that_differ_have_the_version_of_the_journal() {
        let text = |version: &str, reproduced_decisions| {
            let version = version.to_owned();
            let (rounds, decisions) = (2, 2);
            let report = ExplainReport::default();
            let report =
                ExplainReport { version, rounds, decisions, reproduced_decisions, ..report };
            explain_text(&report, Width::UNLIMITED)
        };
        let note = "note: the journal was written by hugepilot 0.0.9, and this is ";
        assert!(text("0.0.9", 1).starts_with(note), "{}", text("0.0.9", 1));
        assert!(text(VERSION, 1).contains(", perhaps by another build of it than this;"));
        assert_eq!(text("0.0.9", 2), "2 of 2 decisions reproduced\n");
    }
}
