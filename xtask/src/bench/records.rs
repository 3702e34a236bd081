//! Files of measurements, one JSON object per line, and the circumstances that each contains.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::run;

/// Circumstances of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) date: String,
    pub(super) cpu: String,
    pub(super) cpus: usize,
    pub(super) kernel: String,
    /// Commit of the working tree, with `+` if the tree differs from it.
    pub(super) commit: String,
}

impl Machine {
    pub(super) fn read() -> Self {
        let text = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            command.args(args).current_dir(run::root());
            run::output(&mut command).map_or_else(|_| "unknown".into(), |out| out.trim().to_owned())
        };
        // The runs of earlier invocations do not change the program.
        let changed = text("git", &["status", "--porcelain", "--", ".", ":!docs/runs"]);
        let changed = !changed.is_empty();
        let commit = text("git", &["rev-parse", "--short", "HEAD"]);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            date: text("date", &["-u", "+%F"]),
            cpu: cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            commit: format!("{commit}{}", if changed { "+" } else { "" }),
        }
    }
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// Model of the CPU, with family and model, because virtual machines shorten names.
fn cpu(cpuinfo: &str) -> String {
    let field = |name| field(cpuinfo, name).unwrap_or("?");
    format!("{} (family {} model {})", field("model name"), field("cpu family"), field("model"))
}

/// Describes each set of circumstances once.
pub(super) fn circumstances<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> String {
    let mut machines: Vec<&Machine> = machines.into_iter().collect();
    machines.dedup();
    let mut text = String::new();
    for Machine { date, cpu, cpus, kernel, commit } in machines {
        let _ = writeln!(text, "{date}, {cpus} CPUs {cpu}, Linux {kernel}, commit {commit}");
    }
    text
}

/// Appends a record to a file.
pub(super) fn append(file: &Path, record: &impl Serialize) -> Result<()> {
    let line = format!("{}\n", serde_json::to_string(record)?);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let opened = File::options().append(true).create(true).open(file);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| format!("cannot write {}", file.display()))
}

/// Reads the records of a file.
pub(super) fn read<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let record = |(index, line)| {
        serde_json::from_str(line).with_context(|| format!("{}:{}", file.display(), index + 1))
    };
    text.lines().enumerate().map(record).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn machine() -> Machine {
        Machine {
            date: "2026-01-02".into(),
            cpu: "CPU".into(),
            cpus: 2,
            kernel: "6.18".into(),
            commit: "abc".into(),
        }
    }

    #[test]
    fn records_are_appended_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.ndjson");
        let records = [machine(), Machine { cpus: 4, ..machine() }];
        records.iter().for_each(|record| append(&file, record).unwrap());
        assert_eq!(read::<Machine>(&file).unwrap(), records);
        fs::write(&file, "{}\n").unwrap();
        assert!(format!("{:#}", read::<Machine>(&file).unwrap_err()).contains("runs.ndjson:1"));
    }

    #[test]
    fn circumstances_are_named_once() {
        let line = "2026-01-02, 2 CPUs CPU, Linux 6.18, commit abc\n";
        assert_eq!(circumstances([&machine(), &machine()]), line);
        let other = Machine { commit: "def".into(), ..machine() };
        assert_eq!(circumstances([&machine(), &other]).lines().count(), 2);
    }

    #[test]
    fn the_cpu_is_named_with_family_and_model() {
        let text = "processor : 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu(text), "AMD EPYC (family 25 model 17)");
    }
}
