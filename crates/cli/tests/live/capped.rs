//! The binary with file capabilities, run by a user without any: it passes them to no other program
//! and no other file.

mod minimum;

use std::collections::HashMap;
use std::fs::{self, Permissions, set_permissions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Arg, ValueHint};
use hugepilot_kernel::privilege::Purpose;
use hugepilot_testkit::{Need, Victim, need, requires};
use hugepilot_units::Bytes;
use rustix::process::Signal;

use self::minimum::minimum;
use crate::tool::{Done, HUGEPILOT, LIMIT, Running, copy_for_all, hugepilot};
use crate::unprivileged::can_be_nobody;
use crate::workload::Workload;

/// Capabilities that README grants to the binary, and the one that `debloat` also needs.
const CAPABILITIES: &str = "cap_sys_nice,cap_perfmon,cap_dac_read_search,cap_sys_ptrace+ep";
/// A journal of two rounds.
const JOURNAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../policy/testdata/journal.ndjson");
/// Runs of an experiment.
const RUNS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runs/lab/pcc-processes.ndjson");
/// A recording of a few lines.
const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../recording/src/format/samples/version-2.ndjson.gz");
const SECRET: &str = "7391 4242 secret-of-root";
/// Errors for a file of root: it may not be opened; it exists and would be replaced; the argument
/// is not a file.
const FILE_ERRORS: [&str; 5] = [
    "ermission denied",
    "EACCES",
    "the file exists",
    "is not a generated graph",
    "no known extension",
];
/// Time limit, far longer than a failing run and shorter than a daemon.
const AT_MOST: Duration = Duration::from_secs(20);

/// Binary with capabilities, and files of root that its user may not read.
pub(crate) struct Capped {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Capped {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = copy_for_all(HUGEPILOT, folder.path());
        let given = Command::new("setcap").arg(CAPABILITIES).arg(&program).status().unwrap();
        assert!(given.success(), "setcap");
        let capped = Self { program, folder };
        for name in ["open", "closed"] {
            let directory = capped.path(name);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("secret.sg"), SECRET).unwrap();
            set_permissions(directory.join("secret.sg"), mode(0o600)).unwrap();
        }
        set_permissions(capped.path("open"), mode(0o755)).unwrap();
        set_permissions(capped.path("closed"), mode(0o700)).unwrap();
        fs::write(capped.path("graph.el"), "0 1\n1 2\n").unwrap();
        fs::create_dir(capped.path("theirs")).unwrap();
        set_permissions(capped.path("theirs"), mode(0o777)).unwrap();
        let fifo = capped.path("fifo.sg");
        assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&fifo).status().unwrap().success());
        capped
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it as a user without capabilities, in a session without a cache directory.
    fn start(&self, words: &[String]) -> Running {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&self.program)
            .args(words);
        command.env("HOME", "/nonexistent").env_remove("XDG_CACHE_HOME").current_dir("/");
        Running::start(command)
    }

    pub(crate) fn runs(&self, words: &[String]) -> Done {
        self.start(words).wait(AT_MOST)
    }
}

fn mode(bits: u32) -> Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(bits)
}

pub(crate) fn can_be_capped() -> Need {
    need::all([can_be_nobody(), need::program("setcap"), need::program("mkfifo")])
}

/// Returns the command line with `value` for one argument and the other required arguments.
fn line(
    name: &str,
    command: &clap::Command,
    argument: &Arg,
    value: &str,
    others: &[(&str, String)],
) -> Vec<String> {
    let key =
        |arg: &Arg| arg.get_long().map_or(arg.get_id().to_string(), |long| format!("--{long}"));
    let own = key(argument);
    let mut pairs: HashMap<&str, &str> = others.iter().map(|(k, v)| (*k, v.as_str())).collect();
    pairs.insert(&own, value);
    let mut line: Vec<String> = name.split(' ').map(str::to_owned).collect();
    for (&name, &value) in pairs.iter().filter(|(name, _)| name.starts_with("--")) {
        line.push(name.to_owned());
        if !value.is_empty() {
            line.push(value.to_owned());
        }
    }
    for positional in command.get_positionals() {
        if let Some(&value) = pairs.get(key(positional).as_str()) {
            if positional.is_last_set() {
                line.push("--".to_owned());
            }
            line.push(value.to_owned());
        }
    }
    line
}

