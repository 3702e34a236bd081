//! Sources of accesses, as all simulations take them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use hugepilot_kernel::find_program;
use hugepilot_kernel::proc::{printable, printable_path};
use hugepilot_render::grouped;
use hugepilot_sim::Pattern;
use hugepilot_trace::TraceError;
use hugepilot_trace::simulate::{AccessSource, Job, Pass};
use hugepilot_trace::source::{Engine, TraceOptions, TraceSource, TraceWindow};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::graph::traced::TracedArgs;
use crate::interrupt::Interrupt;
use crate::output::Progress;
use crate::recording::{RecordFlag, RunFiles};

/// Seed of patterns.
const SEED: u64 = 1;
const HEADING: &str = "Source of accesses";

#[derive(Args)]
pub(super) struct SourceArgs {
    /// Traces that `hugepilot trace` wrote, each a process
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Program and arguments. It runs in --engine, and its accesses are simulated meanwhile
    #[arg(last = true, value_name = "CMD", num_args = 1.., value_hint = ValueHint::ExecutablePath,
          conflicts_with_all = ["from_phase", "to_phase"])]
    command: Vec<OsString>,
    /// Engine that runs CMD: qemu, or lackey, which is hundreds of times slower
    #[arg(help_heading = HEADING, long, value_name = "NAME", default_value_t = Engine::Qemu)]
    engine: Engine,
    /// Accesses by a rule, and the size of their memory, such as random:1GiB: random, cyclic,
    /// stream, skewed or gather; requires --max-accesses. Repeatable
    #[arg(help_heading = HEADING, long, value_name = "KIND:SIZE", requires = "max_accesses",
          conflicts_with_all = ["from_phase", "to_phase"])]
    pattern: Vec<Pattern>,
    #[command(flatten)]
    graph: TracedArgs,
    /// Accesses omitted at the start of each source
    #[arg(help_heading = HEADING, long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// First N of each M accesses after those, such as 1000000/100000000 [default: all]
    #[arg(help_heading = HEADING, long, value_name = "N/M")]
    window: Option<TraceWindow>,
    /// Accesses of each source after which it ends [default: unlimited]
    #[arg(help_heading = HEADING, long, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    max_accesses: Option<u64>,
    #[command(flatten)]
    record: RecordFlag,
}

/// Sources and their names.
pub(super) struct Sources {
    all: Vec<AccessSource>,
    names: Vec<String>,
    trace: TraceOptions,
}

impl SourceArgs {
    /// Returns the sources.
    ///
    /// # Errors
    /// None is named.
    pub(super) fn sources(&self) -> Result<Sources, Failure> {
        let mut all: Vec<(AccessSource, String)> = Vec::new();
        for path in &self.files {
            let name = printable_path(path);
            all.push((AccessSource::Trace(TraceSource::File(path.clone())), name));
        }
        for &pattern in &self.pattern {
            all.push((AccessSource::Pattern(pattern, SEED), pattern.to_string()));
        }
        for graph in self.graph.traces() {
            let name = TracedArgs::name_of(&graph);
            all.push((AccessSource::Trace(TraceSource::Graph(Box::new(graph))), name));
        }
        if !self.command.is_empty() {
            let words = self.command.iter().map(|word| printable(word.as_encoded_bytes()));
            let name = words.collect::<Vec<_>>().join(" ");
            let (command, engine) = (self.command.clone(), self.engine);
            all.push((AccessSource::Trace(TraceSource::Program { command, engine }), name));
        }
        if all.is_empty() {
            let help = "name a program, a trace, a graph kernel or a pattern: -- ./solve, \
                        solve.trace, --graph kronecker:18 --kernel bfs, or --pattern random:1GiB \
                        --max-accesses 100000000";
            return Err(
                Failure::new("no source of accesses", Exit::Error).with_help([help.to_owned()])
            );
        }
        let trace = TraceOptions {
            from_phase: self.graph.from_phase.clone(),
            to_phase: self.graph.to_phase.clone(),
            skip: self.skip,
            window: self.window,
            max_accesses: self.max_accesses,
        };
        let (all, names) = all.into_iter().unzip();
        Ok(Sources { all, names, trace })
    }
}

impl SourceArgs {
    /// Opens the journal, and the recording that a flag names.
    pub(super) fn files(&self, journal: Option<&Path>) -> anyhow::Result<RunFiles> {
        self.check_outputs(&[journal])?;
        RunFiles::open(journal, self.record.path())
    }

    /// Whether accesses of a program are omitted.
    pub(super) const fn is_part(&self) -> bool {
        let is_of_phases = self.graph.from_phase.is_some() || self.graph.to_phase.is_some();
        is_of_phases || self.skip > 0 || self.window.is_some() || self.max_accesses.is_some()
    }

    /// Whether a source is a graph kernel or a pattern, whose mappings no process has.
    pub(super) fn has_synthetic(&self) -> bool {
        !self.pattern.is_empty() || !self.graph.traces().is_empty()
    }

    /// Tests that no output replaces a source or another output.
    ///
    /// # Errors
    /// One does.
    pub(super) fn check_outputs(&self, outputs: &[Option<&Path>]) -> Result<(), Failure> {
        let program = self.command.first().and_then(|name| find_program(name).ok());
        let sources = self.files.iter().chain(&program);
        let mut used: Vec<PathBuf> = sources.map(|path| resolved(path)).collect();
        for output in outputs.iter().copied().chain([self.record.path()]).flatten() {
            let path = resolved(output);
            if used.contains(&path) {
                let shown = printable_path(output);
                let failure = Failure::new(format!("cannot write {shown}"), Exit::Error);
                return Err(failure
                    .because("another argument names the same file")
                    .with_help(["name another file".to_owned()]));
            }
            used.push(path);
        }
        Ok(())
    }
}

/// Returns the path without links; of a new file, that of its directory.
fn resolved(path: &Path) -> PathBuf {
    let of_new = || {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(parent.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(of_new).unwrap_or_else(|| path.to_owned())
}

impl Sources {
    /// Returns the names, as reports have them.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Runs a simulation with progress. An interruption ends the sources, and the report has what
    /// they gave.
    pub(super) fn simulate<T, E: From<TraceError> + From<std::io::Error>>(
        &self,
        each: impl FnOnce(&mut Job<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let interrupt = Interrupt::listen()?;
        let progress = Progress::new();
        let begun = std::time::Instant::now();
        let mut show = |pass: Pass, accesses: u64| {
            #[allow(clippy::cast_precision_loss)]
            let (count, seconds) = (accesses as f64, begun.elapsed().as_secs_f64());
            let rate = count / seconds.max(1e-3) / 1e6;
            let most = self.trace.max_accesses.map(|most| format!(" of {}", grouped(most as f64)));
            let most = most.unwrap_or_default();
            let pass = match pass {
                Pass::Memory => "finding the memory in use",
                Pass::Simulation => "simulating",
            };
            progress.now(format!("{pass}: {}{most} accesses, {rate:.1} million/s", grouped(count)));
        };
        each(&mut Job {
            sources: &self.all,
            names: &self.names,
            trace: self.trace.clone(),
            interrupted: &|| interrupt.is_asked(),
            progress: &mut show,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_and_a_link_have_one_path() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("b"));
        assert_eq!(resolved(&file), resolved(&folder.path().join("./a")));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(resolved(&file), resolved(&link));
        assert_ne!(resolved(&file), resolved(&folder.path().join("c")));
    }
}
