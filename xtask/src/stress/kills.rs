//! Kills at random moments of the commands that change kernel settings or split for a long time: afterwards, and after the next
//! command where it was SIGKILL, the kernel is as before, and nothing that they started is left.

mod deed;

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::Run;
use super::marked::Mark;
use super::random::Random;
use super::settings::Settings;
use super::tool::{Done, Tool};
use deed::{Deed, Prepared};

/// What hugepilot started is gone so soon after hugepilot itself.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// A command ends so soon after a signal that it handles.
const ENDS_WITHIN: Duration = Duration::from_secs(15);
/// Far more than a command takes that nobody kills.
const LIMIT: Duration = Duration::from_secs(60);
/// From its first change to its last undone, settings are kept here.
const JOURNAL: &str = "/run/hugepilot/settings.json";
/// A command is killed within the time that it takes, and that is taken to be within these bounds.
const TAKES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(2)];

pub(super) fn run(run: &Run<'_>) -> Result<String> {
    ensure!(
        !Path::new(JOURNAL).exists(),
        "a run of hugepilot has settings changed; see `hugepilot doctor`"
    );
    let settings = Settings::read()?;
    let unused = settings.with_pools_of(&settings).differences(&settings);
    ensure!(unused.is_empty(), "pages of the pools are in use: {}", unused.join("; "));

    let tally = rounds(run);
    if Path::new(JOURNAL).exists() {
        // A promise was broken: what a kill left is undone all the same.
        Mark::any().kill();
        Tool::start(run, "doctor", &[])?.wait(run, LIMIT)?;
    }
    // Pools have other counts now, and all their pages are free.
    settings.put_back();
    Ok(tally?.to_string())
}

fn rounds(run: &Run<'_>) -> Result<Tally> {
    let (mut random, mut tally) = (Random::new(run.seed, 4), Tally::default());
    let mut takes = [TAKES[1]; Deed::ALL.len()];
    let mut left_alone = Deed::ALL.into_iter();
    while run.goes_on() {
        let first = left_alone.next();
        let deed = first.unwrap_or_else(|| random.pick(&Deed::ALL));
        let took = &mut takes[deed as usize];
        let kill = if first.is_some() { Kill::NONE } else { Kill::choose(*took, &mut random) };
        if let Some(now) = one(run, deed, kill, &mut random, &mut tally)? {
            // What ended too early for its signal may have been quicker by chance.
            *took = ((*took + now) / 2).max(TAKES[0]);
        }
        run.progress(|| tally.to_string());
    }
    Ok(tally)
}

/// How a command is ended.
#[derive(Clone, Copy, Debug)]
struct Kill {
    /// `None`: not at all.
    signal: Option<Signal>,
    /// Whether the whole process group gets it, as by a terminal.
    group: bool,
    /// How long after the start.
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
                let whom = if self.group { "its process group" } else { "it alone" };
                let name = format!("{signal:?}").replace("Signal::", "SIG").replace('"', "");
                write!(f, "{name} to {whom} {:.3} s after its start", self.after.as_secs_f64())
            }
            None => f.write_str("not killed"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Of each of [`Deed::ALL`].
    kills: [u64; 5],
    by_sigkill: u64,
    /// Commands that ended before the signal came.
    ended_first: u64,
    /// Kills that left a journal, which the next command undid.
    recovered: u64,
    /// Kills of `pool set` that left a count between the two.
    between: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_each: Vec<String> = Deed::ALL
            .iter()
            .zip(self.kills)
            .map(|(deed, kills)| format!("{} {kills}", deed.name()))
            .collect();
        write!(
            f,
            "{} kills ({}), {} of them by SIGKILL; {} more commands ended first; {} times settings were put back by the next \
             command, {} times `pool set` left a count between; 0 settings changed, 0 pages lost, 0 processes left",
            self.kills.iter().sum::<u64>(),
            of_each.join(", "),
            self.by_sigkill,
            self.ended_first,
            self.recovered,
            self.between
        )
    }
}

