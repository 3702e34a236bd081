//! Run of the mix in one mode.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use hugepilot_testkit::need::{Need, memory};
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::super::records::Machine;
use super::ballast::Ballasts;
use super::host::{Host, settings};
use super::options::Options;
use super::probe::{self, Group};
use super::program::Running;
use super::record::{Mode, Run, Sample};
use super::timeline::{Event, MIX, events};
use super::tools::Tools;
use crate::status::resident;
use crate::stress::Interruption;

/// Memory that stays free beside the mix.
const RESERVE: Bytes = Bytes::gib(2);
/// Longest time until the first programs have filled their memory.
const FILL_LIMIT: Duration = Duration::from_secs(300);
/// Longest time until the daemon has ended.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Time between two samples.
const EVERY: f64 = 1.0;
/// Seconds between two reads of the memory of each program, which walk its page tables.
const MEMORY_EVERY: f64 = 10.0;
const POLL: Duration = Duration::from_millis(50);

/// Where and how to measure.
pub(super) struct Bench<'a> {
    pub(super) hugepilot: &'a Path,
    /// Folder with the compiled programs.
    pub(super) compiled: &'a Path,
    pub(super) options: &'a Options,
    pub(super) machine: Machine,
    pub(super) interrupted: &'a AtomicBool,
}

impl Bench<'_> {
    /// Runs the mix once.
    pub(super) fn run(&self, mode: Mode) -> Result<Run> {
        let limit = self.options.limit;
        if let Need::Err(cause) = memory(limit + RESERVE) {
            bail!("{cause}; a smaller --limit needs less");
        }
        warm(limit);
        let folder = tempfile::tempdir()?;
        let host = Host::new(mode.thp(), limit)?;
        let tools = Tools {
            group: &host.group,
            compiled: self.compiled,
            folder: folder.path(),
            limit,
            seed: self.options.seed,
            cpus: self.machine.cpus,
        };
        tools.link(self.hugepilot)?;
        let run = Mix::new(self, &tools, mode).run();
        let restored = host.restore();
        let run = run?;
        restored?;
        Ok(run)
    }
}

/// Mix in progress. Its processes are killed on drop.
struct Mix<'a> {
    bench: &'a Bench<'a>,
    tools: &'a Tools<'a>,
    group: Group,
    epoch: Instant,
    /// Start of the run, in seconds since `epoch`.
    origin: f64,
    running: Vec<Running>,
    ballast: Ballasts,
    daemon: Option<Daemon>,
    khugepaged: Option<u32>,
    run: Run,
}

impl<'a> Mix<'a> {
    fn new(bench: &'a Bench<'a>, tools: &'a Tools<'a>, mode: Mode) -> Self {
        let run = Run {
            mode,
            seconds: bench.options.minutes * 60.0,
            limit_bytes: tools.limit.get(),
            seed: tools.seed,
            unix_seconds: 0.0,
            samples: Vec::new(),
            programs: Vec::new(),
            ballast: Vec::new(),
            log: Vec::new(),
            daemon_peak_bytes: 0,
            settings: settings(),
            machine: bench.machine.clone(),
        };
        Self {
            bench,
            tools,
            group: Group::at(tools.group.path()),
            epoch: Instant::now(),
            origin: 0.0,
            running: Vec::new(),
            ballast: Ballasts::default(),
            daemon: None,
            khugepaged: probe::khugepaged(),
            run,
        }
    }

    /// Whether the first programs are ready.
    fn is_begun(&self) -> bool {
        self.origin > 0.0
    }

    /// Seconds since the start of the run.
    fn now(&self) -> f64 {
        self.epoch.elapsed().as_secs_f64() - self.origin
    }

