//! List of processes, from the numbers in `/proc`.

use hugepilot_record::Pid;
use hugepilot_units::Bytes;

use super::parse_stat;
use crate::{KernelError, Result, Root};

/// Lists all processes by pid, kernel threads included.
///
/// # Errors
/// [`KernelError::Read`] if `/proc` cannot be listed.
pub fn pids(root: &Root) -> Result<Vec<Pid>> {
    let path = root.join("proc");
    let entries = std::fs::read_dir(&path).map_err(|source| KernelError::read(&path, source))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<Pid> = names.map(Pid).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Lists the processes with this name, as [`super::printable`] shows it, by pid. Kernel threads and
/// zombies are not among them.
///
/// # Errors
/// As for [`pids`].
pub fn named(root: &Root, name: &str) -> Result<Vec<Pid>> {
    let mut all = pids(root)?;
    all.retain(|pid| {
        // A process that ended meanwhile, or that is hidden, has no name.
        let stat = root.read(format!("proc/{pid}/stat")).ok().and_then(|line| parse_stat(&line));
        stat.is_some_and(|stat| {
            stat.command == name && !stat.is_kernel_thread() && !stat.is_zombie()
        })
    });
    Ok(all)
}

/// Returns the resident memory of `pid` from `statm`, off by some hundred KiB; `None` if it is
/// gone. Takes a few microseconds, to skip the many small processes.
///
/// # Errors
/// If it cannot be read, as with EMFILE; the process may be alive.
pub fn resident(root: &Root, pid: Pid) -> Result<Option<Bytes>> {
    let text = match root.read_text(format!("proc/{pid}/statm")) {
        Ok(text) => text,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error),
    };
    let pages: Option<u64> =
        text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    Ok(pages.map(|pages| Bytes::new(rustix::param::page_size() as u64).times(pages)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn a_name_finds_every_process_that_has_it_but_no_kernel_thread_and_no_zombie() {
        let line = |pid: i32, name: &str, state: &str, flags: u64| {
            format!("{pid} ({name}) {state} 1 1 1 0 -1 {flags} {}", "1 ".repeat(43))
        };
        const KERNEL_THREAD: u64 = 0x0020_0000;
        let (_dir, root) = fixture(&[
            ("proc/3/stat", &line(3, "db", "S", KERNEL_THREAD)),
            ("proc/5/stat", &line(5, "db", "S", 0)),
            ("proc/6/stat", &line(6, "db2", "S", 0)),
            ("proc/7/stat", &line(7, "db", "Z", 0)),
            ("proc/40/stat", &line(40, "db", "R", 0)),
            ("proc/41/statm", "1"),
        ]);
        assert_eq!(named(&root, "db").unwrap(), [Pid(5), Pid(40)]);
        assert_eq!(named(&root, "d").unwrap(), []);
    }

    #[test]
    fn numbers_are_processes_and_names_are_not() {
        let (_dir, root) = fixture(&[
            ("proc/meminfo", ""),
            ("proc/12/statm", "100 3 2 1 0 9 0\n"),
            ("proc/7/x", ""),
        ]);
        assert_eq!(pids(&root).unwrap(), [Pid(7), Pid(12)]);
        let page = rustix::param::page_size() as u64;
        assert_eq!(resident(&root, Pid(12)).unwrap(), Some(Bytes::new(3 * page)));
        assert_eq!(resident(&root, Pid(7)).unwrap(), None);
        // Reading a directory fails, as it does without descriptors: the process is not gone.
        std::fs::create_dir_all(root.join("proc/9/statm")).unwrap();
        assert_eq!(resident(&root, Pid(9)).unwrap_err().errno(), Some(hugepilot_record::Errno(21)));
    }
}
