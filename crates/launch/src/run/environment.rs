//! Environment of a program: that of the user, with the settings of a mode.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{Root, privilege};
use hugepilot_reports::run::RunWarning;

const TUNABLES: &str = "GLIBC_TUNABLES";
const PRELOAD: &str = "LD_PRELOAD";

/// Variables of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Environment {
    /// All variables.
    pub(crate) all: Vec<(OsString, OsString)>,
    /// Variables set by hugepilot, as `NAME=value`.
    pub(crate) set: Vec<String>,
    /// Values of the user that were kept, and variables that may be missing.
    pub(crate) warnings: Vec<RunWarning>,
}

impl Environment {
    /// Returns the environment that the user's shell would pass to the program.
    ///
    /// The loader removes or empties variables such as `LD_PRELOAD` for an executable with file
    /// capabilities (`ld.so(8)`, secure-execution mode). The program has none, so it gets the
    /// variables from `/proc/self/environ`. If that is unreadable, or hugepilot runs as another
    /// user, a warning says that variables may be missing.
    pub(crate) fn inherited(root: &Root) -> Self {
        let same_user = !privilege::is_set_id();
        match root.read("proc/self/environ").ok().filter(|_| same_user) {
            Some(first) => Self::of(entries(&first)),
            None => Self {
                warnings: vec![RunWarning::LoaderVariablesRemoved],
                ..Self::of(std::env::vars_os())
            },
        }
    }

    /// Returns an environment of these variables.
    pub(crate) fn of(all: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { all: all.into_iter().collect(), set: Vec::new(), warnings: Vec::new() }
    }

    /// Returns the value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.all.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// Sets a variable, unless the user has set it.
    pub(crate) fn offer(&mut self, name: &str, value: &str) {
        match self.get(name).map(|own| printable(own.as_bytes())) {
            Some(own) if own != value => {
                let name = name.to_owned();
                self.warnings.push(RunWarning::VariableKept { name, value: own });
            }
            Some(_) => {}
            None => self.put(name, value.into()),
        }
    }

    /// Adds a tunable of glibc, unless the user has set it.
    pub(crate) fn tune(&mut self, name: &str, value: &str) {
        let own = self.get(TUNABLES).unwrap_or_default().to_owned();
        let list = own.as_bytes().split(|&byte| byte == b':').filter(|part| !part.is_empty());
        let prefix = format!("{name}=");
        if let Some(same) = list.clone().find(|part| part.starts_with(prefix.as_bytes())) {
            let tunable = printable(same);
            if tunable != format!("{name}={value}") {
                self.warnings.push(RunWarning::TunableKept { tunable });
            }
            return;
        }
        let new = format!("{name}={value}");
        self.put(TUNABLES, joined(list.chain([new.as_bytes()])));
    }

    /// Puts a library in front of the user's preloaded ones: the loader uses the first that defines
    /// a function.
    pub(crate) fn preload(&mut self, library: &Path) {
        let own = self.get(PRELOAD).unwrap_or_default().to_owned();
        // The loader also splits at blanks.
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

/// Splits `NAME=value` entries that each end with a NUL.
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
    fn tunables_are_merged_and_the_users_one_stays() {
        const NAME: &str = "glibc.malloc.hugetlb";
        let table = [
            ("", "glibc.malloc.hugetlb=1", 0),
            ("glibc.malloc.check=3", "glibc.malloc.check=3:glibc.malloc.hugetlb=1", 0),
            ("glibc.malloc.hugetlb=2", "glibc.malloc.hugetlb=2", 1),
            ("a=b:glibc.malloc.hugetlb=1:c=d", "a=b:glibc.malloc.hugetlb=1:c=d", 0),
            ("glibc.malloc.hugetlb_x=2", "glibc.malloc.hugetlb_x=2:glibc.malloc.hugetlb=1", 0),
        ];
        for (before, after, warnings) in table {
            let mut environment = with(TUNABLES, before);
            environment.tune(NAME, "1");
            assert_eq!(environment.get(TUNABLES).unwrap(), after, "{before}");
            assert_eq!(environment.warnings.len(), warnings, "{before}");
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
        let inherited = Environment::inherited(&Root::live());
        assert_eq!(inherited.all, std::env::vars_os().collect::<Vec<_>>());
        assert_eq!(inherited.warnings, []);
        let unreadable = Environment::inherited(&Root::at("/no/such/root"));
        assert_eq!(unreadable.warnings, [RunWarning::LoaderVariablesRemoved]);
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
    fn a_value_of_the_user_is_kept_with_a_warning() {
        let mut environment = with("MIMALLOC_RESERVE_HUGE_OS_PAGES", "2");
        environment.offer("MIMALLOC_RESERVE_HUGE_OS_PAGES", "4");
        environment.offer("B", "x");
        environment.offer("A", "1");
        assert_eq!(environment.get("MIMALLOC_RESERVE_HUGE_OS_PAGES").unwrap(), "2");
        assert_eq!(environment.get("B").unwrap(), "x");
        let kept = RunWarning::VariableKept {
            name: "MIMALLOC_RESERVE_HUGE_OS_PAGES".to_owned(),
            value: "2".to_owned(),
        };
        assert_eq!((environment.set.len(), environment.warnings), (1, vec![kept]));
    }

    proptest! {
        #[test]
        fn no_value_of_the_user_is_lost(
            own in "[a-z.=]{0,8}(:[a-z.=]{1,8}){0,4}",
            library in "/[a-z]{1,8}",
        ) {
            let both = [TUNABLES, PRELOAD].map(|name| (name.into(), own.clone().into()));
            let mut environment = Environment::of(both);
            environment.tune("glibc.malloc.hugetlb", "2");
            environment.preload(Path::new(&library));
            for name in [TUNABLES, PRELOAD] {
                let now = environment.get(name).unwrap().to_str().unwrap().to_owned();
                let parts: Vec<&str> = now.split(':').collect();
                let mut own = own.split(':').filter(|part| !part.is_empty());
                prop_assert!(own.all(|part| parts.contains(&part)), "{now}");
                prop_assert!(!parts.contains(&""), "{now}");
            }
            prop_assert_eq!(environment.all.len(), 2);
        }
    }
}