/// One command, killed, with all that must hold afterwards. How long it took, where it ended by itself.
fn one(
    run: &Run<'_>,
    deed: Deed,
    kill: Kill,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<Option<Duration>> {
    let before = Settings::read()?;
    let prepared = deed.prepare(random, kill.signal.is_some())?;
    let begun = Instant::now();
    let mut tool = Tool::start(run, &prepared.line, &prepared.more())?;
    let until = if kill.signal.is_some() { kill.after } else { TAKES[1] };
    let mut took = None;
    while took.is_none() && begun.elapsed() < until {
        thread::sleep(until.saturating_sub(begun.elapsed()).min(Duration::from_millis(1)));
        took = (!tool.runs()?).then(|| begun.elapsed());
    }
    let was_running = took.is_none() && kill.signal.is_some();
    match kill.signal {
        Some(signal) if was_running => {
            tool.signal(signal, kill.group);
            tally.kills[deed as usize] += 1;
        }
        Some(_) => tally.ended_first += 1,
        None => {}
    }
    if deed == Deed::Daemon && kill.signal.is_none_or(|signal| signal == Signal::HUP) {
        // SIGHUP only has it read its configuration again.
        thread::sleep(Duration::from_millis(100));
        tool.signal(Signal::INT, false);
    }
    let sigkill = was_running && kill.signal == Some(Signal::KILL);
    tally.by_sigkill += u64::from(sigkill);
    let mark = tool.mark.clone();
    let done = tool.wait(run, if was_running { ENDS_WITHIN } else { LIMIT })?;
    let mut ended = Ended { deed, sigkill, before, prepared, mark, done: &done };
    let checked = after(run, &ended, random, tally).and_then(|()| ended.prepared.ends_well());
    checked.with_context(|| format!("{kill}: {}", done.evidence()))?;
    Ok(took)
}

/// A command that has ended.
struct Ended<'a> {
    deed: Deed,
    sigkill: bool,
    before: Settings,
    prepared: Prepared,
    mark: Mark,
    done: &'a Done,
}

fn after(run: &Run<'_>, ended: &Ended<'_>, random: &mut Random, tally: &mut Tally) -> Result<()> {
    if ended.sigkill && ended.deed == Deed::Run {
        // The program goes on, as after SIGKILL of a shell; its pages stay until it ends.
        ended.mark.kill();
    }
    let left = ended.mark.left_after(GONE_WITHIN);
    ensure!(left.is_empty(), "left {GONE_WITHIN:?} after it: {left:?}");
    if ended.sigkill {
        tally.recovered += u64::from(Path::new(JOURNAL).exists());
        let line = ended.deed.recovery(&ended.prepared, random);
        let recovery = Tool::start(run, &line, &[])?;
        let mark = recovery.mark.clone();
        recovery.wait(run, LIMIT)?;
        let left = mark.left_after(GONE_WITHIN);
        ensure!(left.is_empty(), "left by {line}: {left:?}");
    }
    ensure!(!Path::new(JOURNAL).exists(), "{JOURNAL} is still there");
    let now = Settings::read()?;
    let wanted = if ended.deed == Deed::PoolSet {
        ended.before.with_pools_of(&now)
    } else {
        ended.before.clone()
    };
    let differences = wanted.differences(&now);
    ensure!(differences.is_empty(), "not as before: {}", differences.join("; "));
    if let Some(request) = ended.prepared.request {
        tally.between += u64::from(request.is_between(ended.done, ended.sigkill)?);
    }
    Ok(())
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.mark.kill();
    }
}

/// Ends a victim that checks its memory, and says whether it was right.
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
    bail!("the program that was debloated said {last:?}, {status}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_come_within_the_time_and_of_all_kinds() {
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
        for (index, deed) in Deed::ALL.into_iter().enumerate() {
            assert_eq!(deed as usize, index);
        }
    }
}
