//! Running program: its processes, its progress and its memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::prepare::Prepared;
use super::progress::Progress;
use crate::stress::Interruption;

/// Longest time to build a structure.
const BUILD_LIMIT: Duration = Duration::from_secs(300);
/// Longest window of a slow program, in windows.
const WINDOWS_LIMIT: u32 = 12;
const POLL: Duration = Duration::from_millis(20);

/// Running program. Its processes are killed on drop.
pub(super) struct Target<'a> {
    children: Vec<Child>,
    /// Measured process.
    pub(super) pid: u32,
    progress: Arc<Mutex<Progress>>,
    begun: Instant,
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
        self.sleep_until(self.begun + Duration::from_secs_f64(seconds))
    }

    /// Waits until `time`.
    pub(super) fn sleep_until(&mut self, time: Instant) -> Result<()> {
        self.wait(time, |_, _| None::<()>).map(|_| ())
    }

    /// Operations per second in a window from now. A slow program gets a longer window.
    pub(super) fn rate(&mut self, window: Duration) -> Result<f64> {
        let begin = self.now();
        let limit = Instant::now() + window * WINDOWS_LIMIT;
        let full = begin + window.as_secs_f64();
        let rate = self.wait(
            limit,
            |progress, now| {
                if now < full { None } else { progress.rate(begin, now) }
            },
        )?;
        let last = || locked(&self.progress).last.clone();
        let rate = rate.with_context(|| format!("too few lines; the last one: {:?}", last()))?;
        ensure!(rate > 0.0, "the program made no progress");
        Ok(rate)
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

    /// Memory of the measured process.
    pub(super) fn memory(&self) -> Result<Memory> {
        let file = format!("/proc/{}/smaps_rollup", self.pid);
        let text = fs::read_to_string(&file).with_context(|| file.clone())?;
        Memory::read(&text).with_context(|| format!("{file}: {text:?}"))
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

fn locked(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) rss_bytes: u64,
    /// Anonymous memory on huge pages.
    pub(super) huge_bytes: u64,
}

impl Memory {
    /// Reads `/proc/PID/smaps_rollup`.
    fn read(text: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
        };
        Some(Self { rss_bytes: bytes("Rss")?, huge_bytes: bytes("AnonHugePages")? })
    }
}

/// Returns why programs would not run on base pages, if the kernel gives huge pages to all.
pub(super) fn thp_always() -> Option<String> {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let setting = fs::read_to_string(FILE).ok()?;
    setting.contains("[always]").then(|| format!("{FILE} is always; write madvise or never to it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_smaps_rollup() {
        let text = "0-1 ---p 00000000 00:00 0 [rollup]\nRss:  2048 kB\nPss: 1 kB\n\
                    AnonHugePages:    1024 kB\n";
        let memory = Memory { rss_bytes: 2 << 20, huge_bytes: 1 << 20 };
        assert_eq!(Memory::read(text), Some(memory));
        assert_eq!(Memory::read("Rss: 1 kB\n"), None);
    }
}
