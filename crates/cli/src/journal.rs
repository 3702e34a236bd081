//! Journal files that a user names: a line of JSON for the goal, then one for each round. A
//! recording of these is read as a journal, too.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, ErrorKind, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hugepilot_kernel::file;
use hugepilot_kernel::proc::printable_path;
use hugepilot_policy::journal::{JournalError, JournalLimits, JournalReader, JournalRound};
use hugepilot_policy::round::{Goal, Header};
use hugepilot_recording::{RecordedJournal, RecordingError, RecordingLimits, RecordingReader};
use hugepilot_units::{Bytes, Nanos};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::not_stdout;

/// Longest cause of a damaged line that is printed.
const MAX_CAUSE: usize = 200;

/// Command that reads journals, for help.
#[derive(Clone, Copy)]
pub(crate) struct JournalUser {
    /// Reads the standard input as a journal.
    command: &'static str,
    /// Commands that write such journals.
    writers: &'static str,
}

impl JournalUser {
    pub(crate) const EXPLAIN: Self = Self { command: "hugepilot explain -", writers: ALL_WRITERS };
    pub(crate) const REPORT: Self = Self { command: "hugepilot report -", writers: ALL_WRITERS };
    pub(crate) const UNDO: Self =
        Self { command: "hugepilot tune --undo -", writers: "tune or daemon" };

    /// Help for a path that is not such a journal.
    fn help(self) -> String {
        let writers = self.writers;
        format!("name a file that --journal FILE or --record FILE of hugepilot {writers} wrote")
    }
}

const ALL_WRITERS: &str = "tune, debloat, daemon or sim";

/// A journal that is being read.
pub(crate) struct JournalFile<'a> {
    path: &'a Path,
    user: JournalUser,
    is_recording: bool,
    /// Start of the recording.
    started: Option<Nanos>,
    pub(crate) reader: JournalReader<Box<dyn BufRead>>,
}

impl<'a> JournalFile<'a> {
    /// Opens a regular file, or the standard input for `-`, and reads the header.
    pub(crate) fn open(path: &'a Path, user: JournalUser) -> anyhow::Result<Self> {
        let opened = if path == Path::new(file::STDIN) { file::stdin() } else { file::open(path) };
        let opened = opened.map_err(|error| {
            let failure = Failure::new(format!("cannot read {}", path.display()), Exit::Error);
            failure.because(error.to_string()).with_help([user.help()])
        })?;
        let failed = |error: &JournalError, is_recording| failure(path, user, is_recording, error);
        let (text, started) = text_of(opened).map_err(|error| failed(&error.into(), true))?;
        let is_recording = started.is_some();
        let reader = JournalReader::new(text, JournalLimits::default());
        let reader = reader.map_err(|error| failed(&error, is_recording))?;
        Ok(Self { path, user, is_recording, started, reader })
    }

    /// Start of the recording; `None` for a journal alone.
    pub(crate) const fn started(&self) -> Option<Nanos> {
        self.started
    }

    /// Calls `each` with every round and its goal. Without a whole round, a cut journal is an
    /// error: the first round may have changed pages.
    pub(crate) fn read(
        &mut self,
        mut each: impl FnMut(&Goal, &JournalRound),
    ) -> anyhow::Result<()> {
        let mut is_empty = true;
        while let Some(round) = self.reader.next() {
            is_empty = false;
            let round =
                round.map_err(|error| failure(self.path, self.user, self.is_recording, &error))?;
            each(self.reader.goal(), &round);
        }
        if is_empty && self.reader.cut_bytes() > 0 {
            let failed = format!("cannot read journal {}", self.path.display());
            let cause = "it was cut in its first round, whose changes are unknown";
            let help = "find the huge pages of a process: hugepilot status -p PID".to_owned();
            let failure = Failure::new(failed, Exit::Error);
            return Err(failure.because(cause).with_help([help]).into());
        }
        Ok(())
    }
}

