//! Running program: its processes, its progress and its memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use super::super::cpu;
use super::super::progress::Progress;
use super::prepare::Prepared;
use crate::status::Memory;
use crate::stress::Interruption;

/// Longest time to build a structure.
const BUILD_LIMIT: Duration = Duration::from_secs(300);
/// Length of a slice in seconds. A slow program gets longer ones, up to the limit.
const SLICE: f64 = 0.12;
const SLICE_LIMIT: Duration = Duration::from_secs(180);
/// Seconds at the start of a slice that do not count: caches are cold.
const SETTLE: f64 = 0.03;
const POLL: Duration = Duration::from_millis(5);

/// Running program. Its processes are killed on drop.
pub(super) struct Target<'a> {
    children: Vec<Child>,
    /// Measured process.
    pub(super) pid: u32,
    progress: Arc<Mutex<Progress>>,
    begun: Instant,
    /// CPUs that this program may use.
    allowed: CpuSet,
    /// Whether an operation of a slow program begins when the processes continue.
    at_line: bool,
    interrupted: &'a AtomicBool,
    /// Folder of the socket, and the working directory of all processes.
    folder: TempDir,
}

impl<'a> Target<'a> {
    /// Starts a program, and its server first if it has one.
    pub(super) fn start(prepared: &Prepared, interrupted: &'a AtomicBool) -> Result<Self> {
        let program = prepared.program;
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("socket");
        let progress = Arc::new(Mutex::new(Progress::new(program.lines)));
        let mut this = Self {
            children: Vec::new(),
            pid: 0,
            progress,
            begun: Instant::now(),
            allowed: sched_getaffinity(None).context("cannot read the CPUs to use")?,
            at_line: false,
            interrupted,
            folder,
        };
        if !program.server.is_empty() {
            this.spawn(prepared.command(program.server, &socket), Stdio::null())?;
        }
        this.spawn(prepared.command(program.command, &socket), Stdio::piped())?;
        this.pid = this.children[0].id();
        let stdout = this.children.last_mut().and_then(|child| child.stdout.take());
        let lines = BufReader::new(stdout.context("stdout is piped")?).lines();
        let (progress, begun) = (Arc::clone(&this.progress), this.begun);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                locked(&progress).add(begun.elapsed().as_secs_f64(), &line);
            }
        });
        Ok(this)
    }

    fn spawn(&mut self, mut command: Command, stdout: Stdio) -> Result<()> {
        command.stdin(Stdio::null()).stdout(stdout).current_dir(self.folder.path());
        let name = command.get_program().to_string_lossy().into_owned();
        self.children.push(command.spawn().with_context(|| format!("cannot start {name}"))?);
        Ok(())
    }

    /// Seconds since the start.
    fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Waits until the structure is built.
    pub(super) fn wait_until_ready(&mut self) -> Result<f64> {
        let limit = self.begun + BUILD_LIMIT;
        self.wait(limit, |progress, _| progress.ready)?
            .with_context(|| format!("not ready after {} s", BUILD_LIMIT.as_secs()))
    }

    /// Waits until `seconds` after the start.
    pub(super) fn wait_until(&mut self, seconds: f64) -> Result<()> {
        self.sleep_until(self.begun + Duration::from_secs_f64(seconds.max(0.0)))
    }

    /// Waits until `time`.
    pub(super) fn sleep_until(&mut self, time: Instant) -> Result<()> {
        self.wait(time, |_, _| None::<()>).map(|_| ())
    }

    /// Continues the processes for a slice, and stops them. Returns operations per second; for a
    /// server, of its CPU time. A slice ends soon after a line, so that an operation of seconds
    /// begins with the next slice. A server's rate per second depends on how long it waits for its
    /// clients.
    pub(super) fn slice(&mut self) -> Result<f64> {
        let start = self.at_line.then(|| self.now());
        self.proceed()?;
        self.wait_until(self.now() + SETTLE)?;
        let (begin, busy) = (self.now(), self.busy()?);
        let rate = self.wait(Instant::now() + SLICE_LIMIT, |progress, now| {
            let first = || progress.rate_of_first(start?, now);
            if now < begin + SLICE { None } else { progress.rate(begin, now).or_else(first) }
        })?;
        let ran = (self.busy()? - busy) / (self.now() - begin);
        self.stop()?;
        self.at_line = true;
        let last = || locked(&self.progress).last.clone();
        let rate = rate.with_context(|| format!("too few lines; the last one: {:?}", last()))?;
        ensure!(ran > 0.0, "the program did not run");
        Ok(rate / ran)
    }

    /// Seconds in which the measured process ran: of the CPU for a server, else all.
    fn busy(&self) -> Result<f64> {
        match self.children.len() {
            1 => Ok(self.now()),
            _ => cpu::of_threads(self.pid).context("the server ended"),
        }
    }

    /// Stops all processes.
    pub(super) fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues all processes.
    pub(super) fn proceed(&mut self) -> Result<()> {
        self.at_line = false;
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let send = |child| kill_process(Pid::from_child(child), signal);
        self.children.iter().try_for_each(send).context("cannot stop or continue a process")
    }

    /// Gives the measured process the first CPU that this program may use and a load generator the
    /// last, or both all of them. So `taskset` lets two programs be measured side by side.
    pub(super) fn pin(&self, pinned: bool) -> Result<()> {
        for (index, child) in self.children.iter().enumerate() {
            let cpus = match (pinned, index) {
                (false, _) => self.allowed,
                (true, 0) => single(&self.allowed, 0..CpuSet::MAX_CPU),
                (true, _) => single(&self.allowed, (0..CpuSet::MAX_CPU).rev()),
            };
            for task in fs::read_dir(format!("/proc/{}/task", child.id()))? {
                let task = task?.file_name().to_string_lossy().parse().ok();
                // Fails if the thread has ended.
                let _ = sched_setaffinity(task.and_then(Pid::from_raw), &cpus);
            }
        }
        Ok(())
    }

    /// Waits for a value until `limit`; an error if a process ends or the user interrupts.
    fn wait<T>(
        &mut self,
        limit: Instant,
        value: impl Fn(&Progress, f64) -> Option<T>,
    ) -> Result<Option<T>> {
        loop {
            if self.interrupted.load(Relaxed) {
                return Err(Interruption.into());
            }
            for child in &mut self.children {
                if let Some(status) = child.try_wait()? {
                    let last = locked(&self.progress).last.clone();
                    bail!("the program ended: {status}; its last line: {last:?}");
                }
            }
            let found = value(&locked(&self.progress), self.now());
            if found.is_some() || Instant::now() >= limit {
                return Ok(found);
            }
            thread::sleep(POLL);
        }
    }

    /// Ranges of addresses that the program names as hot. Others gain nothing from huge pages.
    pub(super) fn hot(&self) -> Vec<String> {
        locked(&self.progress).hot.clone()
    }

    /// Memory of the measured process.
    pub(super) fn memory(&self) -> Result<Memory> {
        Memory::of(self.pid).with_context(|| format!("no memory of pid {}", self.pid))
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The first of `order` that is in `allowed`, alone.
fn single(allowed: &CpuSet, mut order: impl Iterator<Item = usize>) -> CpuSet {
    let mut cpus = CpuSet::new();
    if let Some(cpu) = order.find(|&cpu| allowed.is_set(cpu)) {
        cpus.set(cpu);
    }
    cpus
}

fn locked(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns why stopped processes would lose huge pages, if DAMON pages out idle memory: without
/// swap, that splits huge pages.
pub(super) fn damon_pageout(folder: &Path) -> Option<String> {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let says = |file: &Path, word: &str| fs::read_to_string(file).is_ok_and(|is| is.trim() == word);
    let pages_out = |context: fs::DirEntry| {
        let mut schemes = entries(context.path().join("schemes"));
        schemes.any(|scheme| says(&scheme.path().join("action"), "pageout"))
    };
    let mut files = entries(folder.to_owned()).filter_map(|kdamond| {
        let state = kdamond.path().join("state");
        let acts = entries(kdamond.path().join("contexts")).any(pages_out);
        (acts && says(&state, "on")).then_some(state)
    });
    files.next().map(|state| {
        format!("DAMON pages out idle memory; write off to {0}, and on afterwards", state.display())
    })
}

#[cfg(test)]
mod tests {
    use super::super::programs::{self, Program};
    use super::*;

    #[test]
    fn the_first_and_the_last_allowed_cpu_are_taken() {
        let set = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|&cpu| set.set(cpu));
            set
        };
        let allowed = set(&[4, 5, 9]);
        assert_eq!(single(&allowed, 0..CpuSet::MAX_CPU), set(&[4]));
        assert_eq!(single(&allowed, (0..CpuSet::MAX_CPU).rev()), set(&[9]));
    }

    #[test]
    fn a_program_runs_only_in_its_slices_and_ends_with_its_target() {
        static PROGRAM: Program = Program {
            name: "test",
            command: &["sh", "-c", "echo ready; while :; do echo ops 10; sleep 0.01; done"],
            ..programs::PLAIN
        };
        let interrupted = AtomicBool::new(false);
        let prepared = Prepared::new(Path::new("hugepilot"), &PROGRAM).unwrap();
        let mut target = Target::start(&prepared, &interrupted).unwrap();
        assert!(target.wait_until_ready().unwrap() < 60.0);
        target.pin(true).unwrap();
        let rate = target.slice().unwrap();
        assert!((1.0..1001.0).contains(&rate), "10 operations in at least 0.01 s: {rate}");
        let state = || fs::read_to_string(format!("/proc/{}/stat", target.pid));
        while !state().unwrap().contains(") T ") {
            thread::sleep(POLL);
        }
        let pid = target.pid;
        drop(target);
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "killed, though it was stopped");
    }

    #[test]
    fn damon_is_detected_only_if_it_runs_and_pages_out() {
        let folder = tempfile::tempdir().unwrap();
        let kdamond = folder.path().join("0");
        let scheme = kdamond.join("contexts/0/schemes/0");
        fs::create_dir_all(&scheme).unwrap();
        for (state, action, found) in
            [("on", "pageout", true), ("off", "pageout", false), ("on", "stat", false)]
        {
            fs::write(kdamond.join("state"), format!("{state}\n")).unwrap();
            fs::write(scheme.join("action"), format!("{action}\n")).unwrap();
            let cause = damon_pageout(folder.path());
            assert_eq!(cause.is_some(), found, "{cause:?}");
            assert!(cause.is_none_or(|cause| cause.contains("0/state, and on afterwards")));
        }
        assert_eq!(damon_pageout(Path::new("/no/such/folder")), None);
    }

    #[test]
    fn the_end_of_a_program_is_an_error() {
        static PROGRAM: Program =
            Program { name: "test", command: &["echo", "ready"], ..programs::PLAIN };
        let interrupted = AtomicBool::new(false);
        let prepared = Prepared::new(Path::new("hugepilot"), &PROGRAM).unwrap();
        let mut target = Target::start(&prepared, &interrupted).unwrap();
        let error = target.slice().unwrap_err().to_string();
        assert!(error.starts_with("the program ended"), "{error}");
        interrupted.store(true, Relaxed);
        assert!(target.sleep_until(Instant::now()).unwrap_err().is::<Interruption>());
    }
}
