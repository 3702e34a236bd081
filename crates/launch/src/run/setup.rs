//! What has to be set for a mode, on this machine, before the program starts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hugepilot_alloc::Chain;
use hugepilot_kernel::rights::{Capability, Rights};
use hugepilot_kernel::thp::ThpSettings;
use hugepilot_kernel::{Program, Root, Started, Thp, Unsupported, find_program, hugetlb, memory};
use hugepilot_record::run::{Mode, Obstacles};
use hugepilot_units::Bytes;

use super::environment::Environment;
use super::{RunOptions, library, program};
use crate::LaunchError;
use hugepilot_settings::lent_pool;

const HUGETLB_TUNABLE: &str = "glibc.malloc.hugetlb";
/// The backings that our allocator tries, in this order.
const OUR_CHAIN: &str = "thp,base";
/// The same where pages of the pool are asked for. Not else: a child made by fork that writes to them takes pages of its own,
/// and is killed where the pool has no more.
const OUR_CHAIN_WITH_POOL: &str = "hugetlb-2m,thp,base";
const PAGES: &str = "HUGEPILOT_PAGES";
/// With less than this in free blocks of the size of a huge page, huge pages are a matter of luck.
const FEW_BLOCKS: Bytes = Bytes::mib(64);

/// A program to be run in one mode.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) mode: Mode,
    pub(crate) path: PathBuf,
    pub(crate) environment: Environment,
    pub(crate) thp: Thp,
    /// Whether its memory is put on huge pages from outside.
    pub(crate) promote: bool,
    /// The library that is preloaded.
    pub(crate) library: Option<PathBuf>,
    pub(crate) obstacles: Obstacles,
}

/// What of this machine matters.
#[derive(Clone, Debug)]
struct Machine {
    /// `always`, `madvise` or `never`.
    thp: String,
    /// Whether the kernel knows "only what is advised"; tried where that matters.
    advised_only: bool,
    /// Whether we may promote memory of other processes.
    may_promote: bool,
}

impl Setup {
    /// Finds out what `command` needs to be run in `mode`.
    ///
    /// # Errors
    /// [`LaunchError::Start`] where there is no such program; [`LaunchError::Refused`] where the mode is not to be had here.
    pub(crate) fn new(
        root: &Root,
        command: &[OsString],
        options: &RunOptions,
    ) -> Result<Self, LaunchError> {
        let mode = options.mode;
        let name = command.first().cloned().unwrap_or_default();
        let path = find_program(&name).map_err(|source| LaunchError::Start {
            program: name.to_string_lossy().into_owned(),
            source,
        })?;
        let obstacles = program::obstacles(&path);
        let environment = Environment::ours(root);
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
        setup.look_at_pool(root)?;
        setup.choose(&Machine::look(root, mode))?;
        if mode.preloads() {
            setup.preload(root, options)?;
        }
        Ok(setup)
    }

    /// The settings of transparent huge pages, and of the C library.
    fn choose(&mut self, machine: &Machine) -> Result<(), Unsupported> {
        let never = machine.thp == "never";
        match self.mode {
            Mode::Base | Mode::HugepilotBase => self.thp = Thp::Never,
            Mode::Advised if machine.thp == "always" && !machine.advised_only => {
                return Err(Unsupported::because(
                    "the system gives huge pages always, and this kernel cannot keep them to what a program advises \
                     (PR_THP_DISABLE_EXCEPT_ADVISED, Linux 6.18)",
                )
                .fixed_by("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"));
            }
            Mode::Advised => {
                self.thp = if machine.thp == "always" { Thp::Advised } else { Thp::Allowed }
            }
            Mode::Thp => self.choose_thp(machine),
            Mode::GlibcThp => {
                self.thp = Thp::Allowed;
                self.environment.tune(HUGETLB_TUNABLE, "1");
            }
            Mode::Hugetlb => {
                self.environment.tune(HUGETLB_TUNABLE, &Bytes::mib(2).get().to_string())
            }
            Mode::Hugetlb1g => {
                self.environment.tune(HUGETLB_TUNABLE, &Bytes::gib(1).get().to_string())
            }
            Mode::Mimalloc | Mode::Mimalloc1g => {}
            Mode::Mimalloc2m | Mode::Hugepilot => self.thp = Thp::Allowed,
        }
        if never {
            self.obstacles.thp =
                Some("the system's setting of transparent huge pages is never".to_owned());
        }
        Ok(())
    }

