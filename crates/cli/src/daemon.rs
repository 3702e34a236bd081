//! `hugepilot daemon`.

use std::cell::Cell;
use std::io::{self, ErrorKind, IsTerminal};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use hugepilot_kernel::{descriptors, file};
use hugepilot_manager::daemon::{Config, Control, ControlRequest, Machine, daemon};
use hugepilot_record::daemon::Line;
use hugepilot_report::{daemon_line, daemon_text};
use hugepilot_units::{Bytes, Nanos, Share};

use crate::debloat::{OrderArg, refusal};
use crate::exit::Exit;
use crate::interrupt::Signals;
use crate::output::print;

/// A configuration with every key and its comment has less than 8 KiB.
const MAX_CONFIG: Bytes = Bytes::mib(1);

/// Watch memory use, and take back what huge pages waste whenever memory gets short
///
/// Between two watermarks, as EMD (ISMM'25) has them: at the high one it begins to split the huge pages that waste most, and
/// below the low one it stops. It stays within a share of one core unless use is critical, leaves a region alone for a while
/// after it was split, and for good when somebody makes it huge again and again. One line of JSON for each event on stdout.
#[derive(Args)]
#[command(after_help = "EXAMPLES:\n  \
    sudo hugepilot daemon --debloat                    hold the system between 80 % and 65 %\n  \
    sudo hugepilot daemon --debloat --dry-run          say what it would do\n  \
    sudo hugepilot daemon --debloat --cgroup /sys/fs/cgroup/db.slice --high 90% --low 75% --protect postgres\n  \
    hugepilot daemon --print-config > daemon.toml      every key with its meaning, range and default\n  \
    sudo hugepilot daemon --debloat --config daemon.toml | tee -a daemon.ndjson\n\n\
    EXIT STATUS: 0 stopped when asked to, 2 error, 3 not possible here")]
pub(crate) struct DaemonArgs {
    /// Give back what huge pages waste
    #[arg(long, required_unless_present = "print_config")]
    debloat: bool,
    /// Read this file (TOML); other flags have the last word
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Watch this cgroup, which must have a memory limit, and take from its processes [default: the system]
    #[arg(long, value_name = "DIRECTORY")]
    cgroup: Option<PathBuf>,
    /// Begin when so much memory is in use [default: 80%]
    #[arg(long, value_name = "SHARE")]
    high: Option<Share>,
    /// Stop when less than this is in use [default: 65%]
    #[arg(long, value_name = "SHARE")]
    low: Option<Share>,
    /// From this use on exceed the CPU budget [default: 92%]
    #[arg(long, value_name = "SHARE")]
    critical: Option<Share>,
    /// Above --low, begin too when tasks waited for memory so much of the last ten seconds [default: 20%]
    #[arg(long, value_name = "SHARE")]
    psi: Option<Share>,
    /// Time between two looks at memory use [default: 1s]
    #[arg(long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// CPU time, in parts of one core [default: 10%]
    #[arg(long, value_name = "SHARE")]
    cpu: Option<Share>,
    /// Which huge pages go first [default: heat]
    #[arg(long, value_enum)]
    order: Option<OrderArg>,
    /// Leave this process alone too: its number or name; may be repeated
    #[arg(long, value_name = "WHO")]
    protect: Vec<String>,
    /// Decide and log, but split nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the configuration that would be used, every key explained, and exit
    #[arg(long)]
    print_config: bool,
}

impl DaemonArgs {
    /// The file, and the flags over it.
    fn read(&self) -> anyhow::Result<Config> {
        let (text, name) = match &self.config {
            Some(path) => {
                let name = path.display().to_string();
                let text = file::read(path, MAX_CONFIG).and_then(|bytes| {
                    String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into())
                });
                (text.with_context(|| format!("cannot read {name}"))?, name)
            }
            None => (String::new(), String::new()),
        };
        Ok(Config::read(&text, &name, &|config| self.change(config))?)
    }

    fn change(&self, config: &mut Config) {
        fn over<T: Clone>(into: &mut T, flag: Option<&T>) {
            if let Some(value) = flag {
                *into = value.clone();
            }
        }
        over(&mut config.high, self.high.as_ref());
        over(&mut config.low, self.low.as_ref());
        over(&mut config.critical, self.critical.as_ref());
        over(&mut config.psi, self.psi.as_ref());
        over(&mut config.interval, self.interval.as_ref());
        over(&mut config.cpu, self.cpu.as_ref());
        over(&mut config.order, self.order.map(|order| order.with_buckets(10)).as_ref());
        if self.cgroup.is_some() {
            config.cgroup.clone_from(&self.cgroup);
        }
        config.protect.extend(self.protect.iter().cloned());
        config.dry_run |= self.dry_run;
    }
}

pub(crate) fn run(args: &DaemonArgs) -> anyhow::Result<Exit> {
    let config = args.read()?;
    if args.print_config {
        print(&config.print())?;
        return Ok(Exit::Yes);
    }
    descriptors::raise_limit();
    let signals = Signals::listen()?;
    let asked = || match () {
        () if signals.interrupt.is_asked() => ControlRequest::Stop,
        () if signals.is_reload_asked() => ControlRequest::Reload,
        () => ControlRequest::Nothing,
    };
    let reload = || {
        signals.reloaded();
        args.read().map_err(|error| format!("{error:#}"))
    };
    let wait = |time| signals.wait(time);
    let machine = Machine::new(&config, Control { asked: &asked, wait: &wait, reload: &reload })?;
    if !config.dry_run
        && let Some(refused) = refusal()?
    {
        eprintln!("{refused}");
        return Ok(Exit::Unsupported);
    }
    let for_people = io::stderr().is_terminal();
    let is_lost = Cell::new(false);
    daemon(&machine, config, &mut |line| write(line, for_people, &is_lost))?;
    Ok(Exit::Yes)
}

/// A log that cannot be written is told of once, and does not stop the work.
fn write(line: &Line, for_people: bool, is_lost: &Cell<bool>) {
    if let Err(error) = print(&daemon_line(line))
        && !is_lost.replace(true)
    {
        eprintln!("hugepilot: cannot write the log: {error}");
    }
    if for_people {
        eprint!("{}", daemon_text(line));
    }
}
