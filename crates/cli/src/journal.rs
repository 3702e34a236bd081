//! Journal files that a user names: a line of JSON for the goal, then one for each round.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use hugepilot_kernel::file;
use hugepilot_policy::journal::{JournalError, JournalLimits, JournalReader, JournalRound};
use hugepilot_policy::round::{Goal, Header};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;

/// Longest cause of a damaged line that is printed.
const MAX_CAUSE: usize = 200;

/// A journal that is being read.
pub(crate) struct JournalFile<'a> {
    path: &'a Path,
    /// Command that reads the standard input as a journal, for help.
    command: &'static str,
    reader: JournalReader<BufReader<File>>,
}

impl<'a> JournalFile<'a> {
    /// Opens a regular file, or the standard input for `-`, and reads the header.
    pub(crate) fn open(path: &'a Path, command: &'static str) -> anyhow::Result<Self> {
        let opened = if path == Path::new(file::STDIN) { file::stdin() } else { file::open(path) };
        let opened = opened.with_context(|| format!("cannot read {}", path.display()))?;
        let reader = JournalReader::new(BufReader::new(opened), JournalLimits::default());
        let reader = reader.map_err(|error| failure(path, command, &error))?;
        Ok(Self { path, command, reader })
    }

    /// The reader, for its header and the length of an incomplete last line.
    pub(crate) const fn reader(&self) -> &JournalReader<BufReader<File>> {
        &self.reader
    }

    /// Calls `each` with every round.
    pub(crate) fn read(&mut self, mut each: impl FnMut(&JournalRound)) -> anyhow::Result<()> {
        for round in &mut self.reader {
            each(&round.map_err(|error| failure(self.path, self.command, &error))?);
        }
        Ok(())
    }
}

/// A journal being written.
pub(crate) struct JournalWriter {
    path: PathBuf,
    file: BufWriter<File>,
    /// First error; rounds after it are not written.
    failed: Option<io::Error>,
}

impl JournalWriter {
    /// Creates the file, if one is named.
    pub(crate) fn at(path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        path.map(Self::create).transpose()
    }

    fn create(path: &Path) -> anyhow::Result<Self> {
        let file = file::create(path).with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), failed: None })
    }

    /// Writes the header.
    pub(crate) fn begin(&mut self, goal: Goal) -> anyhow::Result<()> {
        let shown = self.path.display().to_string();
        self.write(&Header::of(goal)).with_context(|| shown)
    }

    /// Adds a round. The run goes on if that fails.
    pub(crate) fn add(&mut self, round: &impl Serialize) {
        if self.failed.is_none() {
            self.failed = self.write(round).err();
        }
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n")?;
        // Whatever ends the run, whole rounds stay.
        self.file.flush()
    }

    /// Reports the first error.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let shown = self.path.display().to_string();
        self.failed.map_or(Ok(()), Err).with_context(|| format!("writing {shown}"))
    }
}

fn failure(path: &Path, command: &str, error: &JournalError) -> anyhow::Error {
    let shown = path.display();
    let help = match error {
        JournalError::Schema { is_newer: true, .. } => {
            "read it with the version of hugepilot that wrote it".to_owned()
        }
        JournalError::Damaged { line, .. } | JournalError::LongLine { line, .. } if *line > 1 => {
            format!("use the rounds before that line: head -n {} {shown} | {command}", line - 1)
        }
        JournalError::ManyRounds { limit } => {
            format!("use the first rounds: head -n {} {shown} | {command}", limit + 1)
        }
        JournalError::Io(_) => "check the disk, and copy the file".to_owned(),
        _ => "name a file that --journal FILE of hugepilot tune or debloat wrote".to_owned(),
    };
    let cause: String = error.to_string().chars().take(MAX_CAUSE).collect();
    let failure = Failure::new(format!("cannot read journal {shown}"), Exit::Error);
    failure.because(cause).with_help([help]).into()
}
