//! `hugepilot lab list`, `run`, `report` and `merge`: experiments and their runs.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use hugepilot_kernel::{OwnMemory, Root, file};
use hugepilot_lab::experiment::plan::{Shard, merge};
use hugepilot_lab::experiment::runner::{Event, RunOptions, run as run_experiment};
use hugepilot_lab::experiment::runs::{self, LabRun};
use hugepilot_lab::experiment::verdict::judge;
use hugepilot_lab::experiment::{Experiment, ExperimentError, catalogue};
use hugepilot_record::Sentence as _;
use hugepilot_render::command_text;
use hugepilot_render::model::Document as _;
use hugepilot_reports::experiment::{LIST_SCHEMA, LabList, LabReport, ListedExperiment, SCHEMA};

use hugepilot_units::Bytes;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::new_file::{Output, require_free};
use crate::output::{Progress, finish, finish_report, is_stdout, note, width};
use crate::recover;
use crate::report::write_report;

/// Largest file that defines an experiment.
const MAX_DEFINITION: Bytes = Bytes::mib(1);
/// Time to measure the activity of the machine before the first run.
const ACTIVITY: Duration = Duration::from_secs(2);

/// List the experiments: claim, source and time of each
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 listed, 2 error")]
pub(super) struct ListArgs {
    /// Output as one JSON object (schema hugepilot.lab-list/1)
    #[arg(long)]
    json: bool,
}

/// Run an experiment, interleaved, and append each run to a file
///
/// Interrupted or killed, the same command goes on where it ended. A run that failed is recorded
/// with its cause, and is repeated by the same command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo hugepilot lab run pressure                         THP in scarce memory, in 15 minutes
  sudo hugepilot lab run pressure --scale paper           as in the paper: 20 GiB, hours
  sudo hugepilot lab run pressure --shard 1/4 -o 1.ndjson
                                                          a quarter of it, for one of four jobs
  hugepilot lab run my.toml                               an experiment of your own

Exit status: 0 all runs have values, 1 some failed or it was interrupted, 2 error")]
pub(super) struct RunArgs {
    /// Experiment of `lab list`, or a TOML file
    #[arg(value_name = "NAME|FILE")]
    experiment: String,
    /// Size of the experiment
    #[arg(long, value_name = "NAME", default_value = "small")]
    scale: String,
    /// Part of the experiment: NUMBER of COUNT, from 1
    #[arg(long, value_name = "NUMBER/COUNT", default_value = "1/1")]
    shard: Shard,
    /// Rounds [default: as the experiment states]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// File of runs [default: lab/NAME.ndjson]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Folder of graphs and other files that are made once
    #[arg(long, value_name = "DIRECTORY", default_value = "lab/data")]
    data: PathBuf,
}

