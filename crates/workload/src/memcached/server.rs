//! The server: started with its memory laid out as the workload says, and gone with us.

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
use crate::{Result, WorkloadError};

/// Taking its memory costs the server about a third of a second per GiB.
const STARTS_WITHIN: Duration = Duration::from_secs(120);
/// A server that says nothing for so long is stuck.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// A running server. Killed when dropped, and by the kernel when the thread that started it is gone.
pub(super) struct Server {
    child: Child,
}

/// A connection to it.
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
    /// Starts a server that takes `limit` and expects `items`, on large pages if so asked, and connects to it as often
    /// as it has `threads` to talk to. It keeps no files: its socket and its sparse file lose their names here.
    ///
    /// # Errors
    /// [`WorkloadError::NoProgram`], or [`WorkloadError::Server`] when it ends or does not listen within two minutes.
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
        let folder = Folder::new().map_err(|error| failed("no folder for its socket", &error))?;
        let socket = folder.0.join("socket");
        let mut command = command(&folder.0, &socket, limit, items, large_pages, threads);
        let child = command.spawn().map_err(|error| failed("cannot be started", &error))?;
        let mut server = Self { child };
        server.wait_for(&socket)?;
        let connect = |_| {
            let stream = UnixStream::connect(&socket)?;
            stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
            stream.set_write_timeout(Some(ANSWERS_WITHIN))?;
            Ok(Connection(BufReader::with_capacity(64 << 10, stream)))
        };
        let connections: io::Result<Vec<_>> = (0..threads).map(connect).collect();
        Ok((server, connections.map_err(|error| failed("takes no connection", &error))?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_for(&mut self, socket: &Path) -> Result<()> {
        let start = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(WorkloadError::Server {
                    what: format!("ended when it was started: {status}"),
                });
            }
            if start.elapsed() > STARTS_WITHIN {
                return Err(WorkloadError::Server {
                    what: format!("does not listen after {STARTS_WITHIN:?}"),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended: then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(what: &str, error: &io::Error) -> WorkloadError {
    WorkloadError::Server { what: format!("{what}: {error}") }
}

/// The server's command line. `setpriv` becomes the server, after it has told the kernel to kill it when we end.
fn command(
    folder: &Path,
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
    // Slab pages stay with their class, and the hash table is as large from the start as it would become.
    options.extend(format!(",slab_automove=0,hashpower={}", hash_power(items)).bytes());
    // A flash tier makes the server take all its memory at once; items that it may move there do not exist.
    options.extend(b",ext_item_size=1000000,ext_path=");
    options.extend(folder.join("flash").into_os_string().into_vec());
    options.extend(b":64M");
    command.arg("-o").arg(OsString::from_vec(options));
    if large_pages {
        command.arg("--enable-largepages");
    }
    // It refuses to run as root without being told so.
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        command.args(["--user", "root"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// The binary logarithm of the buckets that memcached would have for so many `items`: one for one and a half.
fn hash_power(items: usize) -> u32 {
    (items / 3 * 2).next_power_of_two().ilog2().clamp(12, 32)
}

fn in_path(program: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// A folder of our own for a moment: the server keeps what it opened there.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hugepilot-memcached-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        let path = env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is empty but for two names, and harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_table_is_as_large_as_it_would_become() {
        // memcached doubles it beyond 1.5 items a bucket.
        for (items, power) in [(1, 12), (3 << 16, 17), ((3 << 16) + 6, 18), (270_336, 18)] {
            assert_eq!(hash_power(items), power, "{items}");
        }
    }

    #[test]
    fn the_folder_is_private_and_does_not_stay() {
        let folder = Folder::new().unwrap();
        let path = folder.0.clone();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn large_pages_are_asked_for_only_when_wanted() {
        let asked = |large| {
            let command =
                command(Path::new("/f"), Path::new("/f/s"), Bytes::mib(64), 1000, large, 2);
            let words: Vec<_> =
                command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
            words.join(" ")
        };
        assert!(
            asked(true).contains("--enable-largepages") && !asked(false).contains("largepages")
        );
        assert!(
            asked(true).contains("--memory-limit 64 ")
                && asked(true).contains("slab_sizes=256-8192,")
        );
    }
}
