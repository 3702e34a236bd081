//! Options of help lines: a command prints the line, and with the option it has no such reason.
//! No privileges required, except for cgroups and for what a test says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use hugepilot_testkit::{Need, Victim, need, requires};
use hugepilot_units::Bytes;
use regex::Regex;

use crate::cgroup::Cgroup;
use crate::look::tunable;
use crate::tool::{Done, HUGEPILOT, LIMIT, Running};
use crate::workload::SOON;

/// A help line as `remedies.txt` has it, a command that prints it, the command with its remedy, and
/// what that one prints.
pub(crate) type Row = [&'static str; 4];

/// Sources of the rows below: files, and two libraries without contents.
const FILES: &[(&str, &str)] = &[
    ("gaps.el", "0 1\n1 2\n2 9\n"),
    ("short.el", "# Nodes: 4 Edges: 4\n0 1\n1 2\n2 3\n"),
    ("whole.el", "# Nodes: 4 Edges: 4\n0 1\n1 2\n2 3\n3 0\n"),
    ("weights.wel", "0 1 5\n1 2 6\n2 0 7\n"),
    ("ways.mtx", "%%MatrixMarket matrix coordinate pattern general\n5 5 3\n1 2\n2 3\n3 4\n"),
    ("old.sg.map", "0 0\n"),
    ("cut.perf", "  7   7ffe00001000\n  7  7ffe0000"),
    ("whole.perf", "  7   7ffe00001000\n  7  7ffe00002000\n"),
    // It ends without writing what its output holds back.
    (
        "late.c",
        "#include <stdio.h>\n#include <unistd.h>\n\
                int main(void) { printf(\"go\\n\"); usleep(300000); _exit(0); }\n",
    ),
];

const GRAPH: &[Row] = &[
    [
        "relabel vertices to consecutive IDs: --compact",
        "hugepilot graph info gaps.el",
        "hugepilot graph info gaps.el --compact",
        "gaps.el: 4 vertices",
    ],
    [
        "keep the IDs of the input: --to hpg",
        "hugepilot graph convert gaps.el gaps.mtx",
        "hugepilot graph convert gaps.el gaps.hpg --to hpg",
        ", hpg",
    ],
    [
        "state it when reading the file: --directed",
        "hugepilot graph convert ways.mtx ways.el",
        "hugepilot graph info ways.el --directed",
        "3 directed edges",
    ],
    [
        "store them: --to NAME",
        "hugepilot graph convert weights.wel plain.el",
        "hugepilot graph convert weights.wel plain.wel --to wel && hugepilot graph info plain.wel",
        "plain.wel: 3 vertices, 3 undirected edges, weighted",
    ],
    [
        "store them: --to hpg",
        "hugepilot graph convert ways.mtx ways.el --force",
        "hugepilot graph convert ways.mtx ways.hpg --to hpg && hugepilot graph info ways.hpg",
        "ways.hpg: 5 vertices",
    ],
    [
        "restore them when reading the file: --vertices N",
        "hugepilot graph convert gaps.el some.el --vertices 12",
        "hugepilot graph info some.el --vertices 12",
        "some.el: 12 vertices",
    ],
    [
        "check that the file is complete: compare its size with its origin",
        "hugepilot graph info short.el",
        "hugepilot graph info whole.el",
        "4 undirected edges",
    ],
    [
        "remove it: rm NAME",
        "hugepilot graph convert ways.mtx old.sg",
        "rm old.sg.map && hugepilot graph convert ways.mtx old.sg --force",
        "Written: old.sg",
    ],
];

const TRACE: &[Row] = &[
    [
        "skip fewer accesses: --skip N or less",
        "hugepilot trace -o all.trace --graph grid:9x9 --kernel bfs --skip 100000000",
        "most=$(hugepilot trace -o some.trace --graph grid:9x9 --kernel bfs --skip 100000000 |
             sed -n 's/.*--skip \\([0-9]*\\) or less/\\1/p')
         hugepilot trace -o few.trace --graph grid:9x9 --kernel bfs --skip $most",
        "1 access by 1 thread",
    ],
    [
        "check that the command that wrote it ended",
        "hugepilot trace --import perf cut.perf -o cut.trace",
        "hugepilot trace --import perf whole.perf -o whole.trace",
        "2 accesses by 1 thread",
    ],
];

