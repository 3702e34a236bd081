//! File of runs: a line of JSON for each, appended as soon as it ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use hugepilot_kernel::file;
use hugepilot_units::Bytes;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ExperimentError;

/// Name and version of a line.
pub const SCHEMA: &str = "hugepilot.lab-run/1";
/// Largest file of runs: a million of them.
const MAX: Bytes = Bytes::gib(1);

/// A run of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabRun {
    /// [`SCHEMA`].
    pub schema: String,
    /// Experiment.
    pub experiment: String,
    /// Scale.
    pub scale: String,
    /// Panel; empty if the experiment has one only.
    pub panel: String,
    /// Weather.
    pub weather: String,
    /// Cell.
    pub cell: String,
    /// Number of the round, from 0.
    pub round: u32,
    /// Digest of what ran: a run of another command line is another run.
    pub digest: String,
    /// Time of its start, in seconds since 1970, UTC.
    pub unix_seconds: u64,
    /// Version of hugepilot.
    pub version: String,
    /// Machine.
    pub machine: LabMachine,
    /// Output of the holders of the weather.
    #[serde(default)]
    pub reached: Vec<Value>,
    /// Time from start to end.
    pub seconds: f64,
    /// Share of the CPU time that the hypervisor took during the run; `None` if unknown.
    pub steal_ratio: Option<f64>,
    /// Measured values by name, `value` first; empty if it failed.
    pub values: BTreeMap<String, f64>,
    /// Why it has no value.
    pub failed: Option<String>,
}

/// Machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabMachine {
    /// Model of the processor, with family and model, because virtual machines shorten names.
    pub cpu: String,
    /// Processors that may be used.
    pub cpus: u64,
    /// Memory, in bytes, in whole GiB: equal machines differ by some KiB.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
}

impl LabMachine {
    /// The machine in words.
    pub fn text(&self) -> String {
        let Self { cpu, cpus, memory_bytes, kernel } = self;
        let memory = Bytes::new(*memory_bytes);
        format!("{cpus} CPUs {cpu}, {memory}, Linux {kernel}")
    }
}

impl LabRun {
    /// The value of its experiment's measure.
    pub fn value(&self) -> Option<f64> {
        self.value_of(1)
    }

    /// The value of the program with this number, from 1: that of the cell, or of one beside it.
    pub fn value_of(&self, program: usize) -> Option<f64> {
        self.values
            .get(&value_name(program))
            .copied()
            .filter(|value| value.is_finite() && *value > 0.0)
    }
}

/// Name of the value of the program with this number, from 1.
pub fn value_name(program: usize) -> String {
    if program == 1 { "value".to_owned() } else { format!("value{program}") }
}

/// Digest of texts that determine a run (FNV-1a, 64 bits, in hexadecimal).
pub fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for text in texts {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
    format!("{hash:016x}")
}

/// Reads the runs of a file; a file that does not exist has none. Bytes after the last line end do
/// not count: a crash cut that line off.
///
/// # Errors
/// [`ExperimentError::Runs`] with the line and the cause.
pub fn read(path: &Path) -> Result<Vec<LabRun>, ExperimentError> {
    let bytes = match file::read(path, MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ExperimentError::file("read", path, error)),
    };
    let mut runs = Vec::new();
    let text = String::from_utf8_lossy(&bytes[..whole(&bytes)]);
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str::<LabRun>(line) {
            Ok(run) if run.schema == SCHEMA => runs.push(run),
            Ok(run) => {
                let cause = format!("its schema is {:?}, not {SCHEMA}", run.schema);
                return Err(ExperimentError::runs(path, index + 1, cause));
            }
            Err(error) => return Err(ExperimentError::runs(path, index + 1, error.to_string())),
        }
    }
    Ok(runs)
}

/// Length of the complete lines of a file.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
}

/// File of runs to append to, locked against other runs of hugepilot until it is dropped.
#[derive(Debug)]
pub struct RunsFile {
    file: File,
    path: PathBuf,
}

impl RunsFile {
    /// Opens the file, creates it if there is none, and removes a last line that a crash cut off.
    ///
    /// # Errors
    /// [`ExperimentError::File`], if the file cannot be created, or another run of hugepilot
    /// appends to it.
    pub fn open(path: &Path) -> Result<Self, ExperimentError> {
        let opened = || -> std::io::Result<File> {
            let mut file = file::open_to_write(path)?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            file.set_len(whole(&file::read(path, MAX)?) as u64)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = opened().map_err(|error| ExperimentError::file("lock", path, error))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends a run.
    ///
    /// # Errors
    /// [`ExperimentError::File`], such as ENOSPC.
    pub fn append(&mut self, run: &LabRun) -> Result<(), ExperimentError> {
        let mut written = || -> std::io::Result<()> {
            let line = serde_json::to_string(run)? + "\n";
            self.file.write_all(line.as_bytes())?;
            self.file.sync_data()
        };
        written().map_err(|error| ExperimentError::file("append to", &self.path, error))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn run(weather: &str, cell: &str, round: u32, value: f64) -> LabRun {
        LabRun {
            schema: SCHEMA.to_owned(),
            experiment: "order".to_owned(),
            scale: "small".to_owned(),
            panel: "bfs 1".to_owned(),
            weather: weather.to_owned(),
            cell: cell.to_owned(),
            round,
            digest: digest([weather, cell]),
            unix_seconds: 1_800_000_000,
            version: "0.1.0".to_owned(),
            machine: LabMachine { cpu: "CPU".to_owned(), cpus: 2, ..LabMachine::default() },
            reached: Vec::new(),
            seconds: 2.0,
            steal_ratio: Some(0.0),
            values: [("value".to_owned(), value)].into(),
            failed: None,
        }
    }

    #[test]
    fn runs_are_appended_and_read_also_after_a_crash_in_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.ndjson");
        assert_eq!(read(&path).unwrap(), []);
        let [first, second] = [run("none", "base", 0, 1.5), run("none", "thp", 0, 1.25)];
        RunsFile::open(&path).unwrap().append(&first).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"schema\":\"hugepilot.lab-r").unwrap();
        assert_eq!(read(&path).unwrap(), std::slice::from_ref(&first));
        RunsFile::open(&path).unwrap().append(&second).unwrap();
        assert_eq!(read(&path).unwrap(), [first, second]);
        std::fs::write(&path, "{}\n{\"schema\":\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn a_digest_depends_on_each_text_and_their_borders() {
        // Published value of FNV-1a for "a" and a zero byte.
        assert_eq!(digest(["a"]), "089be207b544f1e4");
        assert_ne!(digest(["a", "b"]), digest(["ab"]));
        assert_ne!(digest(["a", "b"]), digest(["b", "a"]));
    }
}
