//! User and cgroup of a process, and the names of users.

use std::collections::BTreeMap;

use hugepilot_record::Pid;

use crate::{Result, Root};

/// Returns the number of the real user of `pid`, from `/proc/PID/status`; `None` if the process is
/// gone.
///
/// # Errors
/// If it cannot be read; the process may be alive.
pub fn user(root: &Root, pid: Pid) -> Result<Option<u32>> {
    let text = match root.read(format!("proc/{pid}/status")) {
        Ok(text) => text,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error),
    };
    let lines = text.split(|&byte| byte == b'\n');
    let users = lines.filter_map(|line| line.strip_prefix(b"Uid:"));
    let first =
        |line| std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok();
    Ok(users.filter_map(first).next())
}

/// Reads the names of the users in `/etc/passwd`; none if it cannot be read.
pub fn user_names(root: &Root) -> BTreeMap<u32, String> {
    let text = root.read_text("etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    };
    // Of two names for a number, the first is its name.
    text.lines().rev().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn the_real_user_and_its_name_are_read() {
        let (_dir, root) = fixture(&[
            ("proc/7/status", "Name:\tUid:\t5\nUmask:\t0022\nUid:\t999\t0\t0\t0\nGid:\t1\n"),
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\nredis:x:999:9::/:/x\nalias:x:999:::\nbad\n"),
        ]);
        assert_eq!(user(&root, Pid(7)).unwrap(), Some(999));
        assert_eq!(user(&root, Pid(8)).unwrap(), None);
        let names = user_names(&root);
        assert_eq!((names.len(), &names[&0][..], &names[&999][..]), (2, "root", "redis"));
    }
}
