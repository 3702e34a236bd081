//! Sentences about processes that a command excludes.

use hugepilot_record::{AccessError, ExcludedCount};

use crate::sentence::Sentence;

impl Sentence for AccessError {
    fn text(&self) -> String {
        self.error.clone()
    }
    fn help(&self) -> Vec<String> {
        self.help.clone()
    }
}

impl Sentence for ExcludedCount {
    fn text(&self) -> String {
        let Self { excluded, processes, first } = self;
        format!("{excluded} of {processes} processes were excluded: {}", first.text())
    }
    fn help(&self) -> Vec<String> {
        self.first.help()
    }
}
