//! Sentences about processes that a command excludes.

use hugepilot_record::ExcludedCount;

use crate::sentence::Sentence;
use crate::table::counted;

/// Number of processes, as the subject of a sentence.
pub(crate) fn processes_were(number: u64) -> String {
    counted(number, "process was", "processes were")
}

impl Sentence for ExcludedCount {
    fn text(&self) -> String {
        let Self { excluded, processes, first } = self;
        format!("{excluded} of {} excluded: {}", processes_were(*processes), first.text())
    }
    fn help(&self) -> Vec<String> {
        self.first.help()
    }
}
