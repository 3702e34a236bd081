//! Schedule files that a user names.

use std::io::BufReader;
use std::path::Path;

use anyhow::Context;
use hugepilot_kernel::file;
use hugepilot_policy::tune::{NoTime, ScheduleRules};
use hugepilot_record::schedule::{Schedule, ScheduleError};
use hugepilot_units::{Bytes, Nanos};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::new_file::Output;

/// How to get a schedule.
const MAKE: &str = "make one by hugepilot sim pcc --schedule FILE, or from a tune: hugepilot tune \
                    --journal FILE, then explain FILE --schedule OUT";

/// Reads the schedule in a regular file, or in the standard input for `-`. `duration`: of the live
/// run, of which its events are shares.
pub(crate) fn rules(path: &Path, duration: Option<Nanos>) -> anyhow::Result<ScheduleRules> {
    let shown = path.display();
    let opened = if path == Path::new(file::STDIN) { file::stdin() } else { file::open(path) };
    let opened = opened.with_context(|| format!("cannot read {shown}"))?;
    let failed = || Failure::new(format!("cannot replay schedule {shown}"), Exit::Error);
    let schedule = Schedule::read(BufReader::new(opened)).map_err(|error| {
        failed().because(error.to_string()).with_help([help(&error).to_owned()])
    })?;
    if schedule.events().is_empty() {
        return Err(failed().because("it has no event").with_help([MAKE.to_owned()]).into());
    }
    let rules = ScheduleRules::new(&schedule, duration).map_err(|error| {
        let help = match error {
            NoTime::NoSeconds(_) => {
                "state the duration of the program, such as --schedule-time 20s"
            }
            NoTime::NoShare(_) => "omit --schedule-time: the events have seconds",
        };
        failed().because(error.to_string()).with_help([help.to_owned()])
    })?;
    Ok(rules)
}

const fn help(error: &ScheduleError) -> &'static str {
    match error {
        ScheduleError::Schema { is_newer: true, .. } => {
            "replay it with the version of hugepilot that wrote it"
        }
        ScheduleError::Schema { .. } | ScheduleError::NoSchedule { .. } => MAKE,
        ScheduleError::Io(_) => "check the disk, and copy the file",
        _ => "compare the line with the format: hugepilot schema schedule",
    }
}

/// Writes the schedule, and names its file. Returns its size.
pub(crate) fn write(schedule: &Schedule, mut file: Output) -> anyhow::Result<Bytes> {
    schedule.write(&mut file).context("cannot write the schedule")?;
    Ok(file.finish()?)
}
