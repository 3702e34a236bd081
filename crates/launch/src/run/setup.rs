//! Setup of a mode on this machine, before the program starts.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use hugepilot_alloc::Chain;
use hugepilot_kernel::rights::{Capability, Rights};
use hugepilot_kernel::thp::ThpSettings;
use hugepilot_kernel::{
    Program, Root, StartedProgram, Thp, Unsupported, find_program, hugetlb, memory,
};
use hugepilot_record::{Mode, ModeUnsupported};
use hugepilot_settings::lent_pool;
use hugepilot_units::Bytes;

use super::environment::Environment;
use super::{RunOptions, library, program};
use crate::LaunchError;
use crate::effect::{Obstacles, PromotionObstacle};

const HUGETLB_TUNABLE: &str = "glibc.malloc.hugetlb";
const PAGES: &str = "HUGEPILOT_PAGES";
/// Backings of hugepilot's allocator, in order of preference.
const CHAIN: &str = "thp,base";
/// Backings with `--pool`. Not the default: a child made by fork that writes to hugetlb pages takes
/// free pool pages, and SIGBUS kills it if there are none.
const CHAIN_WITH_POOL: &str = "hugetlb-2m,thp,base";
/// Free memory in blocks of huge-page size below which huge pages are unlikely.
const FEW_BLOCKS: Bytes = Bytes::mib(64);

/// Setup of a program for one mode.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) mode: Mode,
    pub(crate) path: PathBuf,
    pub(crate) environment: Environment,
    pub(crate) thp: Thp,
    /// Whether hugepilot promotes its memory from outside.
    pub(crate) promote: bool,
    /// Preloaded library.
    pub(crate) library: Option<PathBuf>,
    pub(crate) obstacles: Obstacles,
}

/// Facts about this machine that modes depend on.
#[derive(Clone, Debug)]
struct Machine {
    /// `always`, `madvise` or `never`.
    thp: String,
    /// Whether the kernel can restrict THP to advised memory; tried only for [`Mode::Advised`].
    advised_only: bool,
    /// Whether hugepilot may promote memory of other processes.
    may_promote: bool,
}

impl Setup {
    /// Determines the setup of `command` for a mode.
    ///
    /// # Errors
    /// [`LaunchError::Start`] if there is no such program; [`LaunchError::Refused`] if the mode is
    /// unavailable.
    pub(crate) fn new(
        root: &Root,
        command: &[OsString],
        options: &RunOptions,
    ) -> Result<Self, LaunchError> {
        let mode = options.mode;
        let name = command.first().cloned().unwrap_or_default();
        let path = find_program(&name).map_err(|source| LaunchError::start(&name, source))?;
        let obstacles = program::obstacles(&path);
        let environment = Environment::inherited(root);
        let mut setup = Self {
            mode,
            path,
            environment,
            thp: Thp::Inherit,
            promote: false,
            library: None,
            obstacles,
        };
        setup.obstacles.fragmented = fragmented(root);
        setup.inspect_pool(root)?;
        setup.choose(&Machine::inspect(root, mode))?;
        if mode.preloads() {
            setup.preload(root, options)?;
        }
        Ok(setup)
    }

    /// Returns a setup that changes neither the pages nor the environment of `command`.
    ///
    /// # Errors
    /// [`LaunchError::Start`] if there is no such program.
    pub(crate) fn unchanged(root: &Root, command: &[OsString]) -> Result<Self, LaunchError> {
        let name = command.first().cloned().unwrap_or_default();
        let path = find_program(&name).map_err(|source| LaunchError::start(&name, source))?;
        Ok(Self {
            // Advised memory only is the mode that changes least; nothing judges its effect.
            mode: Mode::Advised,
            obstacles: program::obstacles(&path),
            path,
            environment: Environment::inherited(root),
            thp: Thp::Inherit,
            promote: false,
            library: None,
        })
    }

    /// Chooses the THP setting of the process, and the tunables of the C library.
    fn choose(&mut self, machine: &Machine) -> Result<(), Unsupported> {
        let always = machine.thp == "always";
        match self.mode {
            Mode::Base | Mode::HugepilotBase => self.thp = Thp::Never,
            Mode::Advised if always && !machine.advised_only => {
                return Err(ModeUnsupported::ThpAlways.into());
            }
            Mode::Advised => self.thp = if always { Thp::Advised } else { Thp::Allowed },
            Mode::Thp => self.choose_thp(machine),
            Mode::GlibcThp => {
                self.thp = Thp::Allowed;
                self.environment.tune(HUGETLB_TUNABLE, "1");
            }
            Mode::Hugetlb => {
                self.environment.tune(HUGETLB_TUNABLE, &Bytes::mib(2).get().to_string());
            }
            Mode::Hugetlb1g => {
                self.environment.tune(HUGETLB_TUNABLE, &Bytes::gib(1).get().to_string());
            }
            Mode::Mimalloc | Mode::Mimalloc1g => {}
            Mode::Mimalloc2m | Mode::Hugepilot => self.thp = Thp::Allowed,
        }
        self.obstacles.thp_never = machine.thp == "never";
        Ok(())
    }

