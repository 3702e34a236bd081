//! Runs of `hugepilot sim`, and the records of what they report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

use super::super::records::{Machine, append};
use super::options::{Kernel, Options, Order};
use super::record::{Record, Row};
use crate::run::{self, show};

/// Decisions of a policy in a run of `--accesses` accesses. The paper's programs run for some
/// intervals of 30 s; more decisions let small graphs reach a large budget, too.
const DECISIONS: u64 = 50;

/// Benchmark in progress.
pub(super) struct Bench<'a> {
    pub(super) hugepilot: &'a Path,
    pub(super) options: &'a Options,
    /// Folder for files of a part.
    pub(super) folder: PathBuf,
    machine: Machine,
    records: Mutex<Vec<Record>>,
}

/// Command line, and a row of a table that it made.
pub(super) type Made = (String, Row);

/// Report of a command, and its command line.
pub(super) struct Ran<T> {
    pub(super) report: T,
    pub(super) command: String,
}

impl<'a> Bench<'a> {
    pub(super) fn new(hugepilot: &'a Path, options: &'a Options) -> Result<Self> {
        let folder = run::target().join("bench-sim");
        std::fs::create_dir_all(&folder)?;
        let (machine, records) = (Machine::read(), Mutex::default());
        Ok(Self { hugepilot, options, folder, machine, records })
    }

    /// Keeps a row, prints it, and appends it to `--output`.
    pub(super) fn add(&self, command: &str, row: Row) -> Result<()> {
        let record = Record { row, command: command.to_owned(), machine: self.machine.clone() };
        eprintln!("  {}", record.row.cells().join(" | "));
        self.options.output.as_deref().map_or(Ok(()), |file| append(file, &record))?;
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        Ok(())
    }

    pub(super) fn records(self) -> Vec<Record> {
        self.records.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes rows of each item, on all CPUs, and adds them in the order of the items. What is
    /// simulated does not depend on what runs beside it.
    pub(super) fn each<T: Sync>(
        &self,
        items: &[T],
        rows: impl Fn(&T) -> Result<Vec<Made>> + Sync,
    ) -> Result<()> {
        let (next, made) = (AtomicUsize::new(0), Mutex::new((0, BTreeMap::new())));
        let work = || -> Result<()> {
            while let Some((index, item)) = taken(&next, items) {
                let rows = rows(item).inspect_err(|_| next.store(items.len(), Relaxed))?;
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                let (added, waiting) = &mut *made;
                waiting.insert(index, rows);
                while let Some(rows) = waiting.remove(added) {
                    *added += 1;
                    rows.into_iter().try_for_each(|(command, row)| self.add(&command, row))?;
                }
            }
            Ok(())
        };
        let cpus = available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
        })
    }

    /// Runs `hugepilot sim FLAGS --json [-- PROGRAM]`.
    pub(super) fn sim<T: DeserializeOwned>(
        &self,
        flags: &str,
        program: &[String],
    ) -> Result<Ran<T>> {
        self.sim_with(None, flags, program)
    }

    /// Runs [`Self::sim`] with a variable of the environment.
    pub(super) fn sim_with<T: DeserializeOwned>(
        &self,
        variable: Option<(&str, &str)>,
        flags: &str,
        program: &[String],
    ) -> Result<Ran<T>> {
        let mut command = Command::new(self.hugepilot);
        command.envs(variable);
        let set = variable.map_or_else(String::new, |(name, value)| format!("{name}={value} "));
        Self::run(command, &set, flags, program)
    }

    fn run<T: DeserializeOwned>(
        mut command: Command,
        set: &str,
        flags: &str,
        program: &[String],
    ) -> Result<Ran<T>> {
        command.arg("sim").args(flags.split_whitespace());
        let after = if program.is_empty() { None } else { Some("--") };
        let shown = format!("{set}{}{}", show(&command), shown_program(program));
        command.arg("--json").args(after).args(program);
        Ok(Ran { report: run::json(&mut command)?, command: shown })
    }

    /// Flags of a kernel on the Kronecker graph: enough runs for `--accesses`.
    pub(super) fn graph(&self, kernel: &str, order: Order) -> String {
        let Options { scale, accesses, .. } = self.options;
        let reorder = match order {
            Order::Original => String::new(),
            Order::Dbg => format!(" --reorder {}", order.name()),
        };
        format!(
            "--graph kronecker:{scale}{reorder} --kernel {kernel} --trials 32 --max-accesses \
             {accesses}"
        )
    }

    /// Flag of the time between decisions.
    pub(super) fn interval(&self) -> String {
        format!("--interval {}", self.options.accesses / DECISIONS)
    }

    /// Writes a file of this benchmark, and returns its path.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Compiles a C program of this benchmark.
    pub(super) fn compiled(&self, name: &str, text: &str) -> Result<String> {
        let source = self.file(&format!("{name}.c"), text)?;
        let program = self.folder.join(name);
        let mut command = Command::new("cc");
        run::output(command.args(["-O2", "-o"]).arg(&program).arg(source))
            .map_err(anyhow::Error::msg)?;
        Ok(program.to_string_lossy().into_owned())
    }

    /// Path of the release binary, as a word of a program.
    pub(super) fn own(&self) -> String {
        self.hugepilot.to_string_lossy().into_owned()
    }
}

/// The next item that no worker has taken, and its index.
fn taken<'a, T>(next: &AtomicUsize, items: &'a [T]) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Relaxed);
    items.get(index).map(|item| (index, item))
}

/// A program after `--`, without the folder of the executable.
pub(super) fn shown_program(program: &[String]) -> String {
    let Some((first, rest)) = program.split_first() else { return String::new() };
    let name = Path::new(first).file_name().unwrap_or_default().to_string_lossy();
    let words = std::iter::once(name.into_owned()).chain(rest.iter().cloned());
    format!(" -- {}", words.collect::<Vec<_>>().join(" "))
}

/// Words of a program.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns why no program can be traced.
pub(super) fn no_qemu() -> Option<String> {
    (!run::in_path("qemu-x86_64")).then(|| "qemu-x86_64 is missing (Debian: qemu-user)".to_owned())
}

/// Mappings of the properties of a kernel, for policy `prefix`.
pub(super) fn properties(kernel: Kernel) -> &'static [&'static str] {
    match kernel {
        Kernel::Bfs => &["property:parents"],
        Kernel::Sssp => &["property:distances"],
        Kernel::Pr => &["property:shares", "property:ranks"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_without_the_folder_of_the_program() {
        assert_eq!(shown_program(&words("/a/b/pr -n 2")), " -- pr -n 2");
        assert_eq!(shown_program(&[]), "");
    }
}
