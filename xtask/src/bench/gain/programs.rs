//! Measured programs: how each is built and started, and what it requires.
//!
//! Own sources lie in `programs/`. Each builds a structure of 0.6 to 1.5 GiB, prints `ready`, and
//! then performs random operations until it is ended, with a line every 20 ms. None asks for huge
//! pages.

use hugepilot_units::Bytes;

use super::super::progress::Lines;

/// Program or file, and the Debian package that contains it.
type Need = (&'static str, &'static str);

/// Program to measure. In its words, `{source}` is its source, `{out}` the compiled program,
/// `{folder}` the folder of compiled programs, `{socket}` the socket of its server, `{graph}` a
/// graph file, `{gapbs}` the GAP benchmark suite and `{hugepilot}` the program under test.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) needs: &'static [Need],
    /// File in `programs/`.
    pub(super) source: Option<&'static str>,
    /// Command that compiles the source.
    pub(super) compile: &'static [&'static str],
    /// Server, which is then the measured process.
    pub(super) server: &'static [&'static str],
    /// Program, or load generator of the server.
    pub(super) command: &'static [&'static str],
    /// Graph to generate first.
    pub(super) graph: Option<&'static str>,
    pub(super) lines: Lines,
    /// Seconds from the start to the state at least.
    pub(super) earliest_seconds: f64,
    /// Memory that a process and its huge pages need.
    pub(super) needed: Bytes,
}

/// Program without needs, for the fields that others share.
pub(super) const PLAIN: Program = Program {
    name: "",
    needs: &[],
    source: None,
    compile: &[],
    server: &[],
    command: &[],
    graph: None,
    lines: Lines::Ops,
    earliest_seconds: 0.0,
    needed: Bytes::gib(2),
};

const RUST: Need = ("rustc", "rustc");
const RUSTC: &[&str] = &["rustc", "-O", "--edition", "2021", "-o", "{out}", "{source}"];
const JAVAC: &[&str] = &["javac", "-d", "{folder}", "{source}"];
const JDK: &[Need] = &[("javac", "default-jdk-headless")];

/// Java collector, with a heap that never grows, and the share of updates. Updates keep the
/// concurrent threads of G1 busy, so that its rate varies by half whatever its pages.
macro_rules! java {
    ($collector:literal, $one_update_in:literal) => {
        &[
            "java",
            $collector,
            "-Xms3g",
            "-Xmx3g",
            // Leaves no file behind when it is killed.
            "-XX:-UsePerfData",
            "-cp",
            "{folder}",
            "RandomMap",
            "12000000",
            $one_update_in,
        ]
    };
}

/// Kernel of the GAP benchmark suite on a graph, with one thread, since a window gives a program
/// one CPU. `stdbuf` makes each line arrive when it is printed.
macro_rules! gap {
    ($name:literal, $graph:literal, $needed:literal, $lines:expr, $($word:literal),+) => {
        Program {
            name: $name,
            needs: &[("stdbuf", "coreutils")],
            command: &["env", "OMP_NUM_THREADS=1", "stdbuf", "-oL", $($word),+],
            graph: Some($graph),
            lines: $lines,
            needed: Bytes::gib($needed),
            ..PLAIN
        }
    };
}

macro_rules! pr {
    ($name:literal, $graph:literal, $needed:literal) => {
        gap!(
            $name,
            $graph,
            $needed,
            Lines::Steps,
            "{gapbs}/pr",
            "-f",
            "{graph}",
            "-i",
            "1000000000",
            "-t",
            "0",
            "-l",
            "-n",
            "1"
        )
    };
}

macro_rules! trials {
    ($name:literal, $kernel:literal, $graph:literal, $needed:literal) => {
        trials!($name, $kernel, $graph, "0", $needed)
    };
    ($name:literal, $kernel:literal, $graph:literal, $source:literal, $needed:literal) => {
        gap!(
            $name,
            $graph,
            $needed,
            Lines::Starting("Trial Time:"),
            $kernel,
            "-f",
            "{graph}",
            // Trials from one vertex are alike.
            "-r",
            $source,
            "-n",
            "1000000000"
        )
    };
}

/// Betweenness of many sources in one trial, which keeps most arrays from source to source.
macro_rules! sources {
    ($name:literal, $graph:literal, $needed:literal) => {
        gap!(
            $name,
            $graph,
            $needed,
            Lines::Starting("Source:"),
            "{gapbs}/bc",
            "-f",
            "{graph}",
            "-r",
            "0",
            "-i",
            "1000000000",
            "-l",
            "-n",
            "1"
        )
    };
}

/// Workload of `hugepilot lab`, until it is ended, with a line every 20 ms.
macro_rules! lab {
    ($name:literal, $needed:literal, $($word:literal),+) => {
        Program {
            name: $name,
            command: &[
                "{hugepilot}",
                "lab",
                "workload",
                $($word),+,
                "--seconds",
                "0",
                "--interval",
                "20ms",
            ],
            lines: Lines::Lab,
            needed: Bytes::gib($needed),
            ..PLAIN
        }
    };
}

