//! Programs under QEMU's user mode, with hugepilot's plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Permissions;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hugepilot_record::Ending;
use hugepilot_record::trace::TracePiece;
use tempfile::TempDir;

use super::channel::{Channel, ChannelError, Chunk};
use super::delivery::Delivery;
use super::engine::{Running, Traced, required};
use super::mappings::Mappings;
use super::{TraceEnd, TraceStop};
use crate::TraceError;

const QEMU: &str = "qemu-x86_64";
const PLUGIN: &str = include_str!("plugin.c");
/// Limits of a sleep while nothing is published.
const NAPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// Traces a program to its end, or until `delivery` has enough.
pub(super) fn trace(
    command: &[OsString],
    delivery: &mut Delivery<'_>,
) -> Result<TraceEnd, TraceError> {
    let program = Traced::new(command)?;
    let qemu = required(QEMU, "qemu-user")?;
    let plugin = Plugin::compile()?;
    let channel = Channel::new().map_err(|error| receive(error.into()))?;
    let option = plugin.option(channel.descriptor());
    // With the default CPU, programs would not use AVX.
    let arguments = ["-cpu", "max", "-plugin"].map(OsString::from).into_iter().chain([option]);
    let arguments: Vec<_> = arguments.chain(["-0".into(), program.name().to_owned()]).collect();
    let running = program.start(&qemu, &arguments)?;
    let mappings = Mappings::new(running.pid(), QEMU);
    let mut session = Session {
        running,
        plugin: Some(plugin),
        channel,
        mappings,
        threads: Numbers::default(),
        folded: 0,
        lost: 0,
    };
    let followed = session.follow(delivery);
    // Threads that wait for a free chunk go on, and can receive a signal.
    let _ = session.channel.close();
    let ending = session.running.stop()?;
    let is_finished = followed.map_err(|error| match error {
        Failure::Channel(error) => receive(error),
        Failure::Begin(ending) => TraceError::Engine { engine: QEMU, ending },
    })?;
    let control = session.channel.control().map_err(receive)?;
    let end = delivery.end();
    Ok(TraceEnd {
        ending,
        folded: session.folded,
        lost: session.lost.saturating_add(control.lost),
        forks: control.forks.into(),
        is_complete: is_finished && end.stop == TraceStop::End,
        ..end
    })
}

fn receive(error: ChannelError) -> TraceError {
    TraceError::Receive { engine: QEMU, problem: error.to_string() }
}

/// Compiled plugin in a directory of this user.
struct Plugin {
    folder: TempDir,
}

