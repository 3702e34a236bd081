//! Child process that holds memory, so that all of it is free again when the process ends for any
//! reason.
//!
//! It is this executable with [`ARGUMENT`], or any executable whose `main` calls [`serve`] for it.
//! It ends with its parent in two ways: by the kernel (`PR_SET_PDEATHSIG`), and when its stdin
//! closes. For the kernel, the parent is the thread that made the condition. If memory gets short,
//! the kernel kills it first (`oom_score_adj` 1000).
//!
//! One request a line, one answer a line: `ok NUMBER …` or `errno NUMBER`.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use hugepilot_kernel::cgroup::OwnedCgroup;
use hugepilot_kernel::free_lists::flush_free_lists;
use hugepilot_kernel::own_memory::make_expendable;
use hugepilot_kernel::{AnonMap, KeptPages, Pages, Root, memory, obtainable_huge_pages};
use hugepilot_record::Errno;
use hugepilot_units::{Bytes, PageSizes};

use crate::{LabError, Result};

/// First argument of the process, which is not a command: users do not start it.
pub const ARGUMENT: &str = "hold-memory";

/// Executable of the holder by default: this one.
pub fn own_executable() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Running holder. Dropping it frees the memory: up to 0.5 s per GiB.
#[derive(Debug)]
pub(crate) struct Holder {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Holder {
    /// # Errors
    /// [`LabError::NoHolder`].
    pub(crate) fn start(executable: &Path) -> Result<Self> {
        let own = std::process::id().to_string();
        let mut child = spawn(executable, &[OsString::from(own)]).map_err(LabError::NoHolder)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (requests, answers) = pipes.ok_or(LabError::HolderEnded)?;
        let mut holder = Self { child, requests, answers: BufReader::new(answers) };
        holder.ask("start").map(|_| holder)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`LabError::Holder`], [`LabError::Refused`], [`LabError::HolderEnded`].
    pub(crate) fn ask(&mut self, request: &str) -> Result<Vec<u64>> {
        let gone = |_| LabError::HolderEnded;
        writeln!(self.requests, "{request}").map_err(gone)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(gone)?;
        let mut words = line.split_ascii_whitespace();
        let (kind, numbers) = (words.next(), words.map_while(|word| word.parse().ok()));
        match kind {
            Some("ok") => Ok(numbers.collect()),
            Some("errno") => {
                let errno = Errno(line.trim_start_matches("errno").trim().parse().unwrap_or(0));
                Err(LabError::of_holder(request, errno))
            }
            _ => Err(LabError::HolderEnded),
        }
    }

    /// # Errors
    /// [`LabError::HolderEnded`].
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(LabError::HolderEnded),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the process in a group of its own, which Ctrl-C does not reach.
fn spawn(executable: &Path, arguments: &[OsString]) -> io::Result<Child> {
    let mut command = Command::new(executable);
    command.arg(ARGUMENT).args(arguments).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// Process that removes a cgroup when this one has ended, also by SIGKILL.
#[derive(Debug)]
pub(crate) struct Remover(Child);

impl Remover {
    pub(crate) fn start(executable: &Path, group: &OwnedCgroup) -> Result<Self> {
        let path = group.path().as_os_str().to_owned();
        spawn(executable, &["remove".into(), path]).map(Self).map_err(LabError::NoHolder)
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs as that process, with the arguments after [`ARGUMENT`].
pub fn serve(arguments: &[OsString]) -> ExitCode {
    if let [word, path] = arguments
        && word == "remove"
    {
        // Its descriptors close when the parent ends.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        return if OwnedCgroup::at(path).remove() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let parent = arguments.first().and_then(|word| word.to_str()?.parse::<u32>().ok());
    let expendable = make_expendable(&Root::live(), Bytes::MAX);
    // A parent that ended before the call above sends no signal.
    if expendable.is_err() || parent != Some(parent_id()) {
        return ExitCode::FAILURE;
    }
    let Ok(sizes) = memory::page_sizes(&Root::live()) else { return ExitCode::FAILURE };
    let mut held = Held { sizes, locked: Vec::new(), kept: None };
    let mut stdout = io::stdout().lock();
    for request in io::stdin().lock().lines().map_while(io::Result::ok) {
        let answer = match held.answer(&request) {
            Ok(numbers) => numbers.iter().fold("ok".to_owned(), |line, n| format!("{line} {n}")),
            Err(errno) => format!("errno {}", errno.0),
        };
        if writeln!(stdout, "{answer}").and_then(|()| stdout.flush()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// Memory of the holder.
struct Held {
    sizes: PageSizes,
    locked: Vec<AnonMap>,
    kept: Option<KeptPages>,
}

impl Held {
    fn answer(&mut self, request: &str) -> std::result::Result<Vec<u64>, Errno> {
        let words: Vec<&str> = request.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match (words.first().copied(), number(1)) {
            (Some("start"), _) => Ok(Vec::new()),
            (Some("lock"), Some(bytes)) => {
                let map = AnonMap::new(Bytes::new(bytes), Pages::Base, self.sizes)?;
                if let Some(node) = number(2) {
                    map.bind(u32::try_from(node).map_err(|_| Errno::EINVAL)?)?;
                }
                map.lock()?;
                self.locked.push(map);
                Ok(Vec::new())
            }
            (Some("release"), _) => {
                Ok(self.locked.pop().map(|map| map.range().len().get()).into_iter().collect())
            }
            (Some("ring"), Some(movable)) => {
                self.kept = Some(KeptPages::new(movable != 0, self.sizes)?);
                Ok(Vec::new())
            }
            (Some("keep"), Some(count)) => self.kept.as_mut().ok_or(Errno::EINVAL)?.keep(count),
            (Some("recount"), _) => self.kept.as_ref().ok_or(Errno::EINVAL)?.movable_frames(),
            (Some("flush"), Some(size)) => {
                let guard = number(2).unwrap_or(0);
                let available =
                    memory::mem_info(&Root::live()).map_or(Bytes::ZERO, |i| i.available);
                let spare = Bytes::new((available - Bytes::new(guard)).get() / 2);
                flush_free_lists(spare.min(Bytes::new(size)), self.sizes).map(|()| Vec::new())
            }
            (Some("obtain"), Some(guard)) => self.obtain(Bytes::new(guard)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Allocates huge pages until the kernel refuses one or less than `guard` is available. Returns
    /// their number and whether the kernel refused one.
    fn obtain(&self, guard: Bytes) -> std::result::Result<Vec<u64>, Errno> {
        let root = Root::live();
        let available = || memory::mem_info(&root).map_or(Bytes::ZERO, |info| info.available);
        let is_safe = || available() >= guard + self.sizes.huge;
        let most = available().get() / self.sizes.huge.get();
        let (count, is_refused) = obtainable_huge_pages(most, self.sizes, &is_safe)?;
        Ok(vec![count, u64::from(is_refused)])
    }
}
