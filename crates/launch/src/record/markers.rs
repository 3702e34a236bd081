//! Markers: phases that a program itself writes to a file.
//!
//! The environment variable names a file. Each line that is appended to it begins a phase. A file
//! never blocks the program, and any language can append to one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use hugepilot_record::recording::Phase;
use hugepilot_units::Nanos;
use tempfile::NamedTempFile;

use super::output::phase_name;

/// Environment variable with the path of the file.
pub const MARKERS: &str = "HUGEPILOT_MARKERS";
/// Most bytes that are read at a time.
const MAX_READ: u64 = 64 << 10;

/// Begins a phase of the recording in which this process is, if it is in one.
pub fn begin_phase(name: &str) {
    let file = std::env::var_os(MARKERS).map(|path| OpenOptions::new().append(true).open(path));
    if let Some(Ok(mut file)) = file {
        // The program goes on without its phases.
        let _ = file.write_all(format!("{name}\n").as_bytes());
    }
}

/// File of markers. Removed on drop.
pub(super) struct Markers {
    name: NamedTempFile,
    file: File,
    line: Vec<u8>,
}

impl Markers {
    /// Creates the file.
    pub(super) fn new() -> io::Result<Self> {
        let name = NamedTempFile::with_prefix("hugepilot-markers-")?;
        let file = name.reopen()?;
        Ok(Self { name, file, line: Vec::new() })
    }

    pub(super) fn path(&self) -> &Path {
        self.name.path()
    }

    /// Returns the phases that began since the last call. They get the time of this call.
    pub(super) fn phases(&mut self, time: Nanos) -> Vec<Phase> {
        let mut bytes = Vec::new();
        if Read::by_ref(&mut self.file).take(MAX_READ).read_to_end(&mut bytes).is_err() {
            return Vec::new();
        }
        let mut phases = Vec::new();
        for byte in bytes {
            if byte == b'\n' {
                let name = phase_name(&std::mem::take(&mut self.line));
                phases.push(Phase { time, name });
            } else if (self.line.len() as u64) < MAX_READ {
                self.line.push(byte);
            }
        }
        phases
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn each_appended_line_begins_a_phase_once() {
        let mut markers = Markers::new().unwrap();
        let mut program = File::options().append(true).open(markers.path()).unwrap();
        assert_eq!(markers.phases(Nanos::seconds(1)), []);
        program.write_all(b"load\nsol").unwrap();
        let phase = |time, name: &str| Phase { time: Nanos::seconds(time), name: name.to_owned() };
        assert_eq!(markers.phases(Nanos::seconds(2)), [phase(2, "load")]);
        program.write_all(b"ve\x1b\n").unwrap();
        assert_eq!(markers.phases(Nanos::seconds(3)), [phase(3, "solve\\u{1b}")]);
        assert_eq!(markers.phases(Nanos::seconds(4)), []);
    }
}
