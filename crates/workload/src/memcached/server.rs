//! The server process: its flags, its start, its end with this process.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, process};

use hugepilot_units::Bytes;

use super::{RECORD, SLAB_PAGE, SMALL};
use crate::{Result, ServerFault, WorkloadError};

/// Time limit of the start. The server takes about a third of a second per GiB.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server. Killed when dropped, and by the kernel when the thread that started it ends.
pub(super) struct Server {
    child: Child,
}

/// A connection to the server.
pub(super) struct Connection(BufReader<UnixStream>);

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl io::BufRead for Connection {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }
    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

impl Server {
    /// Starts a server with a memory limit for `items`, with large pages if requested, and connects
    /// to it `threads` times. It keeps no files: its socket and its sparse file are unlinked here.
    ///
    /// # Errors
    /// [`WorkloadError::NoProgram`], or [`WorkloadError::Server`] if it ends or does not listen
    /// within two minutes.
    pub(super) fn start(
        limit: Bytes,
        items: usize,
        large_pages: bool,
        threads: usize,
    ) -> Result<(Self, Vec<Connection>)> {
        for (program, package) in [("memcached", "memcached"), ("setpriv", "util-linux")] {
            if !in_path(program) {
                return Err(WorkloadError::NoProgram { program, package });
            }
        }
        let directory = TempDir::new().map_err(failed(ServerFault::Directory))?;
        let socket = directory.0.join("socket");
        let mut command = command(&directory.0, &socket, limit, items, large_pages, threads);
        let child = command.spawn().map_err(failed(ServerFault::Start))?;
        let mut server = Self { child };
        server.wait_until_listening(&socket)?;
        let connect = |_| {
            let stream = UnixStream::connect(&socket)?;
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
            Ok(Connection(BufReader::with_capacity(64 << 10, stream)))
        };
        let connections: io::Result<Vec<_>> = (0..threads).map(connect).collect();
        Ok((server, connections.map_err(failed(ServerFault::Refused))?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_listening(&mut self, socket: &Path) -> Result<()> {
        let start = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(WorkloadError::Server(ServerFault::Ended(status)));
            }
            if start.elapsed() > START_TIMEOUT {
                return Err(WorkloadError::Server(ServerFault::NotListening(START_TIMEOUT)));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(fault: fn(io::Error) -> ServerFault) -> impl Fn(io::Error) -> WorkloadError {
    move |error| WorkloadError::Server(fault(error))
}

/// Returns the command line. `setpriv` sets the parent-death signal, then executes the server.
fn command(
    directory: &Path,
    socket: &Path,
    limit: Bytes,
    items: usize,
    large_pages: bool,
    threads: usize,
) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "memcached", "--disable-evictions", "--disable-cas"]);
    command.arg("--memory-limit").arg((limit.get() / SLAB_PAGE.get()).to_string());
    command.arg("--conn-limit").arg((threads + 64).to_string());
    command.arg("--unix-socket").arg(socket);
    let mut options = format!("slab_sizes={}-{}", SMALL.chunk, RECORD.chunk).into_bytes();
    // Slab pages stay with their class, and the hash table has its final size from the start.
    options.extend(format!(",slab_automove=0,hashpower={}", hash_power(items)).bytes());
    // A flash tier makes the server take all its memory at once; no item is large enough to move
    // there.
    options.extend(b",ext_item_size=1000000,ext_path=");
    options.extend(directory.join("flash").into_os_string().into_vec());
    options.extend(b":64M");
    command.arg("-o").arg(OsString::from_vec(options));
    if large_pages {
        command.arg("--enable-largepages");
    }
    // The server refuses to run as root without this flag.
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        command.args(["--user", "root"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Returns the binary logarithm of memcached's buckets for `items`: one for one and a half items.
fn hash_power(items: usize) -> u32 {
    (items / 3 * 2).next_power_of_two().ilog2().clamp(12, 32)
}

fn in_path(program: &str) -> bool {
    let directories = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&directories).any(|directory| directory.join(program).is_file())
}

/// A private temporary directory. The server keeps the files open that it opened there.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hugepilot-memcached-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        let path = env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A directory that stays holds two names only.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_table_has_its_final_size() {
        // memcached doubles the table above 1.5 items per bucket.
        for (items, power) in [(1, 12), (3 << 16, 17), ((3 << 16) + 6, 18), (270_336, 18)] {
            assert_eq!(hash_power(items), power, "{items}");
        }
    }

    #[test]
    fn the_directory_is_private_and_removed() {
        let directory = TempDir::new().unwrap();
        let path = directory.0.clone();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn large_pages_are_requested_only_on_request() {
        let flags = |large| {
            let command =
                command(Path::new("/f"), Path::new("/f/s"), Bytes::mib(64), 1000, large, 2);
            let words: Vec<_> =
                command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
            words.join(" ")
        };
        let large = flags(true);
        for word in ["--enable-largepages", "--memory-limit 64 ", "slab_sizes=256-8192,"] {
            assert!(large.contains(word), "{large}");
        }
        assert!(!flags(false).contains("largepages"));
    }
}