const RECORD: &[Row] = &[
    [
        "compare the pattern with the output of the program",
        "hugepilot record -o a.rec --force --from-regex gi -- echo go",
        "hugepilot record -o a.rec --force --from-regex go -- echo go",
        "from the first line that matches `go`",
    ],
    [
        "if the program buffers its output: stdbuf -oL CMD",
        "hugepilot record -o a.rec --force --from-regex go -- ./late | cat",
        "hugepilot record -o a.rec --force --from-regex go -- stdbuf -oL ./late | cat",
        "from the first line that matches `go`",
    ],
    [
        "record without --only-phase, and see the names of the phases in the report",
        "hugepilot record -o a.rec --force --phase-regex '(g.)' --only-phase x -- echo go",
        "hugepilot record -o a.rec --force --phase-regex '(g.)' -- stdbuf -oL ./late &&
         hugepilot report a.rec | sed -n 's/^go  .*/phase &/p'",
        "phase go",
    ],
];

const RUN: &[Row] = &[
    [
        "omit --pool",
        "hugepilot run --pages thp --pool 4MiB -- true",
        "hugepilot run --pages thp -- true",
        "page faults",
    ],
    [
        "name the shared library itself, such as libmimalloc.so.N",
        "hugepilot run --pages mimalloc --library . -- true",
        "hugepilot run --pages mimalloc --library ./empty.so -- true",
        "page faults",
    ],
    [
        "install it: cargo xtask install PREFIX; or name it: --library FILE",
        "cp \"$(command -v hugepilot)\" alone && ./alone run --pages hugepilot -- true",
        "./alone run --pages hugepilot --library ./empty.so -- true",
        "page faults",
    ],
    [
        "unset NAME, or NAME=NAME",
        "HUGEPILOT_PAGES=x hugepilot run --pages hugepilot --library ./empty.so -- true",
        "set -e; export HUGEPILOT_PAGES=x
         help=$(hugepilot run --pages hugepilot --library ./empty.so -- true 2>&1 |
             sed -n 's/^help: unset //p')
         (unset \"${help%%,*}\"; hugepilot run --pages hugepilot --library ./empty.so -- true)
         (export \"${help#*, or }\"; hugepilot run --pages hugepilot --library ./empty.so -- true)",
        "page faults",
    ],
];

/// `$MORE`: more pages than the pool has, which the floor refuses.
const POOL: &[Row] = &[
    [
        "at most --count N",
        "hugepilot pool set --size 2MiB --count $MORE --floor 100%",
        "most=$(hugepilot pool set --size 2MiB --count $MORE --floor 100% |
             sed -n 's/^help: at most --count //p')
         hugepilot pool set --size 2MiB --count $most --floor 100% --dry-run",
        "would request",
    ],
    [
        "a smaller --floor, or --force",
        "hugepilot pool set --size 2MiB --count 8 --floor 100% --dry-run",
        "hugepilot pool set --size 2MiB --count 8 --floor 1% --dry-run &&
         hugepilot pool set --size 2MiB --count 8 --force --dry-run",
        "would request 8",
    ],
    [
        "one of --node N, or omit --node",
        "hugepilot pool set --size 2MiB --count 8 --node 999 --dry-run",
        "hugepilot pool set --size 2MiB --count 8 --dry-run &&
         hugepilot pool set --size 2MiB --count 8 --node 0 --dry-run",
        "on node 0; would request 8",
    ],
    [
        "one of --size NB",
        "hugepilot pool set --size 3MiB --count 8 --dry-run",
        "hugepilot pool set --size 2MiB --count 8 --dry-run",
        "would request 8",
    ],
];

/// `$DAEMON`: one pass of the daemon, with a rule, that changes nothing; `$PID`: an idle process of
/// the rule.
const DAEMON: &[Row] = &[
    [
        "raise the low watermark (--low)",
        "$DAEMON --low 1% --config small.toml",
        "$DAEMON --low 98% --config small.toml",
        "none_in_turn",
    ],
    [
        "set a smaller min_huge, or check cgroup, user and command of the rules",
        "$DAEMON --low 98% --config large.toml",
        "$DAEMON --low 98% --config small.toml",
        "none_in_turn",
    ],
    [
        "check MemTotal and MemAvailable: cat /proc/meminfo",
        "unshare -m sh -c 'mount --bind /dev/null /proc/meminfo && hugepilot status -p $PID'",
        "unshare -m sh -c 'mount --bind /dev/null /proc/meminfo && umount /proc/meminfo &&
             cat /proc/meminfo && hugepilot status -p $PID'",
        "MemAvailable",
    ],
];

const AMOUNT: &[Row] = &[[
    "drop --amount",
    "hugepilot debloat --backend shrinker --cgroup $GROUP --dry-run --amount 4MiB",
    "hugepilot debloat --backend shrinker --cgroup $GROUP --dry-run",
    "Memory use of the cgroup",
]];

const STARTS: &str = "#include <sys/wait.h>\n#include <unistd.h>\n\
    int main(int argc, char **argv)\n\
    {\n\
        if (argc > 1)\n\
            execv(argv[1], argv + 1);\n\
        if (!fork())\n\
            execl(\"/bin/true\", \"true\", NULL);\n\
        wait(NULL);\n\
        return 0;\n\
    }\n";

const TRACED: &[Row] = &[
    [
        "trace the child itself if it does the work",
        "hugepilot trace -o a.trace -- ./starts",
        "hugepilot trace -o b.trace -- true",
        "true under QEMU: exit status 0",
    ],
    [
        "trace the program itself, not the one that starts it",
        "hugepilot trace -o c.trace -- ./starts /bin/true",
        "hugepilot trace -o d.trace -- /bin/true",
        "true under QEMU: exit status 0",
    ],
];

/// Lines of a section of `remedies.txt`.
pub(crate) fn section(test: &str) -> BTreeSet<&'static str> {
    let table = include_str!("../remedies.txt").split(&format!("## live::{test}\n")).nth(1);
    table.expect("a section").lines().take_while(|line| !line.is_empty()).collect()
}