impl Plugin {
    fn compile() -> Result<Self, TraceError> {
        let cc = required("cc", "gcc")?;
        let failed = |problem: String| TraceError::Compiler { problem };
        let error = |error: std::io::Error| failed(error.to_string());
        let folder = tempfile::Builder::new()
            .prefix("hugepilot-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(error)?;
        let plugin = Self { folder };
        let source = plugin.folder.path().join("plugin.c");
        std::fs::write(&source, PLUGIN).map_err(error)?;
        let output = Command::new(cc)
            .args(["-shared", "-fPIC", "-O2", "-pthread", "-o"])
            .args([plugin.path(), source])
            .stdin(Stdio::null())
            .output()
            .map_err(error)?;
        if output.status.success() {
            return Ok(plugin);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| line.contains("error")).or(text.lines().next());
        Err(failed(line.map_or_else(|| output.status.to_string(), str::to_owned)))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("plugin.so")
    }

    /// Argument of QEMU's option `-plugin`.
    fn option(&self, descriptor: i32) -> OsString {
        let mut option = escaped(&self.path());
        option.push(format!(",fd={descriptor}"));
        option
    }
}

/// Doubles commas, which separate QEMU's options.
fn escaped(path: &Path) -> OsString {
    let double = |&byte: &u8| std::iter::repeat_n(byte, if byte == b',' { 2 } else { 1 });
    OsString::from_vec(path.as_os_str().as_bytes().iter().flat_map(double).collect())
}

enum Failure {
    Channel(ChannelError),
    /// QEMU ended before it loaded the plugin.
    Begin(Ending),
}

impl From<ChannelError> for Failure {
    fn from(error: ChannelError) -> Self {
        Self::Channel(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Channel(error.into())
    }
}

/// A traced program.
struct Session {
    running: Running,
    /// Files of the plugin, until QEMU has loaded it.
    plugin: Option<Plugin>,
    channel: Channel,
    mappings: Mappings,
    threads: Numbers,
    folded: u64,
    lost: u64,
}

impl Session {
    /// Delivers until the end. Returns whether the program exited with notice of the plugin.
    fn follow(&mut self, delivery: &mut Delivery<'_>) -> Result<bool, Failure> {
        let mut nap = NAPS[0];
        loop {
            // In this order, so that all that was published before the end is read.
            let ended = self.running.ended();
            let control = self.channel.control()?;
            if let Some(ending) = ended.filter(|_| !control.is_installed) {
                return Err(Failure::Begin(ending));
            }
            if control.is_installed {
                // A killed command then leaves nothing.
                self.plugin = None;
            }
            let chunks = self.channel.published(control)?;
            let is_idle = chunks.is_empty();
            for chunk in chunks {
                if self.deliver(chunk, delivery)?.is_break() {
                    return Ok(false);
                }
            }
            if !is_idle {
                nap = NAPS[0];
                continue;
            }
            if control.is_finished {
                // The program waits with its mappings.
                self.deliver_last(delivery);
                self.channel.release()?;
                self.wait(delivery);
                return Ok(true);
            }
            if ended.is_some() {
                return self.rest(delivery).map(|()| false);
            }
            if delivery.check().is_break() {
                self.deliver_last(delivery);
                return Ok(false);
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(NAPS[1]);
        }
    }

    fn deliver(
        &mut self,
        chunk: Chunk,
        delivery: &mut Delivery<'_>,
    ) -> Result<ControlFlow<()>, ChannelError> {
        let (mut accesses, change) = self.channel.read(chunk)?;
        self.folded += u64::from(chunk.folded);
        let mut flow = ControlFlow::Continue(());
        match self.threads.of(chunk.thread) {
            Some(thread) if !accesses.is_empty() => {
                if let Some(mappings) = self.mappings.place(&mut accesses) {
                    flow = delivery.piece(TracePiece::Mappings(mappings));
                }
                if flow.is_continue() {
                    flow = delivery.piece(TracePiece::Accesses { thread, accesses });
                }
            }
            Some(_) => {}
            None => self.lost += accesses.len() as u64,
        }
        if let Some(change) = change {
            self.mappings.change(change);
        }
        if flow.is_continue()
            && chunk.is_last
            && let Some(thread) = self.threads.end(chunk.thread)
        {
            flow = delivery.piece(TracePiece::ThreadEnd(thread));
        }
        if flow.is_break() {
            self.deliver_last(delivery);
        }
        // The thread of a change goes on.
        self.channel.free(chunk)?;
        Ok(flow)
    }

    /// Delivers the mappings of accesses for which they were not read in time.
    fn deliver_last(&mut self, delivery: &mut Delivery<'_>) {
        if let Some(mappings) = self.mappings.last() {
            delivery.last_mappings(mappings);
        }
    }

    /// Delivers what a program left that was killed, or that another program replaced.
    fn rest(&mut self, delivery: &mut Delivery<'_>) -> Result<(), Failure> {
        let control = self.channel.control()?;
        for chunk in self.channel.rest(control)? {
            if self.deliver(chunk, delivery)?.is_break() {
                break;
            }
        }
        // Ctrl-C ends the program, too.
        let _ = delivery.check();
        Ok(())
    }

    /// Waits for the end of a program that exits.
    fn wait(&mut self, delivery: &mut Delivery<'_>) {
        while self.running.ended().is_none() && delivery.check().is_continue() {
            std::thread::sleep(NAPS[1]);
        }
    }
}

/// Numbers of the plugin's threads in the trace.
#[derive(Debug, Default)]
struct Numbers {
    running: BTreeMap<u32, u16>,
    /// Numbers of threads that have ended.
    free: BTreeSet<u16>,
}

impl Numbers {
    /// Returns the number of a thread; `None` if too many run.
    fn of(&mut self, thread: u32) -> Option<u16> {
        if let Some(&number) = self.running.get(&thread) {
            return Some(number);
        }
        // Each number below is of a thread that runs.
        let next = || u16::try_from(self.running.len()).ok();
        let number = self.free.pop_first().or_else(next)?;
        self.running.insert(thread, number);
        Some(number)
    }

    /// Frees the number of a thread; `None` if it has none.
    fn end(&mut self, thread: u32) -> Option<u16> {
        let number = self.running.remove(&thread)?;
        self.free.insert(number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ended_threads_are_given_again() {
        let mut numbers = Numbers::default();
        let all: Vec<_> = [7, 9, 7, 8].map(|thread| numbers.of(thread)).to_vec();
        assert_eq!(all, [Some(0), Some(1), Some(0), Some(2)]);
        assert_eq!([9, 9].map(|thread| numbers.end(thread)), [Some(1), None]);
        assert_eq!([10, 11].map(|thread| numbers.of(thread)), [Some(1), Some(3)]);
        // Few run, and each number is of one.
        for thread in 100..1_000_000 {
            assert_eq!(numbers.of(thread), Some(4));
            assert_eq!(numbers.end(thread), Some(4));
        }
    }

    #[test]
    fn commas_in_a_path_are_doubled() {
        assert_eq!(escaped(Path::new("/a,b/c,,d")), std::ffi::OsStr::new("/a,,b/c,,,,d"));
    }
}
