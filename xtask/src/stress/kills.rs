//! Kills, at random moments, of commands that change kernel settings, promote or split.
//! Afterwards (after SIGKILL: after the next command) the settings are as before, and no process is
//! left, also no guard of a trial. The programs that were changed check their memory. Memory that a
//! command held is available again.

mod case;

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hugepilot_testkit::need::available;
use hugepilot_units::Bytes;
use rustix::process::Signal;

use super::Run;
use super::marked::Mark;
use super::settings::Settings;
use super::tool::{CommandResult, Tool};
use crate::random::Random;
use case::{Case, CaseSetup};

/// Limit for the processes that hugepilot started, after its own end.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Limit for a command after a signal that it handles.
const ENDS_WITHIN: Duration = Duration::from_secs(15);
/// Limit for a command without a signal.
const LIMIT: Duration = Duration::from_secs(60);
/// Journal of changed settings, from the first change until all are restored.
const JOURNAL: &str = "/run/hugepilot/settings.json";
/// Limit for the memory that a command held, and how much may be missing: others use memory, too.
const FREE_WITHIN: Duration = Duration::from_secs(20);
const MISSING: Bytes = Bytes::mib(256);
/// Least time within which a command is killed; otherwise, the time that it takes.
const SHORTEST: Duration = Duration::from_millis(10);

pub(super) fn run(run: &Run<'_>) -> Result<String> {
    ensure!(
        !Path::new(JOURNAL).exists(),
        "another run of hugepilot has changed settings; see `hugepilot doctor`"
    );
    let settings = Settings::read()?;
    let unused = settings.with_pools_of(&settings).differences(&settings);
    ensure!(unused.is_empty(), "hugetlb pages are in use: {}", unused.join("; "));

    let tally = rounds(run);
    if Path::new(JOURNAL).exists() {
        // A promise was broken: restore the settings that a kill left changed.
        Mark::any().kill();
        Tool::start(run, "doctor", &[])?.wait(run, LIMIT)?;
    }
    // Pools have other counts now, with all pages free.
    settings.restore();
    Ok(tally?.to_string())
}

fn rounds(run: &Run<'_>) -> Result<Tally> {
    let (mut random, mut tally) = (Random::new(run.seed, 4), Tally::default());
    let mut takes = Case::ALL.map(Case::longest);
    let mut unkilled = Case::ALL.into_iter();
    while run.goes_on() {
        let first = unkilled.next();
        let case = first.unwrap_or_else(|| random.pick(&Case::ALL));
        let took = &mut takes[case as usize];
        let kill = if first.is_some() { Kill::NONE } else { Kill::choose(*took, &mut random) };
        if let Some(now) = one(run, case, kill, &mut random, &mut tally)? {
            // A command that ended before its signal may have been fast by chance.
            *took = ((*took + now) / 2).max(SHORTEST);
        }
        run.progress(|| tally.to_string());
    }
    Ok(tally)
}

/// Way to end a command.
#[derive(Clone, Copy, Debug)]
struct Kill {
    /// Signal; `None` for an unkilled command.
    signal: Option<Signal>,
    /// Whether the whole process group gets it, as from a terminal.
    group: bool,
    /// Time after the start.
    after: Duration,
}

impl Kill {
    const NONE: Self = Self { signal: None, group: false, after: Duration::ZERO };