/// Pattern of a line of `remedies.txt`: words for `NAME`, and numbers and sizes for `N`.
fn words(line: &str) -> String {
    let pattern = regex::escape(line).replace("NAME", r"\S+").replace("NB", r"\S+(?:, \S+)*");
    pattern.replace('N', r"(?:[\d.]+(?:, \d+)*|N)")
}

/// Whether a help line is what a line of `remedies.txt` stands for.
pub(crate) fn is_help(line: &str, help: &str) -> bool {
    Regex::new(&format!("^{}$", words(line))).expect("a pattern").is_match(help)
}

/// Pattern of the help of a line of `remedies.txt` in the output of a command.
fn pattern(line: &str) -> Regex {
    // `run` shares stderr with its program, `doctor` lists its help below a heading, and the daemon
    // writes JSON.
    let line = words(line);
    let pattern = format!("(?m)^(?:hugepilot: )?(?:help: | +){line}$|\"{line}\"");
    Regex::new(&pattern).expect("a pattern")
}

/// A folder in which a shell runs `hugepilot`, with variables.
pub(crate) struct Shell {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Shell {
    pub(crate) fn new<T: AsRef<[u8]>>(files: &[(&str, T)]) -> Self {
        // On a disk: `/tmp` may be a tmpfs.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        for (name, contents) in files {
            fs::write(folder.path().join(name), contents).expect("a writable directory");
        }
        Self { folder, variables: Vec::new() }
    }

    pub(crate) fn empty() -> Self {
        Self::new::<&str>(&[])
    }

    /// Sets a variable of its commands.
    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> Done {
        let own = Path::new(HUGEPILOT).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        // Ends what the shell started, too.
        let mut command = Command::new("timeout");
        command.args(["50", "sh", "-c", line]).current_dir(self.folder.path());
        command.env("PATH", format!("{own}:{path}")).envs(self.variables.iter().cloned());
        Running::start(command).wait(LIMIT)
    }

    /// Output of a command, which runs once for all rows.
    #[track_caller]
    fn text<'a>(&self, line: &str, texts: &'a mut BTreeMap<String, String>) -> &'a str {
        let text = || {
            let done = self.run(line);
            done.sane().out() + &done.err()
        };
        texts.entry(line.to_owned()).or_insert_with(text)
    }
}