#[test]
fn no_option_opens_files_that_its_user_may_not_open() {
    requires!(can_be_capped());
    let (capped, workload) = (Capped::new(), Workload::start("gups --footprint 16MiB"));
    let path = |name: &str| capped.path(name).display().to_string();
    let [open, closed, none, fifo] =
        ["open/secret.sg", "closed/secret.sg", "closed/none.sg", "fifo.sg"].map(path);
    let copied = |from: &str, name: &str| {
        let to = path(name);
        fs::copy(from, &to).unwrap();
        set_permissions(Path::new(&to), mode(0o644)).unwrap();
        to
    };
    let [journal, recording] = [copied(JOURNAL, "journal.ndjson"), copied(RECORDING, "x.rec")];
    let runs = copied(RUNS, "runs.ndjson");
    let pid = workload.pid().to_string();
    let known = [pid, path("graph.el"), path("theirs/x.sg"), journal, recording, runs];
    let mut paths = 0;
    for (name, command) in hugepilot_cli::leaves() {
        for argument in command.get_arguments().filter(|one| one.get_action().takes_values()) {
            let others = minimum(&name, argument.get_id().as_str(), &known);
            let run = |value: &str| {
                let done = capped.runs(&line(&name, &command, argument, value, &others));
                let output = format!("{}{}", done.out(), done.err());
                assert!(
                    !output.contains("7391") && !output.contains("secret-of"),
                    "{argument:?}: {done:?}"
                );
                done
            };
            let done = run(&open);
            if argument.get_value_hint() == ValueHint::Unknown
                || argument.get_value_hint() == ValueHint::Other
            {
                continue;
            }
            paths += 1;
            // A cgroup is a directory, and this is a file, which its user may know.
            let refused = argument.get_id() == "cgroup"
                || FILE_ERRORS.iter().any(|why| done.err().contains(why));
            assert!(
                refused && done.status.code() != Some(0),
                "{name} {}: {done:?}",
                argument.get_id()
            );
            // The user must not learn whether a file exists in a closed directory.
            let [there, not_there] = [&closed, &none].map(|path| {
                let done = run(path);
                (done.status.code(), done.err().replace(path.as_str(), "PATH"))
            });
            assert_eq!(there, not_there, "{name} {}", argument.get_id());
            assert_ne!(run(&fifo).status.code(), Some(0), "{name} {}", argument.get_id());
        }
    }
    assert!(paths >= 20, "only {paths} options take paths?");
    for name in ["open/secret.sg", "closed/secret.sg"] {
        assert_eq!(fs::read_to_string(capped.path(name)).unwrap(), SECRET, "{name}");
    }
}

/// Commands of the trace test, each with whether it may raise capabilities. `SMALL` is a process
/// with few functions: `record` names them, slowly under strace.
const TRACED: [(&str, bool); 20] = [
    ("doctor", true),
    ("status --pid PID", true),
    ("top --once --interval 200ms --pid PID", true),
    ("tune --pid PID --calibration off --observe 300ms --for 1s --max-collapse 60s", true),
    ("debloat --pid PID --observe 300ms --calibration off", true),
    ("daemon --dry-run --interval 100ms --high 2% --low 1%", true),
    ("record --pid SMALL --duration 300ms --force -o DIR/a", true),
    ("graph run bfs uniform:8 --pages property=thp", false),
    ("knobs prefetch show", false),
    ("lab workload gups --footprint 4MiB --seconds 0.01", false),
    ("lab tlb-sweep --pages base --max-footprint 1MiB", false),
    ("run --pages base -- /bin/true", false),
    ("compare --modes thp --rounds 1 -- /bin/true", false),
    ("pool show", false),
    ("completions bash", false),
    ("schema error", false),
    ("explain /dev/null", false),
    ("report /dev/null", false),
    ("sim tlb --pattern random:1MiB --max-accesses 1000", false),
    ("trace -o /dev/null -- /bin/true", false),
];