    /// Chooses the settings of [`Mode::Thp`]. With `madvise`, the C library advises its heap, so
    /// that it has huge pages from the start; hugepilot promotes other memory.
    fn choose_thp(&mut self, machine: &Machine) {
        self.thp = Thp::Allowed;
        if machine.thp == "always" {
            return;
        }
        if machine.thp == "madvise" {
            self.environment.tune(HUGETLB_TUNABLE, "1");
        }
        self.promote = machine.may_promote;
        if !self.promote {
            self.obstacles.not_promoted = Some(PromotionObstacle::NotPermitted);
        }
    }

    fn preload(&mut self, root: &Root, options: &RunOptions) -> Result<(), Unsupported> {
        let path = library::find(self.mode, options.library.as_deref())?;
        if self.mode.is_hugepilot() {
            let chain = match options.pool {
                _ if self.mode == Mode::HugepilotBase => "base",
                Some(_) => CHAIN_WITH_POOL,
                None => CHAIN,
            };
            self.environment.offer(PAGES, chain);
            check_pages(&self.environment)?;
        } else {
            // The pages that `--pool` will add count.
            let coming = options.pool.map_or(0, |pool| pool.get().div_ceil(Bytes::gib(1).get()));
            let free = free_pages(root, Bytes::gib(1)).unwrap_or(0).max(coming);
            for (name, value) in library::mimalloc_options(self.mode, &path, free)? {
                self.environment.offer(name, &value);
            }
        }
        self.environment.preload(&path);
        self.library = Some(path);
        Ok(())
    }

    /// Notes an empty pool.
    fn inspect_pool(&mut self, root: &Root) -> Result<(), Unsupported> {
        let Some(size) = self.mode.needs_pool() else { return Ok(()) };
        let free = free_pages(root, size).ok_or(Unsupported::NoHugetlb { size_bytes: size })?;
        self.obstacles.empty_pool = (free == 0).then_some(size);
        match hugetlb::limit(root, size) {
            Some(limit) if limit.left < size => return Err(limit.cause(size)),
            limit => self.obstacles.pool_limit = limit.map(|limit| limit.file),
        }
        Ok(())
    }
}

/// Rejects a `HUGEPILOT_PAGES` of the user that each process of the program would reject.
fn check_pages(environment: &Environment) -> Result<(), Unsupported> {
    let text = environment.get(PAGES).unwrap_or_default().to_string_lossy();
    let read = if text.trim().is_empty() { Ok(Chain::THP_OR_BASE) } else { text.trim().parse() };
    read.map(|_| ()).map_err(|error| {
        let (variable, error) = (PAGES.to_owned(), error.to_string());
        ModeUnsupported::InvalidPages { variable, error, usual: CHAIN.to_string() }.into()
    })
}

/// Free memory in blocks of huge-page size, if it is little.
fn fragmented(root: &Root) -> Option<Bytes> {
    let sizes = memory::page_sizes(root).ok()?;
    memory::free_huge(root, sizes).ok().filter(|&free| free < FEW_BLOCKS)
}

/// Counts the free pages of a pool that are not reserved, and that no other run of hugepilot will
/// return when it ends; `None` if there is no such pool.
pub(crate) fn free_pages(root: &Root, size: Bytes) -> Option<u64> {
    let pages = hugetlb::pages(root, size, None).ok()?;
    let lent = lent_pool(root, size).map_or(0, |lent| lent.raised.saturating_sub(lent.before));
    Some(pages.free.saturating_sub(pages.reserved.unwrap_or(0)).saturating_sub(lent))
}

impl Machine {
    fn inspect(root: &Root, mode: Mode) -> Self {
        let thp = ThpSettings::read(root).chosen("enabled").unwrap_or("never").to_owned();
        let advised_only = mode == Mode::Advised && thp == "always" && supports_advised_only();
        Self { thp, advised_only, may_promote: Rights::read(root).has(Capability::SysNice) }
    }
}