/// Tries the rows of all `tables`, which are the lines of the section of `test`.
#[track_caller]
pub(crate) fn tries(test: &str, shell: &Shell, tables: &[&[Row]]) {
    let rows = || tables.iter().copied().flatten();
    assert_eq!(rows().map(|[help, ..]| *help).collect::<BTreeSet<_>>(), section(test));
    let mut texts = BTreeMap::new();
    for [help, reason, remedy, shows] in rows() {
        let help = pattern(help);
        let before = shell.text(reason, &mut texts);
        assert!(help.is_match(before), "{reason}: no {help} in {before}");
        let after = shell.text(remedy, &mut texts);
        let is_gone = !help.is_match(after) && after.contains(shows);
        assert!(is_gone, "{remedy}: no {shows:?}, or {help}, in {after}");
    }
}

const POOL_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Requires a hugetlb pool of 2 MiB pages.
fn pools() -> Need {
    let exists = Path::new(POOL_PAGES).exists();
    if exists { Need::Ok } else { Need::Err("no hugetlb pool of 2 MiB pages".to_owned()) }
}

#[test]
fn each_option_of_a_help_line_ends_its_reason() {
    requires!(need::all([need::live(), need::c_compiler(), need::program("stdbuf"), pools()]));
    let pages = fs::read_to_string(POOL_PAGES).expect("a pool").trim().parse::<u64>();
    let shell = Shell::new(FILES).with("MORE", pages.expect("a number") + 8);
    shell.run("cc -o late late.c && cc -shared -o empty.so -x c /dev/null").exits(0);
    let tables = [GRAPH, TRACE, RECORD, RUN, POOL];
    tries("options::each_option_of_a_help_line_ends_its_reason", &shell, &tables);
}

/// Reclaim in cgroups of version 1 takes no amount.
#[test]
fn reclaim_without_an_amount_is_accepted() {
    requires!(need::all([need::live(), need::root(), need::cgroup_memory()]));
    let group = Cgroup::new(Bytes::gib(1));
    let is_first = group.path().join("memory.force_empty").exists();
    requires!(is_first.then_some(()).ok_or("cgroups of version 2"));
    let command = group.command(Path::new("cat"));
    let victim = Victim::spawn(command);
    let shell = Shell::empty().with("GROUP", group.path().display());
    tries("options::reclaim_without_an_amount_is_accepted", &shell, &[AMOUNT]);
    drop(victim);
}

/// The program forks, or executes its arguments.
#[test]
fn the_program_that_works_is_traced() {
    requires!(need::all([need::c_compiler(), need::program("qemu-x86_64")]));
    let shell = Shell::new(&[("starts.c", STARTS)]);
    shell.run("cc -o starts starts.c").exits(0);
    tries("options::the_program_that_works_is_traced", &shell, &[TRACED]);
}

const MIMALLOC: &[Row] = &[[
    "sudo apt install libmimallocN.N (libmimallocN on newer systems), or name it with --library",
    "hugepilot run --pages mimalloc -- true",
    "hugepilot run --pages mimalloc --library ./empty.so -- true",
    "page faults",
]];

#[test]
fn a_named_library_is_not_missing() {
    requires!(need::c_compiler());
    let shell = Shell::empty();
    shell.run("cc -shared -o empty.so -x c /dev/null").exits(0);
    let is_missing = shell.run("hugepilot run --pages mimalloc -- true").status.code() == Some(3);
    requires!(is_missing.then_some(()).ok_or("mimalloc is installed"));
    tries("options::a_named_library_is_not_missing", &shell, &[MIMALLOC]);
}

const DAEMON_LINE: &str = "hugepilot daemon --once --dry-run --calibration off --high 99% \
                           --critical 99.5% --promote";

#[test]
fn the_daemon_and_status_with_what_they_lack_have_no_help() {
    requires!(need::all([tunable(), need::c_compiler(), need::program("unshare")]));
    let mut victim = Victim::c("bloated.c", &["16", "5"]);
    victim.ready(SOON);
    let sizes = ["small.toml", "large.toml"].into_iter().zip(["4MiB", "999GiB"]);
    let files = sizes.map(|(name, size)| (name, format!("min_huge = \"{size}\"\n")));
    let files: Vec<(&str, String)> = files.collect();
    let name = fs::read_to_string(format!("/proc/{}/comm", victim.pid())).expect("it runs");
    let daemon = format!("{DAEMON_LINE} {}", name.trim());
    let shell = Shell::new(&files).with("PID", victim.pid()).with("DAEMON", daemon);
    tries("options::the_daemon_and_status_with_what_they_lack_have_no_help", &shell, &[DAEMON]);
    assert!(victim.finish(SOON).success());
}