    /// Where the system gives huge pages to those who advise, the C library advises for its heap, so that it has them from the
    /// start; what else there is, we promote.
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
            self.obstacles.not_promoted =
                Some("its memory could not be promoted from outside: that needs root".to_owned());
        }
    }

    fn preload(&mut self, root: &Root, options: &RunOptions) -> Result<(), Unsupported> {
        let path = library::find(self.mode, options.library.as_deref())?;
        if self.mode.is_hugepilot() {
            let chain = match options.pool {
                _ if self.mode == Mode::HugepilotBase => "base",
                Some(_) => OUR_CHAIN_WITH_POOL,
                None => OUR_CHAIN,
            };
            self.environment.offer(PAGES, chain);
            check_pages(&self.environment)?;
        } else {
            // As many as there will be.
            let coming = options.pool.map_or(0, |pool| pool.get().div_ceil(Bytes::gib(1).get()));
            let free = free_pages(root, Bytes::gib(1)).unwrap_or(0).max(coming);
            for (name, value) in library::mimalloc(self.mode, &path, free)? {
                self.environment.offer(name, &value);
            }
        }
        self.environment.preload(&path);
        self.library = Some(path);
        Ok(())
    }

    /// Notes when the pool has no page to give.
    fn look_at_pool(&mut self, root: &Root) -> Result<(), Unsupported> {
        let Some(size) = self.mode.needs_pool() else { return Ok(()) };
        match free_pages(root, size) {
            None => Err(Unsupported::because(format!(
                "the processor or the kernel has no hugetlb pages of {size}"
            ))),
            Some(0) => {
                self.obstacles.empty_pool = Some(format!("the pool has no free page of {size}"));
                self.obstacles.pool_fix = Some(format!(
                    "sudo hugepilot pool set --size {size} --count N, or --pool AMOUNT for this run alone"
                ));
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }
}

/// What the user set may be no chain: better said before the program runs than by each process of it.
fn check_pages(environment: &Environment) -> Result<(), Unsupported> {
    let text = environment.get(PAGES).unwrap_or_default().to_string_lossy();
    let read = if text.trim().is_empty() { Ok(Chain::THP_OR_BASE) } else { text.trim().parse() };
    read.map(|_| ()).map_err(|error| {
        Unsupported::because(format!("{PAGES}: {error}"))
            .fixed_by(format!("unset {PAGES}, or {PAGES}={OUR_CHAIN}"))
    })
}

/// How little there is to make huge pages of, where that is next to nothing.
fn fragmented(root: &Root) -> Option<String> {
    let sizes = memory::page_sizes(root).ok()?;
    let free = memory::free_huge(root, sizes).ok().filter(|&free| free < FEW_BLOCKS)?;
    Some(format!(
        "memory is fragmented, or full: when it started, only {free} were free in blocks as large as a huge page"
    ))
}

/// Pages of a pool that nobody has, nobody is promised, and no other run of ours gives back when it ends; `None` where there is no
/// such pool.
pub(crate) fn free_pages(root: &Root, size: Bytes) -> Option<u64> {
    let pages = hugetlb::pages(root, size, None).ok()?;
    let lent = lent_pool(root, size).map_or(0, |lent| lent.raised.saturating_sub(lent.before));
    Some(pages.free.saturating_sub(pages.reserved.unwrap_or(0)).saturating_sub(lent))
}

impl Machine {
    fn look(root: &Root, mode: Mode) -> Self {
        let thp = ThpSettings::read(root).chosen("enabled").unwrap_or("never").to_owned();
        let advised_only = mode == Mode::Advised && thp == "always" && takes_advised_only();
        Self { thp, advised_only, may_promote: Rights::read(root).has(Capability::SysNice) }
    }
}

/// Tries the setting on a child of ours that does nothing else.
fn takes_advised_only() -> bool {
    let nothing = Program {
        path: Path::new("/proc/self/exe"),
        arguments: &["hugepilot".into(), "--version".into()],
        environment: &[],
        thp: Thp::Advised,
        standard: [None; 3],
        own_group: false,
    };
    let sink = std::fs::File::options().write(true).open("/dev/null");
    let Ok(sink) = sink else { return false };
    let sink = std::os::fd::AsFd::as_fd(&sink);
    let quiet = Program { standard: [None, Some(sink), Some(sink)], ..nothing };
    Started::held(&quiet, None).is_ok_and(|mut child| child.release().is_ok())
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
    fn every_mode_is_set_as_the_systems_setting_wants_it() {
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
    fn pages_that_make_no_sense_are_refused_before_the_program_runs() {
        let check = |text: &str| check_pages(&Environment::of([(PAGES.into(), text.into())]));
        for fine in ["", " ", OUR_CHAIN, OUR_CHAIN_WITH_POOL, "base", " thp:50% , base "] {
            assert!(check(fine).is_ok(), "{fine:?}");
        }
        let refused = check("huge").unwrap_err();
        assert!(
            refused.to_string().starts_with("HUGEPILOT_PAGES: ")
                && refused.to_string().contains("huge"),
            "{refused:?}"
        );
    }

    #[test]
    fn pages_that_another_run_gives_back_are_not_free() {
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
    fn what_this_kernel_cannot_is_refused_and_what_we_may_not_is_noted() {
        let refused = chosen(Mode::Advised, "always", false, true).unwrap_err();
        assert!(refused.to_string().contains("6.18") && !refused.help().is_empty());
        assert!(chosen(Mode::Advised, "madvise", false, true).is_ok());
        assert!(!chosen(Mode::Thp, "madvise", true, false).unwrap().1);
    }
}
