//! Mounts that a process sees, from `/proc/PID/mountinfo`: which files are on a tmpfs.

use std::cmp::Reverse;

use hugepilot_record::{Pid, ThpWord, Tmpfs};

use crate::proc::printable;

/// Mounts of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(Vec<Mount>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Mount point, control characters escaped as in names of mappings.
    point: String,
    /// The tmpfs; `None` for another file system.
    tmpfs: Option<Tmpfs>,
}

impl Mounts {
    /// Parses `mountinfo`. Lines in another form are skipped.
    pub fn parse(text: &[u8]) -> Self {
        let mut mounts: Vec<Mount> = text.split(|&byte| byte == b'\n').filter_map(mount).collect();
        // A later mount covers an earlier one at the same point.
        mounts.reverse();
        mounts.sort_by_key(|mount| Reverse(mount.point.len()));
        Self(mounts)
    }

    /// Returns the same mounts, as those of the mount namespace of process `pid`.
    pub(crate) fn of_namespace(mut self, pid: Pid) -> Self {
        let all = self.0.iter_mut().filter_map(|mount| mount.tmpfs.as_mut());
        all.for_each(|tmpfs| tmpfs.namespace = Some(pid));
        self
    }

    /// Returns the tmpfs that has the file `name`, a path as in `/proc/PID/maps`.
    pub fn tmpfs_of(&self, name: &str) -> Option<&Tmpfs> {
        let has = |mount: &&Mount| {
            let rest = name.strip_prefix(mount.point.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.0.iter().find(has)?.tmpfs.as_ref()
    }
}

/// Parses `36 35 98:0 /root /point options - type source super-options`.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ');
    let point = printable(&unescaped(words.nth(4)?));
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, options) = (rest.next()?, rest.nth(1)?);
    let huge = || {
        let options = options.split(|&byte| byte == b',');
        let mut huge = options.filter_map(|option| option.strip_prefix(b"huge="));
        // The kernel prints the option unless it is `never`.
        match huge.next() {
            None => Some(ThpWord::Never),
            Some(word) => ThpWord::parse(str::from_utf8(word).ok()?),
        }
    };
    let tmpfs =
        (kind == b"tmpfs").then(|| Tmpfs { mount: point.clone(), namespace: None, huge: huge() });
    Some(Mount { point, tmpfs })
}

/// Decodes octal escapes such as `\040`, which stand for blanks and backslashes.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let octal = text.get(at + 1..at + 4).filter(|_| byte == b'\\');
        let value =
            octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(value.unwrap_or(byte));
        at += if value.is_some() { 4 } else { 1 };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INFO: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
23 22 0:5 / /dev rw,relatime - devtmpfs devtmpfs rw
24 23 0:23 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=1g,huge=advise
25 22 0:24 / /tmp rw - tmpfs tmpfs rw
26 25 254:1 / /tmp/disk rw - ext4 /dev/sdb rw
27 22 0:25 / /mnt/a\\040b rw master:1 shared:2 - tmpfs none rw,huge=sometimes
28 22 0:26 / /run rw - tmpfs none rw,huge=always
29 22 254:2 / /run rw - ext4 /dev/sdc rw
";

    #[test]
    fn the_deepest_mount_has_the_file() {
        let mounts = Mounts::parse(INFO);
        let tmpfs =
            |mount: &str, huge| Some(Tmpfs { mount: mount.to_owned(), namespace: None, huge });
        for (name, expected) in [
            ("/usr/lib/libc.so.6", None),
            ("/dev/null", None),
            ("/dev/shm/x (deleted)", tmpfs("/dev/shm", Some(ThpWord::Advise))),
            ("/dev/shmem", None),
            ("/tmp/x", tmpfs("/tmp", Some(ThpWord::Never))),
            ("/tmp/disk/x", None),
            ("/mnt/a b/x", tmpfs("/mnt/a b", None)),
            ("/run/x", None),
            ("[heap]", None),
        ] {
            assert_eq!(mounts.tmpfs_of(name).cloned(), expected, "{name}");
        }
        assert_eq!(Mounts::parse(b"").tmpfs_of("/tmp/x"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse(junk in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Mounts::parse(&junk).tmpfs_of("/tmp/x");
            let _ = unescaped(&junk);
        }
    }
}
