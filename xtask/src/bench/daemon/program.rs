//! Running program of the mix: its processes, its progress and its CPU time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use super::super::cpu;
use super::super::progress::{Lines, Progress};
use super::record::ProgramRun;
use super::timeline::{Kind, Program};
use super::tools::Tools;
use crate::status::Memory;

/// Seconds between two points at least.
const EVERY: f64 = 0.9;
/// Memory of redis per key of the load generator.
const KEY: u64 = 165;

/// Progress of a program so far.
#[derive(Debug)]
struct Done {
    progress: Progress,
    /// Time, operations and CPU seconds.
    points: Vec<[f64; 3]>,
}

/// Running program. Its processes are killed on drop.
pub(super) struct Running {
    pub(super) program: &'static Program,
    /// The measured process first.
    children: Vec<Child>,
    done: Arc<Mutex<Done>>,
    memory: Vec<(f64, u64, u64)>,
}

impl Running {
    /// Starts a program. Times count from `epoch`.
    pub(super) fn start(
        tools: &Tools<'_>,
        program: &'static Program,
        epoch: Instant,
    ) -> Result<Self> {
        let lines = if matches!(program.kind, Kind::Lab(_)) { Lines::Lab } else { Lines::Ops };
        let done = Done { progress: Progress::new(lines), points: Vec::new() };
        let mut this = Self {
            program,
            children: Vec::new(),
            done: Arc::new(Mutex::new(done)),
            memory: Vec::new(),
        };
        let size = share_of(tools.limit, program.size);
        let name = program.name;
        match program.kind {
            Kind::Lab(words) => {
                let words = lab_words(words, size, tools.seed);
                this.spawn(tools.command(name, program.cpu).args(words), Stdio::piped())?;
            }
            Kind::Grow => {
                let mib = (size.get() >> 20).to_string();
                this.spawn(tools.command(name, program.cpu).arg(mib), Stdio::piped())?;
            }
            Kind::Redis => {
                let socket = tools.folder.join("socket");
                let words = ["--port", "0", "--save", "", "--disable-thp", "no", "--unixsocket"];
                let mut server = tools.command(name, program.cpu);
                this.spawn(server.args(words).arg(&socket), Stdio::null())?;
                let keys = (size.get() / KEY).to_string();
                let mut load = tools.command("mix-load", 0);
                this.spawn(load.arg("redis").arg(&socket).arg(keys), Stdio::piped())?;
            }
        }
        this.follow(epoch)?;
        Ok(this)
    }

    fn spawn(&mut self, command: &mut Command, stdout: Stdio) -> Result<()> {
        command.stdin(Stdio::piped()).stdout(stdout);
        self.children.push(command.spawn().context("cannot start taskset")?);
        Ok(())
    }

    /// Reads the lines of the last process in a thread, with the CPU time of the first.
    fn follow(&mut self, epoch: Instant) -> Result<()> {
        let stdout = self.children.last_mut().and_then(|child| child.stdout.take());
        let lines = BufReader::new(stdout.context("stdout is piped")?).lines();
        let (done, pid) = (Arc::clone(&self.done), self.pid());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let now = epoch.elapsed().as_secs_f64();
                let mut done = locked(&done);
                done.progress.add(now, &line);
                let last = done.points.last().map_or(f64::MIN, |point| point[0]);
                if done.progress.ready.is_some() && now >= last + EVERY {
                    let point = cpu::of_threads(pid);
                    let point = point.map(|cpu| [now, done.progress.total(), cpu]);
                    done.points.extend(point);
                }
            }
        });
        Ok(())
    }

    /// Pid of the measured process.
    pub(super) fn pid(&self) -> u32 {
        self.children[0].id()
    }

    pub(super) fn is_ready(&self) -> bool {
        locked(&self.done).progress.ready.is_some()
    }

    /// Grows by `by` of the limit.
    pub(super) fn grow(&mut self, limit: Bytes, by: f64) -> Result<()> {
        let mib = share_of(limit, by).get() >> 20;
        let stdin = self.children[0].stdin.as_mut().context("stdin is piped")?;
        writeln!(stdin, "grow {mib}")
            .with_context(|| format!("{} does not read", self.program.name))
    }

    /// Pauses the load, or resumes it.
    pub(super) fn pause(&self, paused: bool) -> Result<()> {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        let load = self.children.last().context("there is a process")?;
        kill_process(Pid::from_child(load), signal).context("cannot pause the load")
    }

    /// Returns an error if a process ended.
    pub(super) fn check(&mut self) -> Result<()> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                let last = locked(&self.done).progress.last.clone();
                bail!("{} ended: {status}; its last line: {last:?}", self.program.name);
            }
        }
        Ok(())
    }

    /// Notes the memory of the measured process at `now`.
    pub(super) fn note_memory(&mut self, now: f64) {
        let memory = Memory::of(self.pid());
        self.memory.extend(memory.map(|of| (now, of.rss_bytes, of.huge_bytes)));
    }

    /// Ends the program, and returns its progress with times from `origin` on.
    pub(super) fn end(self, origin: f64) -> ProgramRun {
        let done = locked(&self.done);
        let since = |&[at, ops, cpu]: &[f64; 3]| [at - origin, ops, cpu];
        ProgramRun {
            name: self.program.name.to_owned(),
            ready: done.progress.ready.map(|ready| ready - origin),
            points: done.points.iter().map(since).collect(),
            memory: self.memory.iter().map(|&(at, rss, huge)| (at - origin, rss, huge)).collect(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The load generator first: it would report the end of its server.
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `share` of `limit`.
pub(super) fn share_of(limit: Bytes, share: f64) -> Bytes {
    Bytes::new((limit.as_f64() * share) as u64)
}

/// Arguments of a workload. `{third}` in its words is a third of its size.
fn lab_words(words: &[&str], size: Bytes, seed: u64) -> Vec<String> {
    let mut all = vec!["lab".to_owned(), "workload".to_owned()];
    let third = (size.get() / 3).to_string();
    all.extend(words.iter().map(|word| word.replace("{third}", &third)));
    let (size, seed) = (size.get().to_string(), seed.to_string());
    let more = ["--size", &size, "--seed", &seed, "--seconds", "0", "--interval", "1s"];
    all.extend(more.map(str::to_owned));
    all
}

fn locked(done: &Mutex<Done>) -> MutexGuard<'_, Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_workload_have_its_sizes() {
        let words = lab_words(&["hot-set", "--hot", "{third}"], Bytes::mib(30), 7);
        let wanted = "lab workload hot-set --hot 10485760 --size 31457280 --seed 7 --seconds 0 \
                      --interval 1s";
        assert_eq!(words.join(" "), wanted);
        assert_eq!(share_of(Bytes::gib(4), 0.25), Bytes::gib(1));
    }
}
