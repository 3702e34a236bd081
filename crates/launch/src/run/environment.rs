//! The environment of a program, with what a mode wants in it and all that its user had put there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{Root, privilege};

const TUNABLES: &str = "GLIBC_TUNABLES";
const PRELOAD: &str = "LD_PRELOAD";
const MAY_BE_MISSING: &str = "LD_PRELOAD, LD_LIBRARY_PATH and GLIBC_TUNABLES of yours, if any, did not get through: the loader takes \
                              them from hugepilot, whose file has rights of its own (setcap, setuid); set them behind the --, as in \
                              -- env NAME=value CMD";

/// Variables for a program, and which of them we set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// All of them.
    pub(crate) all: Vec<(OsString, OsString)>,
    /// Those that we set, as `NAME=value`.
    pub(crate) set: Vec<String>,
    /// Where the user's own value was kept instead, and what else to tell of it.
    pub(crate) kept: Vec<String>,
}

impl Environment {
    /// What its user has, as a program started without us would.
    ///
    /// The loader takes settings such as `LD_PRELOAD` away from a program whose file has rights of its own, or empties them
    /// (`ld.so(8)`, secure-execution mode). What we start has no such rights, so it gets them as they stand in
    /// `/proc/self/environ`; where we may not read that, or run as another user, it is told that they may be missing.
    pub(crate) fn ours(root: &Root) -> Self {
        let same_user = !privilege::is_set_id();
        match root.read("proc/self/environ").ok().filter(|_| same_user) {
            Some(first) => Self::of(entries(&first)),
            None => Self { kept: vec![MAY_BE_MISSING.to_owned()], ..Self::of(std::env::vars_os()) },
        }
    }

    /// These.
    pub(crate) fn of(all: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { all: all.into_iter().collect(), set: Vec::new(), kept: Vec::new() }
    }

    /// The value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.all.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// Sets a variable that the user has not set.
    pub(crate) fn offer(&mut self, name: &str, value: &str) {
        match self.get(name).map(|own| printable(own.as_bytes())) {
            Some(own) if own != value => {
                self.kept.push(format!("{name}={own} was kept as you set it"))
            }
            Some(_) => {}
            None => self.put(name, value.into()),
        }
    }

    /// Adds a tunable of glibc to those that are there; one of that name stays.
    pub(crate) fn tune(&mut self, name: &str, value: &str) {
        let own = self.get(TUNABLES).unwrap_or_default().to_owned();
        let list = own.as_bytes().split(|&byte| byte == b':').filter(|part| !part.is_empty());
        let prefix = format!("{name}=");
        if let Some(same) = list.clone().find(|part| part.starts_with(prefix.as_bytes())) {
            let same = printable(same);
            if same != format!("{name}={value}") {
                self.kept.push(format!("{same} in {TUNABLES} was kept as you set it"));
            }
            return;
        }
        let new = format!("{name}={value}");
        self.put(TUNABLES, joined(list.chain([new.as_bytes()])));
    }

    /// Puts a library before those that are preloaded already: the first that has a function is asked for it.
    pub(crate) fn preload(&mut self, library: &Path) {
        let own = self.get(PRELOAD).unwrap_or_default().to_owned();
        // The loader parts them at blanks, too.
        let rest = own
            .as_bytes()
            .split(|&byte| byte == b':' || byte == b' ')
            .filter(|part| !part.is_empty());
        let library = library.as_os_str().as_bytes();
        self.put(
            PRELOAD,
            joined([library].into_iter().chain(rest.filter(|&part| part != library))),
        );
    }

    fn put(&mut self, name: &str, value: OsString) {
        self.set.push(format!("{name}={}", printable(value.as_bytes())));
        match self.all.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.all.push((name.into(), value)),
        }
    }
}

/// Of texts `NAME=value` that each end with a NUL.
fn entries(environ: &[u8]) -> impl Iterator<Item = (OsString, OsString)> + '_ {
    environ.split(|&byte| byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
        let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    })
}