    fn choose(within: Duration, random: &mut Random) -> Self {
        let handled = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
        let signal = if random.one_in(2) { Signal::KILL } else { random.pick(&handled) };
        let micros = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let group = signal != Signal::KILL && signal != Signal::TERM && random.one_in(2);
        Self { signal: Some(signal), group, after: Duration::from_micros(random.below(micros)) }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.signal {
            Some(signal) => {
                let target = if self.group { "its process group" } else { "it alone" };
                let name = format!("{signal:?}").replace("Signal::", "SIG").replace('"', "");
                write!(f, "{name} to {target} {:.3} s after its start", self.after.as_secs_f64())
            }
            None => f.write_str("not killed"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Kills of each of [`Case::ALL`].
    kills: [u64; Case::ALL.len()],
    by_sigkill: u64,
    /// Commands that ended before the signal.
    ended_first: u64,
    /// Kills after which the next command restored settings from the journal.
    recovered: u64,
    /// Kills of `pool set` that left a count between the old and the new one.
    between: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_each: Vec<String> = Case::ALL
            .iter()
            .zip(self.kills)
            .map(|(case, kills)| format!("{} {kills}", case.name()))
            .collect();
        write!(
            f,
            "{} kills ({}), {} of them by SIGKILL; {} more commands ended first; the next command \
             restored settings {} times, `pool set` left a count between {} times; 0 settings \
             changed, 0 pages lost, 0 processes left",
            self.kills.iter().sum::<u64>(),
            of_each.join(", "),
            self.by_sigkill,
            self.ended_first,
            self.recovered,
            self.between
        )
    }
}

/// Runs and kills a command, and checks all promises. Returns its run time if it ended by itself.
fn one(
    run: &Run<'_>,
    case: Case,
    kill: Kill,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<Option<Duration>> {
    let (before, free) = (Settings::read()?, available());
    let setup = case.prepare(random, kill.signal.is_some())?;
    let begun = Instant::now();
    let mut tool = Tool::start(run, &setup.line, &setup.more())?;
    let until = if kill.signal.is_some() { kill.after } else { case.longest() };
    let mut took = None;
    while took.is_none() && begun.elapsed() < until {
        thread::sleep(until.saturating_sub(begun.elapsed()).min(Duration::from_millis(1)));
        took = (!tool.runs()?).then(|| begun.elapsed());
    }
    let was_running = took.is_none() && kill.signal.is_some();
    match kill.signal {
        Some(signal) if was_running => {
            tool.signal(signal, kill.group);
            tally.kills[case as usize] += 1;
        }
        Some(_) => tally.ended_first += 1,
        None => {}
    }
    if case.is_endless() && kill.signal.is_none_or(|signal| signal == Signal::HUP) {
        // On SIGHUP the daemon only reloads its configuration.
        thread::sleep(Duration::from_millis(100));
        tool.signal(Signal::INT, false);
    }
    let sigkill = was_running && kill.signal == Some(Signal::KILL);
    tally.by_sigkill += u64::from(sigkill);
    let mark = tool.mark.clone();
    let done = tool.wait(run, if was_running { ENDS_WITHIN } else { LIMIT })?;
    let mut ended = EndedCommand { case, sigkill, before, setup, mark, done: &done };
    let checked = after(run, &ended, random, tally)
        .and_then(|()| ended.setup.ends_well())
        .and_then(|()| if case.holds_memory() { is_free(free) } else { Ok(()) });
    checked.with_context(|| format!("{kill}: {}", done.evidence()))?;
    Ok(took)
}

/// Waits until as much memory is available as before.
fn is_free(before: Bytes) -> Result<()> {
    let begun = Instant::now();
    while available() + MISSING < before {
        ensure!(begun.elapsed() < FREE_WITHIN, "{} available, {before} before", available());
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Command that has ended.
struct EndedCommand<'a> {
    case: Case,
    sigkill: bool,
    before: Settings,
    setup: CaseSetup,
    mark: Mark,
    done: &'a CommandResult,
}

fn after(
    run: &Run<'_>,
    ended: &EndedCommand<'_>,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<()> {
    if ended.sigkill && ended.case == Case::Run {
        // The program continues, as after SIGKILL of a shell, and keeps its pages until it ends.
        ended.mark.kill();
    }
    let left = ended.mark.left_after(GONE_WITHIN);
    ensure!(left.is_empty(), "processes left {GONE_WITHIN:?} after its end: {left:?}");
    if ended.sigkill {
        tally.recovered += u64::from(Path::new(JOURNAL).exists());
        let line = ended.case.recovery(&ended.setup, random);
        let recovery = Tool::start(run, &line, &[])?;
        let mark = recovery.mark.clone();
        recovery.wait(run, LIMIT)?;
        let left = mark.left_after(GONE_WITHIN);
        ensure!(left.is_empty(), "processes left by {line}: {left:?}");
    }
    ensure!(!Path::new(JOURNAL).exists(), "{JOURNAL} still exists");
    let now = Settings::read()?;
    let wanted = if ended.case == Case::PoolSet {
        ended.before.with_pools_of(&now)
    } else {
        ended.before.clone()
    };
    let differences = wanted.differences(&now);
    ensure!(differences.is_empty(), "settings differ from before: {}", differences.join("; "));
    if let Some(request) = ended.setup.request {
        tally.between += u64::from(request.is_between(ended.done, ended.sigkill)?);
    }
    Ok(())
}

impl Drop for EndedCommand<'_> {
    fn drop(&mut self) {
        self.mark.kill();
    }
}

/// Ends a victim that checks its memory; an error if the memory was wrong.
fn ends_well(victim: &mut hugepilot_testkit::Victim) -> Result<()> {
    victim.end_input();
    let status = victim.wait(LIMIT);
    let mut last = String::new();
    while let Some(line) = victim.line(LIMIT) {
        last = line;
    }
    if status.success() && last.starts_with("ok") {
        return Ok(());
    }
    bail!("the program that was changed said {last:?}, {status}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_within_the_time_and_of_all_kinds() {
        let mut random = Random::new(1, 0);
        let within = Duration::from_millis(700);
        let kills: Vec<Kill> = (0..500).map(|_| Kill::choose(within, &mut random)).collect();
        assert!(kills.iter().all(|kill| kill.after < within));
        for signal in [Signal::KILL, Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            assert!(
                kills.iter().filter(|kill| kill.signal == Some(signal)).count() > 20,
                "{signal:?}"
            );
        }
        assert!(kills.iter().all(|kill| !(kill.group && kill.signal == Some(Signal::KILL))));
    }

    #[test]
    fn each_command_has_its_count() {
        for (index, case) in Case::ALL.into_iter().enumerate() {
            assert_eq!(case as usize, index);
        }
    }
}
