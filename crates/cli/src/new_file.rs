//! Output files that get their name when they are complete.

use std::io::{self, Write};
use std::path::Path;

use hugepilot_kernel::KernelError;
use hugepilot_kernel::file::NewFile;
use hugepilot_units::Bytes;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::journal::not_writable;
use crate::output::not_stdout;

/// Rejects a link, a FIFO or a device: root would replace that of another user. `replace`: whether
/// a regular file may have the name.
pub(crate) fn require_free(path: &Path, replace: bool) -> Result<(), Failure> {
    let (cause, help) = match path.symlink_metadata() {
        Ok(about) if !about.is_file() => ("not a regular file", "name a new or a regular file"),
        Ok(_) if !replace => {
            ("the file exists", "choose another name with -o, or replace it: --force")
        }
        _ => return Ok(()),
    };
    let failure = Failure::new(format!("cannot write {}", path.display()), Exit::Error);
    Err(failure.because(cause).with_help([help.to_owned()]))
}

/// File that is being written. Unless it is finished, it leaves nothing, and an older file stays.
pub(crate) struct Output(NewFile);

impl Output {
    /// Creates the file, if [`require_free`] allows it. It is not stdout. `kind`: noun of the
    /// file; `flag`: names it.
    pub(crate) fn create(
        path: &Path,
        kind: &str,
        flag: &str,
        replace: bool,
    ) -> Result<Self, Failure> {
        not_stdout(path, kind, flag)?;
        require_free(path, replace)?;
        // Only the text: with the error itself, the help would name capabilities, which do not help
        // here.
        let file = NewFile::create(path, replace).map_err(|error| match error {
            KernelError::Write { source, .. } => {
                not_writable(kind.trim_start_matches("the "), path, &source)
            }
            error => Failure::new(error.to_string(), Exit::Error),
        });
        Ok(Self(file?))
    }

    /// Names the file, and returns its length.
    pub(crate) fn finish(self) -> Result<Bytes, Failure> {
        self.0.finish().map_err(|error| Failure::new(error.to_string(), Exit::Error))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_kept_unless_forced_and_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, "old").unwrap();
        let create = |path: &Path, replace| Output::create(path, "the trace", "-o", replace);
        let error = |path: &Path, replace| create(path, replace).err().unwrap().to_string();
        assert!(error(&path, false).ends_with("the file exists"));
        let mut unfinished = create(&path, true).unwrap();
        unfinished.write_all(b"new").unwrap();
        drop(unfinished);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert!(error(folder.path(), true).ends_with("not a regular file"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(error(&link, true).ends_with("not a regular file"));
    }

    #[test]
    fn stdout_is_not_a_file() {
        let failure = Output::create(Path::new("-"), "the schedule", "--schedule", true).err();
        let expected = "cannot write the schedule to stdout: `--schedule -` would mix it with the \
                        output of the command";
        assert_eq!(failure.unwrap().to_string(), expected);
        assert!(!Path::new("-").exists());
    }
}
