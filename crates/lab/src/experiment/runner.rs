//! Runs what is due of an experiment, and appends each run to its file.

mod cell;
mod process;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use hugepilot_kernel::{Root, cpu, memory, system};
use hugepilot_units::Bytes;
use serde_json::Value;

use self::process::Command;
use super::plan::{Due, Group, Shard, plan};
use super::runs::{self, LabMachine, LabRun, RunsFile, SCHEMA};
use super::values::{number, objects, with_schema};
use super::{Experiment, ExperimentError, Panel, PreparedFile, Tool};

/// Longest time of a command, unless the whole experiment takes longer.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Longest wait for the memory that a weather held.
const RETURN: Duration = Duration::from_secs(60);
/// Share of the memory that may be missing then: other programs use memory, too.
const MISSING: u64 = 50;

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Scale.
    pub scale: String,
    /// Part that runs here.
    pub shard: Shard,
    /// File to which runs are appended.
    pub output: PathBuf,
    /// Folder of prepared files.
    pub data: PathBuf,
    /// The program `hugepilot`.
    pub program: PathBuf,
    /// Version of hugepilot.
    pub version: String,
}

/// Progress of an experiment.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A file is made, or a variable measured.
    Prepares(&'a str),
    /// A weather is made.
    Weather(&'a Group),
    /// A run begins: its number of all that were due.
    Begins(&'a Group, &'a Due, usize, usize),
    /// A run ended.
    Ended(&'a LabRun),
}

/// Runs what is due, and returns the number of runs. The same call later goes on where it ended.
///
/// A failed run is recorded with its cause, and the next one begins. A weather that cannot be made
/// fails all its runs.
///
/// # Errors
/// [`ExperimentError`]: the preparation failed, the file cannot be written, or
/// [`ExperimentError::Interrupted`].
pub fn run(
    experiment: &Experiment,
    options: &RunOptions,
    interrupted: &dyn Fn() -> bool,
    show: &mut dyn FnMut(Event<'_>),
) -> Result<usize, ExperimentError> {
    let scale = experiment.scale.get(&options.scale);
    let minutes = scale.map_or(0.0, |scale| scale.minutes).clamp(0.0, 1e6);
    let timeout = TIMEOUT.max(Duration::from_secs_f64(60.0 * minutes));
    let file = RunsFile::open(&options.output)?;
    let mut lab = Lab { experiment, options, interrupted, timeout, file, machine: machine() };
    let done = runs::read(&options.output)?;
    let planned = |panels: &[Panel]| {
        plan(experiment, &options.scale, panels, options.shard, &done, &lab.machine)
    };
    let mut panels = experiment.panels(&options.scale)?;
    let outlined: Vec<Panel> = panels.iter().map(|panel| lab.outlined(panel)).collect();
    // Paths and probed values do not decide which runs are due.
    let due = planned(&outlined)?;
    for (panel, outlined) in panels.iter_mut().zip(outlined) {
        if due.iter().any(|group| group.panel == outlined) {
            lab.prepare(panel, show)?;
        } else {
            *panel = outlined;
        }
    }
    let groups = planned(&panels)?;
    let all = groups.iter().map(|group| group.runs.len()).sum();
    let mut count = 0;
    for group in &groups {
        lab.group(group, all, &mut count, show)?;
    }
    Ok(count)
}

struct Lab<'a> {
    experiment: &'a Experiment,
    options: &'a RunOptions,
    interrupted: &'a dyn Fn() -> bool,
    timeout: Duration,
    file: RunsFile,
    machine: LabMachine,
}

impl Lab<'_> {
    /// The panel with words in place of paths and probed values.
    fn outlined(&self, panel: &Panel) -> Panel {
        let mut panel = panel.clone();
        let files = self.experiment.file.iter().map(|file| &*file.name);
        let probes = self.experiment.probe.iter().map(|probe| &*probe.name);
        let tools = self.experiment.tool.iter().map(|tool| &*tool.name);
        for name in ["hugepilot"].into_iter().chain(files).chain(probes).chain(tools) {
            panel.set_word(name, name.to_owned());
        }
        panel
    }

    /// Makes the files of a panel, and measures its variables.
    fn prepare(
        &self,
        panel: &mut Panel,
        show: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ExperimentError> {
        panel.set_word("hugepilot", self.options.program.display().to_string());
        self.find_tools(panel)?;
        for file in &self.experiment.file {
            let path = self.options.data.join(panel.filled(&file.file)?);
            panel.set_word(&file.name, path.display().to_string());
            if !path.exists() {
                show(Event::Prepares(&path.display().to_string()));
                self.make(panel, file, &path)?;
            }
        }
        for probe in &self.experiment.probe {
            show(Event::Prepares(&probe.name));
            let words = panel.words(&probe.run)?;
            let ran = self.command(&words)?.output(self.timeout, self.interrupted)?;
            let found = objects(&ran.printed.text);
            let value = with_schema(&found, &probe.schema);
            let value = value.and_then(|object| number(object, &probe.value));
            let value = value.ok_or_else(|| ExperimentError::Command {
                command: words.join(" "),
                cause: ran.cause("it printed no value"),
            })?;
            panel.set_word(&probe.name, value.to_string());
        }
        Ok(())
    }

    /// Sets the variables of the user's programs.
    fn find_tools(&self, panel: &mut Panel) -> Result<(), ExperimentError> {
        for Tool { name, environment, file, help } in &self.experiment.tool {
            let stated =
                std::env::var_os(environment).and_then(|path| std::path::absolute(path).ok());
            let path = std::env::var_os("PATH").unwrap_or_default();
            let folders =
                stated.map_or_else(|| std::env::split_paths(&path).collect(), |one| vec![one]);
            let folder = folders.into_iter().find(|folder| folder.join(file).is_file());
            let folder = folder.ok_or_else(|| ExperimentError::NoTool {
                environment: environment.clone(),
                file: file.clone(),
                help: help.clone(),
            })?;
            panel.set_word(name, folder.display().to_string());
        }
        Ok(())
    }

    /// Makes a file, under another name until it is whole.
    fn make(&self, panel: &Panel, file: &PreparedFile, path: &Path) -> Result<(), ExperimentError> {
        let error = |source| ExperimentError::file("write", path, source);
        std::fs::create_dir_all(&self.options.data).map_err(error)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Another job may make the same file, on another node or in a container with equal pids.
        let unique = format!("{}-{}", self.options.shard.number, std::process::id());
        let partial = path.with_file_name(format!("partial-{unique}-{name}"));
        let mut panel = panel.clone();
        panel.set_word(&file.name, partial.display().to_string());
        let words = panel.words(&file.run)?;
        let ran = self.command(&words)?.output(self.timeout, self.interrupted);
        let ran = ran.inspect_err(|_| _ = std::fs::remove_file(&partial))?;
        if ran.status != Some(0) {
            let _ = std::fs::remove_file(&partial);
            let cause = ran.cause("it failed");
            return Err(ExperimentError::Command { command: words.join(" "), cause });
        }
        std::fs::rename(&partial, path).map_err(error)
    }

    fn command(&self, words: &[String]) -> Result<Command, ExperimentError> {
        let started = Command::start(&self.options.program, words);
        started.map_err(|error| ExperimentError::Command {
            command: words.join(" "),
            cause: error.to_string(),
        })
    }

    /// Runs what is due in one weather.
    fn group(
        &mut self,
        group: &Group,
        all: usize,
        count: &mut usize,
        show: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ExperimentError> {
        if !group.holders.is_empty() {
            show(Event::Weather(group));
            // Cached files would fill what a pressure leaves, and nothing could be fragmented. A
            // weather that requires root says so itself.
            let _ = memory::drop_caches(&Root::live());
        }
        let before = available();
        let (mut holders, mut reached, mut failed) = (Vec::new(), Vec::new(), None);
        for words in &group.holders {
            let mut holder = self.command(words)?;
            match holder.first_object(self.timeout, self.interrupted)? {
                Ok(object) => reached.push(object),
                Err(cause) => failed = Some(format!("no weather: {}: {cause}", words.join(" "))),
            }
            holders.push(holder);
            if failed.is_some() {
                break;
            }
        }
        for due in &group.runs {
            *count += 1;
            show(Event::Begins(group, due, *count, all));
            let mut run = self.begun(group, due, reached.clone());
            if failed.is_none() {
                self.measure(group, due, &mut run)?;
                failed = holders.iter_mut().find_map(Command::lost).map(|cause| {
                    run.values.clear();
                    format!("the weather did not last: {cause}")
                });
            }
            run.failed = failed.clone().or(run.failed);
            self.file.append(&run)?;
            show(Event::Ended(&run));
        }
        // The last one was made within the others.
        while let Some(holder) = holders.pop() {
            holder.end();
        }
        if !group.holders.is_empty() {
            self.await_memory(before);
        }
        Ok(())
    }

    /// Waits until the memory that a weather held is available again: the next one would count it
    /// as used by others.
    fn await_memory(&self, before: Bytes) {
        let begun = Instant::now();
        let wanted = before.get() - before.get() / MISSING;
        while available().get() < wanted && begun.elapsed() < RETURN && !(self.interrupted)() {
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn begun(&self, group: &Group, due: &Due, reached: Vec<Value>) -> LabRun {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        LabRun {
            schema: SCHEMA.to_owned(),
            experiment: self.experiment.name.clone(),
            scale: self.options.scale.clone(),
            panel: group.panel.name(),
            weather: group.weather.clone(),
            cell: due.cell.clone(),
            round: due.round,
            digest: due.digest.clone(),
            unix_seconds: since.map_or(0, |since| since.as_secs()),
            version: self.options.version.clone(),
            machine: self.machine.clone(),
            reached,
            seconds: 0.0,
            steal_ratio: None,
            values: Default::default(),
            failed: None,
        }
    }
}

fn available() -> Bytes {
    memory::mem_info(&Root::live()).map_or(Bytes::ZERO, |info| info.available)
}

/// This machine.
fn machine() -> LabMachine {
    let root = Root::live();
    let cpu = cpu::read(&root).unwrap_or_default();
    LabMachine {
        cpu: format!("{} (family {} model {})", cpu.model_name, cpu.family, cpu.model),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
        memory_bytes: memory::mem_info(&root).map_or(0, |info| {
            const GIB: u64 = 1 << 30;
            info.total.get().div_ceil(GIB) * GIB
        }),
        kernel: system::kernel_release(&root).unwrap_or_default(),
    }
}