    fn run(mut self) -> Result<Run> {
        let mut events = events().into_iter().peekable();
        while let Some((_, event)) = events.next_if(|event| event.0 <= 0.0) {
            self.apply(event)?;
        }
        self.wait_until_ready()?;
        if self.run.mode == Mode::Daemon {
            self.daemon = Some(Daemon::start(self.bench.hugepilot, self.tools)?);
        }
        self.origin = self.epoch.elapsed().as_secs_f64();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.run.unix_seconds = clock.as_secs_f64();
        let (seconds, mut next, mut next_memory) = (self.run.seconds, 0.0, 0.0);
        while self.now() < seconds {
            let due = events.peek().map_or(f64::MAX, |event| event.0 * seconds);
            self.sleep_until(due.min(next).min(seconds))?;
            while let Some((_, event)) = events.next_if(|event| event.0 * seconds <= self.now()) {
                self.apply(event)?;
            }
            if self.now() >= next {
                next += EVERY;
                self.sample()?;
            }
            if self.now() >= next_memory {
                next_memory += MEMORY_EVERY;
                let now = self.epoch.elapsed().as_secs_f64();
                self.running.iter_mut().for_each(|program| program.note_memory(now));
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Result<Run> {
        if let Some(daemon) = self.daemon.take() {
            self.run.log = daemon.stop()?;
        }
        for program in std::mem::take(&mut self.running) {
            self.run.programs.push(program.end(self.origin));
        }
        self.run.ballast = self.ballast.take(self.origin);
        Ok(self.run)
    }

    /// Changes the mix.
    fn apply(&mut self, event: Event) -> Result<()> {
        let (tools, now) = (self.tools, self.epoch.elapsed().as_secs_f64());
        if self.is_begun() {
            eprintln!("{:>5.0} s  {}", self.now(), describe(event));
        }
        match event {
            Event::Start(index) => {
                self.running.push(Running::start(tools, &MIX[index], self.epoch)?);
            }
            Event::End(index) => {
                let name = MIX[index].name;
                let at = self.running.iter().position(|one| one.program.name == name);
                let program = self.running.remove(at.context("it runs")?);
                self.run.programs.push(program.end(self.origin));
            }
            Event::Grow(index, by) => self.of(index)?.grow(tools.limit, by)?,
            Event::Idle(index) => self.of(index)?.pause(true)?,
            Event::Resume(index) => self.of(index)?.pause(false)?,
            Event::Short => self.ballast.start(tools, &self.group, self.epoch)?,
            Event::Relief => self.ballast.stop(now),
        }
        Ok(())
    }

    fn of(&mut self, index: usize) -> Result<&mut Running> {
        let name = MIX[index].name;
        let found = self.running.iter_mut().find(|one| one.program.name == name);
        found.with_context(|| format!("{name} does not run"))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.running.iter().all(Running::is_ready) {
            ensure!(begun.elapsed() < FILL_LIMIT, "memory is not filled after {FILL_LIMIT:?}");
            self.sleep_until(self.now() + POLL.as_secs_f64())?;
        }
        Ok(())
    }

    /// Waits; an error if a process ends or the user interrupts.
    fn sleep_until(&mut self, at: f64) -> Result<()> {
        loop {
            if self.bench.interrupted.load(Relaxed) {
                return Err(Interruption.into());
            }
            self.running.iter_mut().try_for_each(Running::check)?;
            if let Some(daemon) = &mut self.daemon {
                daemon.check()?;
            }
            let left = at - self.now();
            if left <= 0.0 {
                return Ok(());
            }
            thread::sleep(POLL.min(Duration::from_secs_f64(left)));
        }
    }

    fn sample(&mut self) -> Result<()> {
        ensure!(self.group.kills() == 0, "the kernel killed a program for lack of memory");
        let daemon = self.daemon.as_ref().map(|daemon| daemon.child.id());
        let (daemon_rss_bytes, peak) = daemon.map_or((0, 0), resident);
        self.run.daemon_peak_bytes = peak.max(self.run.daemon_peak_bytes);
        self.run.samples.push(Sample {
            at: self.now(),
            used_bytes: self.group.used()?,
            huge_bytes: self.group.huge()?,
            stalled_seconds: self.group.stalled_seconds(),
            daemon_cpu_seconds: daemon.map_or(0.0, probe::cpu),
            daemon_rss_bytes,
            khugepaged_cpu_seconds: self.khugepaged.map_or(0.0, probe::cpu),
        });
        Ok(())
    }
}

fn describe(event: Event) -> String {
    let name = |index: usize| MIX[index].name;
    match event {
        Event::Start(index) => format!("{} starts", name(index)),
        Event::End(index) => format!("{} ends", name(index)),
        Event::Grow(index, by) => format!("{} grows by {:.1} %", name(index), by * 100.0),
        Event::Idle(index) => format!("{} idles", name(index)),
        Event::Resume(index) => format!("{} is busy again", name(index)),
        Event::Short => "memory goes short".to_owned(),
        Event::Relief => "memory is plentiful again".to_owned(),
    }
}

/// `hugepilot daemon` on the cgroup. Killed on drop, and also when this process is killed.
struct Daemon {
    child: Child,
    folder: std::path::PathBuf,
}

impl Daemon {
    fn start(hugepilot: &Path, tools: &Tools<'_>) -> Result<Self> {
        let folder = tools.folder.to_owned();
        let (config, group) = (folder.join("daemon.toml"), tools.group.path());
        fs::write(&config, rules(group))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(hugepilot).arg("daemon");
        command.arg("--config").arg(config).arg("--cgroup").arg(group);
        command.stdin(Stdio::null()).stdout(File::create(folder.join("log"))?);
        command.stderr(File::create(folder.join("errors"))?);
        Ok(Self { child: command.spawn().context("cannot start setpriv")?, folder })
    }

    /// Returns an error if the daemon ended.
    fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let errors = fs::read_to_string(self.folder.join("errors")).unwrap_or_default();
        bail!("the daemon ended: {status}\n{errors}");
    }

    /// Ends the daemon, and returns its log.
    fn stop(mut self) -> Result<Vec<Value>> {
        self.check()?;
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(begun.elapsed() < END_LIMIT, "the daemon does not end after SIGTERM");
            thread::sleep(POLL);
        };
        let errors = fs::read_to_string(self.folder.join("errors")).unwrap_or_default();
        ensure!(status.success(), "the daemon ended: {status}\n{errors}");
        let log = fs::read_to_string(self.folder.join("log"))?;
        log.lines().map(|line| serde_json::from_str(line).context("a line of the log")).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rules of the daemon: programs are denied by name, all others of the cgroup allowed.
fn rules(group: &Path) -> String {
    let denied = MIX.iter().filter(|program| program.denied);
    let mut text: String = denied
        .map(|program| format!("[[rule]]\ncommand = \"{}\"\npromote = \"deny\"\n\n", program.name))
        .collect();
    text += &format!("[[rule]]\ncgroup = \"{}\"\npromote = \"allow\"\n", group.display());
    text
}

/// Fills memory and frees it, drops caches and compacts: each mode starts with the same machine. On
/// a virtual machine, the first touch of memory that the guest had returned to the host is 10 to 50
/// times slower.
fn warm(size: Bytes) {
    let mut memory = vec![0_u8; size.as_usize()];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    drop(std::hint::black_box(memory));
    crate::run::join_free_memory();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_denies_and_the_last_allows_the_cgroup() {
        let text = rules(Path::new("/sys/fs/cgroup/mix"));
        let deny = text.find("command = \"mix-denied\"\npromote = \"deny\"").unwrap();
        let allow = text.find("cgroup = \"/sys/fs/cgroup/mix\"\npromote = \"allow\"").unwrap();
        assert!(deny < allow);
        assert_eq!(text.matches("[[rule]]").count(), 2);
    }
}