fn joined<'a>(parts: impl Iterator<Item = &'a [u8]>) -> OsString {
    OsStr::from_bytes(&parts.collect::<Vec<_>>().join(&b':')).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(name: &str, value: &str) -> Environment {
        Environment::of([("A".into(), "1".into()), (name.into(), value.into())])
    }

    #[test]
    fn tunables_are_merged_and_the_users_own_one_stays() {
        const NAME: &str = "glibc.malloc.hugetlb";
        let table = [
            ("", "glibc.malloc.hugetlb=1", 0),
            ("glibc.malloc.check=3", "glibc.malloc.check=3:glibc.malloc.hugetlb=1", 0),
            ("glibc.malloc.hugetlb=2", "glibc.malloc.hugetlb=2", 1),
            ("a=b:glibc.malloc.hugetlb=1:c=d", "a=b:glibc.malloc.hugetlb=1:c=d", 0),
            ("glibc.malloc.hugetlb_x=2", "glibc.malloc.hugetlb_x=2:glibc.malloc.hugetlb=1", 0),
        ];
        for (before, after, kept) in table {
            let mut environment = with(TUNABLES, before);
            environment.tune(NAME, "1");
            assert_eq!(environment.get(TUNABLES).unwrap(), after, "{before}");
            assert_eq!(environment.kept.len(), kept, "{before}");
        }
        let mut none = Environment::of([]);
        none.tune(NAME, "1");
        assert_eq!(none.set, ["GLIBC_TUNABLES=glibc.malloc.hugetlb=1"]);
    }

    #[test]
    fn the_environment_is_read_as_the_system_keeps_it() {
        let all = entries(b"A=1\0GLIBC_TUNABLES=a=b\0\0=x\0nothing\0B=\0").collect::<Vec<_>>();
        let wanted = [("A", "1"), ("GLIBC_TUNABLES", "a=b"), ("B", "")];
        assert_eq!(all, wanted.map(|(name, value)| (name.into(), value.into())));
        let ours = Environment::ours(&Root::live());
        assert_eq!((ours.all, ours.kept), (std::env::vars_os().collect(), Vec::new()));
        let nowhere = Root::at("/no/such/root");
        assert!(Environment::ours(&nowhere).kept[0].contains("setcap"));
    }

    #[test]
    fn a_preloaded_library_comes_before_the_users_and_once() {
        for (before, after) in [
            ("", "/l/m.so"),
            ("/x.so", "/l/m.so:/x.so"),
            ("/x.so /y.so:/l/m.so", "/l/m.so:/x.so:/y.so"),
        ] {
            let mut environment = with(PRELOAD, before);
            environment.preload(Path::new("/l/m.so"));
            assert_eq!(environment.get(PRELOAD).unwrap(), after, "{before}");
        }
    }

    #[test]
    fn what_the_user_set_is_kept_and_told() {
        let mut environment = with("MIMALLOC_RESERVE_HUGE_OS_PAGES", "2");
        environment.offer("MIMALLOC_RESERVE_HUGE_OS_PAGES", "4");
        environment.offer("B", "x");
        environment.offer("A", "1");
        assert_eq!(environment.get("MIMALLOC_RESERVE_HUGE_OS_PAGES").unwrap(), "2");
        assert_eq!((environment.set.len(), environment.kept.len()), (1, 1));
        assert_eq!(environment.get("B").unwrap(), "x");
    }

    proptest! {
        #[test]
        fn nothing_of_the_users_is_lost(own in "[a-z.=]{0,8}(:[a-z.=]{1,8}){0,4}", library in "/[a-z]{1,8}") {
            let mut environment = Environment::of([(TUNABLES.into(), own.clone().into()), (PRELOAD.into(), own.clone().into())]);
            environment.tune("glibc.malloc.hugetlb", "2");
            environment.preload(Path::new(&library));
            for name in [TUNABLES, PRELOAD] {
                let now = environment.get(name).unwrap().to_str().unwrap().to_owned();
                let parts: Vec<&str> = now.split(':').collect();
                prop_assert!(own.split(':').filter(|part| !part.is_empty()).all(|part| parts.contains(&part)), "{now}");
                prop_assert!(!parts.contains(&""), "{now}");
            }
            prop_assert_eq!(environment.all.len(), 2);
        }
    }
}