/// All programs. Graphs of scale 22 to 24 have 16 edges per vertex, those of scale 25 have 8. Those
/// of scale 26 have 4, so that they fit beside their huge pages. So have those of `bc-24` and
/// `bc-25`, and that of `bc-26` has 2, since a slice waits for a search.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "go-map",
        needs: &[("go", "golang-go")],
        source: Some("map.go"),
        compile: &["go", "build", "-o", "{out}", "{source}"],
        command: &["{out}", "20000000"],
        ..PLAIN
    },
    Program {
        name: "python-dict",
        needs: &[("python3", "python3")],
        source: Some("dict.py"),
        command: &["python3", "{source}", "12000000"],
        ..PLAIN
    },
    Program {
        name: "rust-btreemap",
        needs: &[RUST],
        source: Some("maps.rs"),
        compile: RUSTC,
        command: &["{out}", "btree", "64000000"],
        ..PLAIN
    },
    Program {
        name: "rust-hashmap",
        needs: &[RUST],
        source: Some("maps.rs"),
        compile: RUSTC,
        command: &["{out}", "hash", "40000000"],
        ..PLAIN
    },
    Program {
        name: "cpp-unordered-map",
        needs: &[("g++", "g++")],
        source: Some("unordered.cpp"),
        compile: &["g++", "-O2", "-o", "{out}", "{source}"],
        command: &["{out}", "24000000"],
        ..PLAIN
    },
    Program {
        name: "java-g1",
        needs: JDK,
        source: Some("RandomMap.java"),
        compile: JAVAC,
        command: java!("-XX:+UseG1GC", "0"),
        earliest_seconds: 20.0,
        needed: Bytes::gib(4),
        ..PLAIN
    },
    Program {
        name: "java-parallel",
        needs: JDK,
        source: Some("RandomMap.java"),
        compile: JAVAC,
        command: java!("-XX:+UseParallelGC", "8"),
        earliest_seconds: 20.0,
        needed: Bytes::gib(4),
        ..PLAIN
    },
    Program {
        name: "redis",
        needs: &[("redis-server", "redis-server"), RUST],
        source: Some("load.rs"),
        compile: RUSTC,
        server: &["redis-server", "--port", "0", "--unixsocket", "{socket}", "--save", ""],
        command: &["{out}", "redis", "{socket}", "7000000"],
        ..PLAIN
    },
    Program {
        name: "memcached",
        needs: &[("memcached", "memcached"), RUST],
        source: Some("load.rs"),
        compile: RUSTC,
        // A batch of requests is answered in one go. The background threads would halve the rate of
        // requests after a minute.
        server: &[
            "memcached",
            "-u",
            "root",
            "-s",
            "{socket}",
            "-t",
            "1",
            "-m",
            "4096",
            "-R",
            "1000",
            "-o",
            "no_lru_crawler,no_lru_maintainer",
        ],
        command: &["{out}", "memcached", "{socket}", "7000000"],
        ..PLAIN
    },
    Program {
        name: "sqlite",
        needs: &[("cc", "gcc"), ("/usr/include/sqlite3.h", "libsqlite3-dev")],
        source: Some("sqlite.c"),
        compile: &["cc", "-O2", "-o", "{out}", "{source}", "-lsqlite3"],
        command: &["{out}", "8000000"],
        ..PLAIN
    },
    Program {
        name: "node-map",
        needs: &[("node", "nodejs")],
        source: Some("map.js"),
        command: &["node", "--max-old-space-size=4096", "{source}", "12000000"],
        ..PLAIN
    },
    pr!("pr-22", "kronecker:22:16", 2),
    pr!("pr-23", "kronecker:23:16", 2),
    pr!("pr-24", "kronecker:24:16", 3),
    pr!("pr-25", "kronecker:25:8", 4),
    pr!("pr-26", "uniform:26:4", 4),
    trials!("bfs-22", "{gapbs}/bfs", "kronecker:22:16", 2),
    trials!("bfs-23", "{gapbs}/bfs", "kronecker:23:16", 2),
    trials!("bfs-24", "{gapbs}/bfs", "kronecker:24:16", 3),
    trials!("bfs-25", "{gapbs}/bfs", "kronecker:25:8", 4),
    trials!("bfs-26", "{gapbs}/bfs", "uniform:26:4", 4),
    trials!("bc-22", "{gapbs}/bc", "kronecker:22:16", 2),
    trials!("bc-23", "{gapbs}/bc", "kronecker:23:16", 2),
    trials!("bc-24", "{gapbs}/bc", "kronecker:24:4", 3),
    trials!("bc-25", "{gapbs}/bc", "kronecker:25:4", 4),
    // Vertex 0 of this graph has no edges; this one reaches most of the others.
    trials!("bc-26", "{gapbs}/bc", "kronecker:26:2", "58815956", 5),
    sources!("bc-sources-23", "kronecker:23:16", 2),
    sources!("bc-sources-24", "kronecker:24:4", 3),
    lab!("stream", 2, "stream", "--size", "1GiB"),
    lab!("tlb-friendly", 2, "tlb-friendly", "--size", "1GiB"),
    lab!(
        "hot-set-gather",
        9,
        "hot-set",
        "--pattern",
        "gather",
        "--footprint",
        "8GiB",
        "--hot",
        "1GiB",
        "--announce"
    ),
    lab!(
        "hot-set-chase",
        9,
        "hot-set",
        "--pattern",
        "chase",
        "--footprint",
        "8GiB",
        "--hot",
        "1GiB",
        "--announce"
    ),
];
