//! Journal of a tune: a line of JSON for its goal, then one for each round.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use hugepilot_policy::round::{Header, Round};
use hugepilot_policy::tune::TuneGoal;
use serde::Serialize;

/// A journal being written.
pub(super) struct Journal {
    path: PathBuf,
    file: BufWriter<File>,
    /// First error; rounds after it are not written.
    failed: Option<io::Error>,
}

impl Journal {
    /// Creates the file and writes the goal.
    pub(super) fn create(path: &Path, goal: &TuneGoal) -> anyhow::Result<Self> {
        let shown = path.display().to_string();
        let file = hugepilot_kernel::file::create(path).with_context(|| shown.clone())?;
        let mut journal = Self { path: path.to_owned(), file: BufWriter::new(file), failed: None };
        journal.write(&Header::of(goal)).with_context(|| shown)?;
        Ok(journal)
    }

    /// Adds a round. The tune goes on if that fails.
    pub(super) fn add(&mut self, round: &Round) {
        if self.failed.is_none() {
            self.failed = self.write(round).err();
        }
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n")?;
        // Whatever ends the tune, whole rounds stay.
        self.file.flush()
    }

    /// Reports the first error.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let shown = self.path.display().to_string();
        self.failed.map_or(Ok(()), Err).with_context(|| format!("writing {shown}"))
    }
}
