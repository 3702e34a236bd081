//! Who there is: the numbers in `/proc`.

use hugepilot_record::Pid;
use hugepilot_units::Bytes;

use crate::{KernelError, Result, Root};

/// Every process there is, kernel threads too, by number.
///
/// # Errors
/// [`KernelError::Read`] when `/proc` cannot be listed.
pub fn pids(root: &Root) -> Result<Vec<Pid>> {
    let path = root.join("proc");
    let entries = std::fs::read_dir(&path).map_err(|source| KernelError::read(&path, source))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<Pid> = names.map(Pid).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Resident memory of `pid` as `statm` says it, off by some hundred KiB; `None` when it is gone. A few microseconds, for
/// passing over the many small ones.
///
/// # Errors
/// When it cannot be read, such as EMFILE; the process may be alive.
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
        // Reading a directory fails, as it does without descriptors: it is not gone.
        std::fs::create_dir_all(root.join("proc/9/statm")).unwrap();
        assert_eq!(resident(&root, Pid(9)).unwrap_err().errno(), Some(hugepilot_record::Errno(21)));
    }
}