/// The lines of a journal, and the start of the recording that they are in.
fn text_of(file: File) -> io::Result<(Box<dyn BufRead>, Option<Nanos>)> {
    let mut first = Vec::new();
    (&file).take(RecordingReader::LIKELY_BYTES).read_to_end(&mut first)?;
    let is_recording = RecordingReader::is_likely(&first);
    let whole = Cursor::new(first).chain(BufReader::new(file));
    if !is_recording {
        return Ok((Box::new(whole), None));
    }
    let reader = RecordingReader::new(whole, RecordingLimits::default());
    let reader = reader.map_err(|error| match error {
        RecordingError::Io(error) => error,
        error => io::Error::new(ErrorKind::InvalidData, error),
    })?;
    let started = reader.head().started;
    Ok((Box::new(RecordedJournal::new(reader)), Some(started)))
}

/// A journal being written.
pub(crate) struct JournalWriter {
    path: PathBuf,
    file: BufWriter<File>,
    /// First error; rounds after it are not written.
    failed: Option<io::Error>,
    /// Goal of the last header.
    goal: Option<Goal>,
}

impl JournalWriter {
    /// Opens or creates the file, if one is named. An older journal stays until [`Self::begin`], so
    /// that a command that fails before loses nothing.
    pub(crate) fn at(path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        path.map(Self::create).transpose()
    }

    fn create(path: &Path) -> anyhow::Result<Self> {
        not_stdout(path, "the journal", "--journal")?;
        require_journal(path)?;
        let file =
            file::open_to_write(path).map_err(|error| not_writable("journal", path, &error))?;
        let (path, file) = (path.to_owned(), BufWriter::new(file));
        Ok(Self { path, file, failed: None, goal: None })
    }

    /// Empties the file and writes the header.
    pub(crate) fn begin(&mut self, goal: Goal) -> anyhow::Result<()> {
        let shown = self.path.display().to_string();
        let emptied = self.file.get_ref().set_len(0);
        emptied.and_then(|()| self.write(&Header::of(goal.clone()))).with_context(|| shown)?;
        self.goal = Some(goal);
        Ok(())
    }

    /// Adds a round. The run goes on if that fails.
    pub(crate) fn add(&mut self, round: &impl Serialize) {
        if self.failed.is_none() {
            self.failed = self.write(round).err();
        }
    }

    /// Adds a round of `goal`, after a header if the goal is another than before.
    pub(crate) fn add_of(&mut self, goal: &Goal, round: &impl Serialize) {
        if self.goal.as_ref() != Some(goal) && self.failed.is_none() {
            self.failed = self.write(&Header::of(goal.clone())).err();
            self.goal = Some(goal.clone());
        }
        self.add(round);
    }

    /// Whether the journal is this file.
    pub(crate) fn is_file(&self, file: &File) -> io::Result<bool> {
        let (own, other) = (self.file.get_ref().metadata()?, file.metadata()?);
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    /// Whether the file has this size, or a round could not be written.
    pub(crate) fn is_over(&self, limit: Bytes) -> bool {
        let length = || self.file.get_ref().metadata().map_or(0, |file| file.len());
        self.failed.is_some() || Bytes::new(length()) >= limit
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n")?;
        // Whatever ends the run, whole rounds stay.
        self.file.flush()
    }

    /// Returns the first error.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let shown = self.path.display().to_string();
        self.failed.map_or(Ok(()), Err).with_context(|| format!("writing {shown}"))
    }
}

/// Rejects a file that has something else: it would be lost, such as a log of the program.
fn require_journal(path: &Path) -> Result<(), Failure> {
    let mut first = Vec::new();
    let read = |file: File| file.take(HEAD.len() as u64).read_to_end(&mut first).is_ok();
    if !has_content(path) || !file::open(path).is_ok_and(read) || first == HEAD {
        return Ok(());
    }
    Err(exists(path, "is not a journal", "name another file".to_owned()))
}

/// Rejects an older journal: without it, its promotions could not be undone.
pub(crate) fn require_new(path: &Path) -> Result<(), Failure> {
    if !has_content(path) {
        return Ok(());
    }
    let help = format!("name another file, or remove this one: rm {}", printable_path(path));
    Err(exists(path, "--undo may need it", help))
}

fn has_content(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.is_file() && about.len() > 0)
}

fn exists(path: &Path, why: &str, help: String) -> Failure {
    Failure::new(format!("cannot write journal {}", printable_path(path)), Exit::Error)
        .because(format!("the file exists, and {why}"))
        .with_help([help])
}