/// Report on runs: values, speedups, and whether each claim was reproduced
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hugepilot lab report                                    all of lab/*.ndjson
  hugepilot lab report lab/pressure.ndjson -o p.html      a page for a browser
  hugepilot lab report a.ndjson b.ndjson --mixed          runs of several machines

Exit status: 0 reported, 2 error")]
pub(super) struct ReportArgs {
    /// Files of runs [default: lab/*.ndjson]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// File of the report, such as x.html, in the format of its extension [default: text on the
    /// standard output]
    #[arg(short, long, value_name = "OUT", value_hint = ValueHint::FilePath,
          conflicts_with = "json")]
    output: Option<PathBuf>,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// Definition of an experiment of your own; repeatable
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    experiment: Vec<PathBuf>,
    /// Permit runs of several machines
    #[arg(long)]
    mixed: bool,
    /// Output as one JSON object (schema hugepilot.lab-report/1)
    #[arg(long)]
    json: bool,
}

/// Merge files of runs, such as those of shards, into one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hugepilot lab merge 0.ndjson 1.ndjson 2.ndjson -o pressure.ndjson

Exit status: 0 merged, 2 error")]
pub(super) struct MergeArgs {
    /// Files of runs
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// File of the merged runs
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Replace the file of merged runs, if it exists
    #[arg(long)]
    force: bool,
    /// Permit runs of several machines
    #[arg(long)]
    mixed: bool,
}

pub(super) fn list(args: &ListArgs) -> anyhow::Result<Exit> {
    let listed = catalogue::all().map_err(failed)?.into_iter().map(|one| ListedExperiment {
        minutes: one.scale.iter().map(|(name, scale)| (name.clone(), scale.minutes)).collect(),
        name: one.name,
        claim: one.claim,
        source: one.source,
    });
    let list = LabList { schema: LIST_SCHEMA.to_owned(), experiments: listed.collect() };
    finish_report(&list, args.json)?;
    Ok(Exit::Yes)
}

pub(super) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    let mut experiment = find(&args.experiment)?;
    experiment.rounds = args.rounds.unwrap_or(experiment.rounds);
    check_memory(&experiment, &args.scale)?;
    let default = PathBuf::from(format!("lab/{}.ndjson", experiment.name));
    let output = args.output.clone().unwrap_or(default);
    require_free(&output, true)?;
    create_folder(&args.data)?;
    if let Some(folder) = output.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        create_folder(folder)?;
    }
    let options = RunOptions {
        scale: args.scale.clone(),
        shard: args.shard,
        output,
        data: args.data.clone(),
        program: std::env::current_exe()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    // A killed run may have left prefetchers or pools changed.
    recover::pending();
    let interrupt = Interrupt::listen()?;
    let progress = Progress::new();
    let (mut failures, mut is_first) = (0, true);
    let ran = run_experiment(&experiment, &options, &|| interrupt.is_asked(), &mut |event| {
        if std::mem::take(&mut is_first) {
            warn_of_noise(&progress, &interrupt);
        }
        failures += u32::from(matches!(&event, Event::Ended(run) if run.failed.is_some()));
        narrate(&progress, &event);
    });
    drop(progress);
    let file = options.output.display();
    match ran {
        Ok(0) => note(&format!("nothing is due: {file} has all runs")),
        Ok(_) => {}
        Err(ExperimentError::Interrupted) => {
            failures += 1;
            note(&format!("interrupted: the same command goes on after the runs in {file}"));
        }
        Err(error) => return Err(failed(error).into()),
    }
    let report = report(&[experiment], &runs::read(&options.output).map_err(failed)?);
    finish(&command_text(&report, width()))?;
    Ok(if failures == 0 { Exit::Yes } else { Exit::No })
}

fn create_folder(path: &Path) -> Result<(), Failure> {
    let cause = match std::fs::create_dir_all(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            "the file exists, and is not a folder".to_owned()
        }
        Err(error) => error.to_string(),
    };
    let failure = Failure::new(format!("cannot create the folder {}", path.display()), Exit::Error);
    Err(failure.because(cause).with_help(["name another folder: --data, --output".to_owned()]))
}

/// Prints a warning for each cause of noise, once, before the first command runs.
fn warn_of_noise(progress: &Progress, interrupt: &Interrupt) {
    progress.now("measuring the activity of the machine".to_owned());
    let stopped = || interrupt.is_asked();
    let activity = hugepilot_lab::quiet(&Root::live(), ACTIVITY, &stopped);
    for noise in activity.map(|report| report.reasons).unwrap_or_default() {
        note(&format!("warning: runs will be noisy: {}", noise.text()));
    }
}

fn narrate(progress: &Progress, event: &Event<'_>) {
    match event {
        Event::Prepares(what) => progress.now(format!("preparing {what}")),
        Event::Weather(group) => progress.now(format!("making the weather: {}", group.weather)),
        Event::Begins(group, due, number, all) => progress.now(format!(
            "{number} of {all}: {} {}, {}, round {}",
            group.panel.name(),
            group.weather,
            due.cell,
            due.round + 1
        )),
        Event::Ended(LabRun { weather, cell, failed: Some(cause), .. }) => {
            progress.round(&format!("{weather}, {cell}: {cause}"));
        }
        Event::Ended(_) => {}
    }
}

pub(super) fn report_runs(args: &ReportArgs) -> anyhow::Result<Exit> {
    let mut experiments = catalogue::all().map_err(failed)?;
    for file in &args.experiment {
        experiments.push(defined(file)?);
    }
    let files = if args.files.is_empty() { files_of(Path::new("lab")) } else { args.files.clone() };
    if files.is_empty() {
        let failure = Failure::new("no file of runs is in ./lab", Exit::Error);
        return Err(failure.with_help(["run an experiment: hugepilot lab run NAME".into()]).into());
    }
    let runs = read(&files, args.mixed)?;
    let known = |run: &LabRun| experiments.iter().any(|one| one.name == run.experiment);
    let unknown: BTreeSet<&str> =
        runs.iter().filter(|run| !known(run)).map(|run| &*run.experiment).collect();
    for name in unknown {
        note(&format!("note: runs of {name} are not reported: --experiment FILE defines it"));
    }
    let report = report(&experiments, &runs);
    match args.output.as_deref().filter(|path| !is_stdout(path)) {
        Some(path) => write_report(&report.document(), path, args.force)?,
        None => finish_report(&report, args.json)?,
    }
    Ok(Exit::Yes)
}

/// The report on all runs of these experiments.
fn report(experiments: &[Experiment], runs: &[LabRun]) -> LabReport {
    let mut report = LabReport { schema: SCHEMA.to_owned(), ..LabReport::default() };
    for experiment in experiments {
        for scale in experiment.scale.keys() {
            let judged = judge(experiment, scale, runs).ok();
            report.experiments.extend(judged.filter(|judged| judged.runs > 0));
        }
    }
    for run in runs {
        let machine = run.machine.text();
        if !report.machines.contains(&machine) {
            report.machines.push(machine);
        }
        if !report.versions.contains(&run.version) {
            report.versions.push(run.version.clone());
        }
    }
    report
}

pub(super) fn merge_files(args: &MergeArgs) -> anyhow::Result<Exit> {
    require_free(&args.output, args.force)?;
    let merged = read(&args.files, args.mixed)?;
    let mut file = Output::create(&args.output, "the merged runs", "-o", args.force)?;
    for run in merged {
        let line = serde_json::to_string(&run)? + "\n";
        file.write_all(line.as_bytes())?;
    }
    file.finish()?;
    Ok(Exit::Yes)
}

fn read(files: &[PathBuf], mixed: bool) -> anyhow::Result<Vec<LabRun>> {
    let files = files.iter().map(|file| {
        // For a report, a file that does not exist is an error.
        file::open(file).map_err(|error| unreadable(file, &error))?;
        runs::read(file).map_err(failed)
    });
    Ok(merge(files.collect::<Result<_, _>>()?, mixed).map_err(failed)?)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("cannot read {}", path.display()), Exit::Error);
    failure.because(error.to_string()).with_help(["name a file that this user may read".to_owned()])
}

/// Files of runs in a folder, by name.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|name| name == "ndjson")).collect();
    paths.sort();
    paths
}

fn find(name: &str) -> Result<Experiment, Failure> {
    if let Some(known) = catalogue::named(name).map_err(failed)? {
        return Ok(known);
    }
    let help = || format!("experiments: {}", catalogue::names().collect::<Vec<_>>().join(", "));
    if !name.ends_with(".toml") {
        let failure = Failure::new(format!("no experiment is named {name:?}"), Exit::Error);
        return Err(failure.with_help([help()]));
    }
    defined(Path::new(name))
}

/// The experiment that a file defines.
fn defined(file: &Path) -> Result<Experiment, Failure> {
    let bytes = file::read(file, MAX_DEFINITION).map_err(|error| unreadable(file, &error))?;
    Experiment::parse(&String::from_utf8_lossy(&bytes), &file.display().to_string()).map_err(failed)
}

/// Refuses a scale for which too little memory is available.
fn check_memory(experiment: &Experiment, scale: &str) -> Result<(), Failure> {
    let Some(of) = experiment.scale.get(scale) else {
        let (experiment, scale) = (experiment.name.clone(), scale.to_owned());
        return Err(failed(ExperimentError::NoScale { experiment, scale }));
    };
    let needed = of.memory;
    let room = OwnMemory::room_now();
    if room < needed {
        let text =
            format!("scale {scale} of {} takes {needed}, and {room} may be taken", experiment.name);
        return Err(Failure::new(text, Exit::Error).with_help(["free memory".to_owned()]));
    }
    Ok(())
}

fn failed(error: ExperimentError) -> Failure {
    let help = error.help().map(str::to_owned);
    Failure::new(error.to_string(), Exit::Error).with_help(help)
}