#[test]
fn capabilities_are_in_effect_for_the_listed_calls_only() {
    requires!(need::all([can_be_capped(), need::program("strace"), need::c_compiler()]));
    let (capped, workload) = (Capped::new(), Workload::start("gups --footprint 64MiB"));
    let theirs = capped.path("theirs").display().to_string();
    for command in hugepilot_cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(
            TRACED.iter().any(|(line, _)| line.split(' ').next() == Some(name)),
            "`{name}` is not traced"
        );
    }
    for (line, privileged) in TRACED {
        let log = tempfile::tempdir().unwrap();
        let small = line.contains("SMALL").then(|| Victim::c("callers.c", &["60"]));
        let pid = small.as_ref().map_or(workload.pid(), Victim::pid).to_string();
        let line = line.replace("SMALL", &pid).replace("PID", &pid).replace("DIR", &theirs);
        // -u makes strace start the binary as that user would, with its capabilities.
        let mut strace = Command::new("strace");
        strace.args(["-ff", "-qq", "-u", "nobody", "-o"]).arg(log.path().join("trace"));
        strace.arg(&capped.program).args(line.split(' ')).stdin(Stdio::null());
        strace.env("HOME", "/nonexistent").current_dir("/");
        let mut running = Running::start(strace);
        if line.starts_with("daemon") {
            // Further reads of processes are like the first, and the daemon may rest before.
            let begun = Instant::now();
            running.until("a round", || {
                let text: String = traces(log.path()).into_values().collect();
                text.matches("smaps").count() > 2 || begun.elapsed() > Duration::from_secs(3)
            });
            let traced = traces(log.path());
            let own = traced.keys().min().copied().expect("a traced process");
            let own = rustix::process::Pid::from_raw(own).expect("a process");
            rustix::process::kill_process(own, Signal::TERM).expect("it runs");
        }
        let done = running.wait(LIMIT);
        assert!(matches!(done.status.code(), Some(0..=3)), "{line}: {done:?}");
        let raises: usize = traces(log.path()).values().map(|trace| check(&line, trace)).sum();
        assert_eq!(raises > 0, privileged, "{line}: {raises} raises, {done:?}");
    }
}

/// Returns the trace of each thread, by its ID.
fn traces(folder: &Path) -> HashMap<i32, String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let of = |path: PathBuf| {
        let id = path.extension()?.to_str()?.parse().ok()?;
        Some((id, String::from_utf8_lossy(&fs::read(path).ok()?).into_owned()))
    };
    entries.filter_map(|entry| of(entry.path())).collect()
}

/// Checks each stretch with a capability in effect, and returns the number of stretches.
fn check(line: &str, trace: &str) -> usize {
    // The signal that ends the daemon may come at any call. Its handler writes a byte to a pipe.
    let mut handled = false;
    let calls = trace.lines().filter(|call| {
        handled |= call.starts_with("--- SIGTERM");
        let is_own = !handled && !call.starts_with("---") && !call.starts_with("+++");
        handled &= !call.starts_with("rt_sigreturn(");
        is_own
    });
    let (mut raises, mut raised): (usize, Option<(String, Vec<&str>)>) = (0, None);
    for call in calls {
        if !call.starts_with("capset(") {
            if let Some((_, during)) = &mut raised {
                during.push(call);
            }
            continue;
        }
        let effective =
            call.split("effective=").nth(1).and_then(|rest| rest.split(", permitted").next());
        let effective = effective.unwrap_or_else(|| panic!("{line}: {call}"));
        if effective != "0" {
            assert!(raised.is_none(), "{line}: raised twice: {call}");
            raised = Some((effective.to_lowercase(), Vec::new()));
        } else if let Some((set, during)) = raised.take() {
            raises += 1;
            check_stretch(line, &set, &during);
        }
    }
    assert!(raised.is_none(), "{line}: ends with {raised:?}");
    raises
}

/// Checks a stretch: it must be one call, for which this set of capabilities is listed.
fn check_stretch(line: &str, set: &str, during: &[&str]) {
    let mut held: Vec<_> = set.split('|').map(|one| one.trim_start_matches("1<<")).collect();
    held.sort_unstable();
    let allowed = Purpose::ALL.into_iter().any(|purpose| {
        let mut names: Vec<_> = purpose.capabilities().iter().map(|one| one.name()).collect();
        names.sort_unstable();
        let call = during.first().and_then(|call| call.split('(').next()).unwrap_or_default();
        let named = |call: &str| {
            let path = call.split('"').nth(1).unwrap_or_default();
            match purpose {
                Purpose::OpenPageMap => path == "pagemap",
                Purpose::OpenMappings => ["maps", "smaps", "smaps_rollup"].contains(&path),
                Purpose::EnterRoot => path == "root",
                Purpose::OpenProcess => !path.contains('/') || path.starts_with("/proc/"),
                _ => true,
            }
        };
        names == held && purpose.calls().contains(&call) && named(during[0])
    });
    assert!(during.len() == 1 && allowed, "{line}: with {held:?} in effect: {during:?}");
}