/// How each journal begins.
const HEAD: &[u8] = br#"{"schema":"hugepilot.journal/"#;
/// Help for a file of a later version.
const OTHER_VERSION: &str = "read it with the version of hugepilot that wrote it";

/// The failure that no file of this kind can be written to `path`.
pub(crate) fn not_writable(kind: &str, path: &Path, error: &io::Error) -> Failure {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let absent = parent.filter(|parent| error.kind() == ErrorKind::NotFound && !parent.exists());
    let (cause, help) = absent.map_or_else(
        || {
            let help = "name a file in a directory that you may write to".to_owned();
            (error.to_string(), help)
        },
        |parent| {
            let parent = parent.display();
            (
                format!("the directory {parent} does not exist"),
                format!("create it: mkdir -p {parent}"),
            )
        },
    );
    let failure = Failure::new(format!("cannot write {kind} {}", path.display()), Exit::Error);
    failure.because(cause).with_help([help])
}

/// The failure that a journal, or that in a recording, cannot be read.
pub(crate) fn failure(
    path: &Path,
    user: JournalUser,
    is_recording: bool,
    error: &JournalError,
) -> anyhow::Error {
    let (shown, command) = (path.display(), user.command);
    let first_lines = |count: u64| match is_recording {
        true => {
            let lines = r#"sed -n 's/^{"journal":\(.*\)}$/\1/p'"#;
            format!("zcat -f {shown} | {lines} | head -n {count} | {command}")
        }
        false => format!("head -n {count} {shown} | {command}"),
    };
    let help = match error {
        JournalError::Schema { found } if found.starts_with("hugepilot.journal/") => {
            OTHER_VERSION.to_owned()
        }
        JournalError::Damaged { line, .. } | JournalError::LongLine { line, .. } if *line > 1 => {
            format!("use the rounds before that line: {}", first_lines(line - 1))
        }
        JournalError::ManyRounds { limit } => {
            format!("use the first rounds: {}", first_lines(limit + 1))
        }
        JournalError::Io(error) => match error.get_ref().and_then(|one| one.downcast_ref()) {
            None => "check the disk, and copy the file".to_owned(),
            Some(RecordingError::Version { .. }) => OTHER_VERSION.to_owned(),
            Some(RecordingError::Damaged { line, .. } | RecordingError::Long { line, .. })
                if *line > 1 =>
            {
                let before = line - 1;
                format!(
                    "use the lines before that one: zcat -f {shown} | head -n {before} | {command}"
                )
            }
            Some(_) => user.help(),
        },
        _ => user.help(),
    };
    let cause: String = match error {
        JournalError::NoJournal if is_recording => "the recording has no rounds".to_owned(),
        error => error.to_string().chars().take(MAX_CAUSE).collect(),
    };
    let failure = Failure::new(format!("cannot read journal {shown}"), Exit::Error);
    failure.because(cause).with_help([help]).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hugepilot_policy::debloat::{DebloatPolicy, Order};
    use hugepilot_recording::{Line, RecordingWriter};
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_older_journal_stays_until_a_header_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let older = r#"{"schema":"hugepilot.journal/1"}"#;
        fs::write(&path, older).unwrap();
        let mut writer = JournalWriter::at(Some(&path)).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), older, "nothing failed yet");
        assert!(require_new(&path).is_err());
        writer.begin(Goal::Debloat(DebloatPolicy::new(Order::Exact))).unwrap();
        writer.add(&"round");
        writer.finish().unwrap();
        let written = fs::read_to_string(&path).unwrap();
        assert!(written.starts_with('{') && written.ends_with("\"round\"\n"), "{written}");
    }

    #[test]
    fn no_other_file_is_replaced_by_a_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "trial 1: 0.5 s\n").unwrap();
        assert!(JournalWriter::at(Some(&path)).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "trial 1: 0.5 s\n");
        fs::write(&path, "").unwrap();
        assert!(JournalWriter::at(Some(&path)).is_ok() && require_new(&path).is_ok());
    }

    #[test]
    fn a_journal_that_cannot_be_opened_has_a_cause_and_help() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let missing = folder.path().join("missing");
        let read = |user| JournalFile::open(&missing, user).err().unwrap();
        let write = |path: &Path| JournalWriter::at(Some(path)).err().unwrap();
        let not_there = format!("the directory {} does not exist", absent.display());
        let create = format!("mkdir -p {}", absent.display());
        for (error, text, help) in [
            (write(&absent.join("tune.ndjson")), &*not_there, &*create),
            (write(folder.path()), "cannot write journal ", "name a file in a directory"),
            (read(JournalUser::EXPLAIN), "cannot read ", "tune, debloat, daemon or sim wrote"),
            (read(JournalUser::UNDO), "cannot read ", "--record FILE of hugepilot tune or daemon"),
        ] {
            let failure = error.downcast_ref::<Failure>().expect("a failure with help");
            let all = format!("{failure:?}");
            assert!(all.contains(text) && all.contains(help), "{all}");
        }
    }

    /// A journal of six rounds.
    const JOURNAL: &str = include_str!("../../policy/testdata/journal.ndjson");

    #[test]
    fn a_journal_cut_in_its_first_round_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut.ndjson");
        let header = JOURNAL.find('\n').unwrap() + 1;
        fs::write(&path, &JOURNAL[..header]).unwrap();
        assert_eq!(rounds(&path).unwrap(), (0, 0), "nothing was decided");
        fs::write(&path, &JOURNAL[..header + 99]).unwrap();
        let error = rounds(&path).unwrap_err().to_string();
        assert!(error.ends_with("cut in its first round, whose changes are unknown"), "{error}");
    }

    /// A recording with these lines of a journal.
    fn recording(journal: &str) -> Vec<u8> {
        let sample = include_bytes!("../../recording/src/format/samples/version-2.ndjson.gz");
        let head = RecordingReader::new(&sample[..], RecordingLimits::default()).unwrap();
        let mut writer = RecordingWriter::new(Vec::new(), head.head().clone()).unwrap();
        for line in journal.lines() {
            writer.add(&Line::Warning("between".to_owned())).unwrap();
            writer.add_journal(&serde_json::from_str::<Value>(line).unwrap()).unwrap();
            writer.flush().unwrap();
        }
        writer.finish().unwrap()
    }

    fn rounds(path: &Path) -> anyhow::Result<(u64, u64)> {
        let (mut rounds, mut file) = (0, JournalFile::open(path, JournalUser::EXPLAIN)?);
        file.read(|_, _| rounds += 1)?;
        Ok((rounds, file.reader.cut_bytes()))
    }

    #[test]
    fn a_recording_is_read_as_its_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        let whole = recording(JOURNAL);
        fs::write(&path, &whole).unwrap();
        assert_eq!(rounds(&path).unwrap(), (6, 0));
        fs::write(&path, &whole[..whole.len() - 100]).unwrap();
        let (left, cut) = rounds(&path).unwrap();
        assert!(left == 5 && cut > 0, "{left} {cut}");
    }

    #[test]
    fn a_recording_that_cannot_be_read_has_a_cause_and_help() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        let lines: Vec<&str> = JOURNAL.lines().collect();
        let mut damaged = recording(JOURNAL);
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0xff;
        let newer = "{\"head\":{\"schema\":\"hugepilot.recording/99\"}}\n".into();
        for (file, text, help) in [
            (recording(""), "the recording has no rounds", "--record FILE of hugepilot"),
            (b"\x1f\x8b\x08 no gzip member".to_vec(), "not a recording of hugepilot", ""),
            (
                recording(&format!("{}\n{{\"number\":1}}", lines[0])),
                "line 2 is damaged",
                r"\\1/p' | head -n 1 | hugepilot explain -",
            ),
            (damaged, "is damaged", "zcat -f "),
            (newer, "hugepilot.recording/99", "the version of hugepilot that wrote it"),
        ] {
            fs::write(&path, file).unwrap();
            let error = rounds(&path).unwrap_err();
            let failure = error.downcast_ref::<Failure>().expect("a failure with help");
            let all = format!("{failure:?}");
            assert!(all.contains(text) && all.contains(help), "{all}");
        }
    }
}