/// Tries the setting on a child process of hugepilot.
fn supports_advised_only() -> bool {
    let sink = std::fs::File::options().write(true).open("/dev/null");
    let Ok(sink) = sink else { return false };
    let probe = Program {
        path: Path::new("/proc/self/exe"),
        arguments: &["hugepilot".into(), "--version".into()],
        environment: &[],
        thp: Thp::Advised,
        standard: [None, Some(sink.as_fd()), Some(sink.as_fd())],
        own_group: false,
    };
    StartedProgram::held(&probe, None).is_ok_and(|mut child| child.release().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        mode: Mode,
        thp: &str,
        advised_only: bool,
        may_promote: bool,
    ) -> Result<(Thp, bool, Vec<String>), Unsupported> {
        let environment = Environment::of([]);
        let obstacles = Obstacles::default();
        let mut setup = Setup {
            mode,
            path: "/x".into(),
            environment,
            thp: Thp::Inherit,
            promote: false,
            library: None,
            obstacles,
        };
        setup.choose(&Machine { thp: thp.to_owned(), advised_only, may_promote })?;
        Ok((setup.thp, setup.promote, setup.environment.set))
    }

    #[test]
    fn every_mode_follows_the_thp_setting_of_the_system() {
        let tunable = |value: &str| vec![format!("GLIBC_TUNABLES=glibc.malloc.hugetlb={value}")];
        let table = [
            (Mode::Base, "always", Thp::Never, false, vec![]),
            (Mode::Thp, "always", Thp::Allowed, false, vec![]),
            (Mode::Thp, "madvise", Thp::Allowed, true, tunable("1")),
            (Mode::Thp, "never", Thp::Allowed, true, vec![]),
            (Mode::Advised, "always", Thp::Advised, false, vec![]),
            (Mode::Advised, "madvise", Thp::Allowed, false, vec![]),
            (Mode::GlibcThp, "madvise", Thp::Allowed, false, tunable("1")),
            (Mode::Hugetlb, "madvise", Thp::Inherit, false, tunable("2097152")),
            (Mode::Hugetlb1g, "madvise", Thp::Inherit, false, tunable("1073741824")),
            (Mode::Mimalloc, "madvise", Thp::Inherit, false, vec![]),
            (Mode::Hugepilot, "madvise", Thp::Allowed, false, vec![]),
            (Mode::HugepilotBase, "always", Thp::Never, false, vec![]),
        ];
        for (mode, system, thp, promote, set) in table {
            assert_eq!(
                chosen(mode, system, true, true).unwrap(),
                (thp, promote, set),
                "{mode} {system}"
            );
        }
    }

    #[test]
    fn invalid_pages_are_rejected_before_the_program_runs() {
        let check = |text: &str| check_pages(&Environment::of([(PAGES.into(), text.into())]));
        for fine in ["", " ", CHAIN, CHAIN_WITH_POOL, "base", " thp:50% , base "] {
            assert!(check(fine).is_ok(), "{fine:?}");
        }
        let error = check("huge").unwrap_err();
        assert!(
            error.to_string().starts_with("HUGEPILOT_PAGES: ")
                && error.to_string().contains("huge"),
            "{error:?}"
        );
    }

    #[test]
    fn pages_that_another_run_returns_are_not_free() {
        let folder = tempfile::tempdir().unwrap();
        let (root, size) = (Root::at(folder.path()), Bytes::mib(2));
        let write = |path: String, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (file, count) in [("nr", "300"), ("free", "250"), ("resv", "20"), ("surplus", "0")] {
            write(format!("{}/{file}_hugepages", hugetlb::directory(size, None)), count);
        }
        assert_eq!(free_pages(&root, size), Some(230));
        let setting =
            r#"{"name": "hugepages-2048kB/nr_hugepages", "before": "100", "set_to": "300"}"#;
        for (pid, free) in [(1, 30), (std::process::id(), 230)] {
            let journal = format!(
                r#"{{"schema": "hugepilot.settings/1", "pid": {pid}, "settings": [{setting}]}}"#
            );
            write("run/hugepilot/settings.json".to_owned(), &journal);
            assert_eq!(free_pages(&root, size), Some(free), "{pid}");
        }
    }

    #[test]
    fn an_unsupported_mode_is_an_error_and_a_missing_permission_an_obstacle() {
        let error = chosen(Mode::Advised, "always", false, true).unwrap_err();
        assert!(error.to_string().contains("6.18") && !error.help().is_empty());
        assert!(chosen(Mode::Advised, "madvise", false, true).is_ok());
        assert!(!chosen(Mode::Thp, "madvise", true, false).unwrap().1);
    }
}