#[test]
fn a_command_without_capabilities_sees_its_own_pages() {
    requires!(can_be_capped());
    let words = "graph run pr uniform:14 --pages all=thp --json".split(' ').map(str::to_owned);
    let done = Capped::new().runs(&words.collect::<Vec<_>>());
    // It reads its pages from its own pagemap, which the kernel hides from a process with
    // capabilities.
    assert!(!done.exits(0).err().contains("pagemap"), "{done:?}");
    let report: serde_json::Value = done.json();
    assert!(report["arrays"].as_array().is_some_and(|arrays| !arrays.is_empty()), "{report}");
}

#[test]
fn capabilities_make_their_commands_work() {
    requires!(can_be_capped());
    let (capped, workload) = (Capped::new(), Workload::start("gups --footprint 64MiB"));
    let words = |line: &str| -> Vec<String> {
        line.replace("PID", &workload.pid().to_string()).split(' ').map(str::to_owned).collect()
    };
    capped.runs(&words("doctor")).exits(0);
    capped.runs(&words("status --pid PID --json")).exits(0);
    // These commands use every capability, on a process of root.
    let tuned = capped.runs(&words(
        "tune --pid PID --calibration off --json --budget 100% --observe 1s --for 3s \
         --max-collapse 60s",
    ));
    let report = tuned.report();
    assert!(report.acts.verified_regions > 0, "{tuned:?}");
    capped.runs(&words("debloat --pid PID --dry-run --observe 1ms --calibration off")).sane();
    // `lab` renounces its capabilities, so granting them does not help.
    let lab = capped.runs(&words("lab collapse --pid PID"));
    assert!(!lab.exits(3).says(&["help: run it as root"]).err().contains("setcap"), "{lab:?}");
    // A set-uid binary does not run.
    let all = capped.path("hugepilot");
    fs::set_permissions(&all, mode(0o4755)).unwrap();
    capped.runs(&words("status --pid PID")).exits(2).says(&["set-uid"]);
}

#[test]
fn a_filter_that_keeps_capabilities_raised_is_an_error() {
    requires!(need::all([can_be_capped(), need::program("strace")]));
    let capped = Capped::new();
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-u", "nobody", "-o", "/dev/null", "-e", "inject=capset:error=EPERM"]);
    strace.arg(&capped.program).args(["pool", "show"]).current_dir("/");
    let done = Running::start(strace).wait(LIMIT);
    done.exits(2).says(&["capset", "seccomp", "help: allow capset"]);
    assert!(!done.err().contains("chmod"), "{done:?}");
}

#[test]
fn root_writes_through_no_link_of_another_user() {
    requires!(can_be_capped());
    let capped = Capped::new();
    let link = capped.path("theirs/report.json");
    std::os::unix::fs::symlink(capped.path("closed/secret.sg"), &link).unwrap();
    let words = format!("run --pages base --report {} -- /bin/true", link.display());
    hugepilot(words.split(' ')).exits(2).says(&["not a regular file"]);
    assert_eq!(fs::read_to_string(capped.path("closed/secret.sg")).unwrap(), SECRET);
}

#[test]
fn a_calibration_is_not_kept_by_dry_runs_nor_in_the_cache_of_another_user() {
    requires!(need::all([can_be_capped(), need::memory(Bytes::gib(4))]));
    let (capped, workload) = (Capped::new(), Workload::start("gups --footprint 16MiB"));
    let own = capped.path("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(capped.path("theirs"), Some(65534), None).unwrap();
    let tune = |cache: &Path, more: &str| {
        let line =
            format!("tune --pid {} --observe 1ms --for 1ms --calibration {more}", workload.pid());
        // This limit is too low for the larger sizes, which the calibration then omits.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 400000; exec \"$0\" \"$@\"", HUGEPILOT]);
        command.args(line.split_whitespace()).env("XDG_CACHE_HOME", cache);
        Running::start(command).wait(LIMIT)
    };
    tune(&own, "auto --dry-run").sane();
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
    tune(&capped.path("theirs"), "force --dry-run").sane().says(&["not stored", "another user"]);
    assert_eq!(fs::read_dir(capped.path("theirs")).unwrap().count(), 0);
}
