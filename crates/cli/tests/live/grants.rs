//! Help lines about permissions, limits and cgroups: without them the line is there, with them it
//! is gone.

use std::path::Path;

use hugepilot_testkit::{Need, Victim, compiled, need, requires};
use hugepilot_units::Bytes;

use crate::cgroup::Cgroup;
use crate::options::{Row, Shell, tries};
use crate::reasons::Settings;
use crate::unprivileged::{Nobody, can_be_nobody};
use crate::workload::SOON;

/// `$NOBODY`: the command as a user without capabilities; `$READER`: with those to find memory;
/// `$PID`: a process of root with huge pages; `$OTHER`: one with fewer.
const USERS: &[Row] = &[
    [
        "sudo chmod ug-s NAME",
        "cp \"$(command -v hugepilot)\" own && chown 65534 own && chmod u+s own && ./own pool show",
        "chmod ug-s own && ./own pool show",
        "2MiB",
    ],
    [
        "run it as root",
        "$NOBODY run --pages thp -- sleep 0.2",
        "hugepilot run --pages thp -- sleep 0.2",
        "page faults",
    ],
    [
        "run it as root, or resize the pool as root: hugepilot pool set --help",
        "$NOBODY run --pages hugetlb --pool 4MiB -- true",
        "hugepilot run --pages hugetlb --pool 4MiB -- true",
        "page faults",
    ],
    [
        "sudo, outside of this session: no_new_privs is set, so file capabilities have no effect \
         (systemd: AmbientCapabilities=NAME)",
        "setpriv --no-new-privs $NOBODY doctor",
        "hugepilot doctor",
        "Live processes can be tuned here.",
    ],
    [
        "run as root or as the user of the process, or grant CAP_SYS_PTRACE",
        "$READER status -p $PID",
        "hugepilot status -p $PID",
        "zero-filled",
    ],
];

const LIMITS: &[Row] = &[
    [
        "raise the limit: ulimit -n N (as root, or systemd's LimitNOFILE=)",
        "ulimit -n 10; hugepilot tune --dry-run --calibration off --observe 300ms -p $PID",
        "ulimit -n 65536; hugepilot tune --dry-run --calibration off --observe 300ms -p $PID",
        "samples: ",
    ],
    [
        "start hugepilot from a shell without this setting",
        "$BLOCKED launcher \"$(command -v hugepilot)\" doctor",
        "hugepilot doctor",
        "MADV_COLLAPSE promoted 2MiB",
    ],
];

/// `$LIMIT`: the file with the limit of the cgroup `$GROUP`.
const FULL: &[Row] = &[[
    "raise memory.max of the cgroup, or run hugepilot outside of it",
    "for mib in 6 7 8 9 10 12 14 16; do
         echo ${mib}M > $LIMIT
         sh -c 'echo $$ > $GROUP/cgroup.procs; exec hugepilot doctor'
     done; true",
    "echo 1G > $LIMIT
     sh -c 'echo $$ > $GROUP/cgroup.procs; exec hugepilot doctor' && hugepilot doctor",
    "MADV_COLLAPSE promoted 2MiB",
]];

/// The shrinker of a cgroup, with a process in it.
const CGROUP: &[Row] = &[
    [
        "name a cgroup below it",
        "hugepilot debloat --backend shrinker --cgroup $(dirname $GROUP) --dry-run",
        "hugepilot debloat --backend shrinker --cgroup $GROUP --dry-run",
        "Memory use of the cgroup",
    ],
    [
        "name a cgroup of the memory controller, such as /sys/fs/cgroup/db.slice (version N) or \
         /sys/fs/cgroup/memory/db (version N)",
        "hugepilot debloat --backend shrinker --cgroup . --dry-run",
        "hugepilot debloat --backend shrinker --cgroup $GROUP --dry-run",
        "Memory use of the cgroup",
    ],
    [
        "use --min-bloat N% or less",
        "hugepilot debloat --backend shrinker --cgroup $GROUP --dry-run --min-bloat 100%",
        "hugepilot debloat --backend shrinker --cgroup $GROUP --dry-run --min-bloat 99%",
        "Memory use of the cgroup",
    ],
    [
        "predict them where memory may be read: --backend split --dry-run",
        "hugepilot debloat --backend shrinker --cgroup $GROUP --dry-run",
        "hugepilot debloat --backend split --cgroup $GROUP --dry-run --calibration off",
        "would free",
    ],
    [
        "find all of them where memory may be read: --backend split",
        "hugepilot debloat --backend shrinker --cgroup $GROUP --min-bloat 99%",
        "hugepilot debloat --backend split --cgroup $GROUP --calibration off --order exact",
        " splits in ",
    ],
];

fn possible() -> Need {
    need::all([can_be_nobody(), need::c_compiler(), need::cap_perfmon()])
}

#[test]
fn a_granted_permission_ends_its_reason() {
    requires!(possible());
    let (nobody, mut victim) = (Nobody::new(), Victim::c("bloated.c", &["16", "5"]));
    victim.ready(SOON);
    let shell = Shell::empty().with("PID", victim.pid()).with("NOBODY", nobody.words(""));
    let shell = shell.with("READER", nobody.words("+dac_read_search,+perfmon"));
    tries("grants::a_granted_permission_ends_its_reason", &shell, &[USERS]);
    assert!(victim.finish(SOON).success());
}

#[test]
fn a_raised_limit_ends_its_reason() {
    requires!(possible());
    let mut victim = Victim::c("bloated.c", &["16", "5", "busy"]);
    victim.ready(SOON);
    let blocked = compiled(Path::new("blocked.c"));
    let shell = Shell::empty().with("PID", victim.pid()).with("BLOCKED", blocked.display());
    tries("grants::a_raised_limit_ends_its_reason", &shell, &[LIMITS]);
    assert!(victim.finish(SOON).success());
}

/// The kernel kills most of these commands, for lack of memory.
#[test]
fn a_cgroup_with_more_memory_has_huge_pages() {
    requires!(need::all([possible(), need::cgroup_memory()]));
    let group = Cgroup::new(Bytes::mib(64));
    let files = ["memory.limit_in_bytes", "memory.max"].map(|name| group.path().join(name));
    let limit = files.iter().find(|file| file.exists()).expect("a limit");
    let shell = Shell::empty().with("GROUP", group.path().display());
    let shell = shell.with("LIMIT", limit.display());
    tries("grants::a_cgroup_with_more_memory_has_huge_pages", &shell, &[FULL]);
}

#[test]
fn each_option_for_a_cgroup_ends_its_reason() {
    let needs = [need::live(), need::root(), need::c_compiler(), need::cgroup_memory()];
    requires!(need::all(needs));
    let _settings = Settings::now();
    let group = Cgroup::new(Bytes::gib(1));
    let mut command = group.command(&compiled(Path::new("bloated.c")));
    command.args(["64", "5"]);
    let mut victim = Victim::spawn(command);
    victim.ready(SOON);
    let shell = Shell::empty().with("GROUP", group.path().display());
    tries("grants::each_option_for_a_cgroup_ends_its_reason", &shell, &[CGROUP]);
    assert!(victim.finish(SOON).success());
}
