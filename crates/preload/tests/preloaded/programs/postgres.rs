//! Test of a PostgreSQL server and its clients, with the preloaded `malloc` and without.
//!
//! The same statements run on two clusters, one of them preloaded from `initdb` on. Their output
//! must be identical.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use hugepilot_testkit::{Need, need, requires};
use serde_json::Value;

/// Statements of concurrent sessions, and the number of intended errors in each.
const SESSIONS: [(&str, &str, usize); 4] = [
    ("queries", include_str!("postgres/queries.sql"), 0),
    ("values", include_str!("postgres/values.sql"), 2),
    ("tables", include_str!("postgres/tables.sql"), 2),
    ("code", include_str!("postgres/code.sql"), 7),
];

/// Query that checks the accounts of `pgbench` and counts its transactions.
const BALANCES: &str = "SELECT
    (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history),
    (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches),
    count(*) FROM pgbench_history";

/// User for the server: `PostgreSQL` refuses root. Every system has this user, without files.
const NOBODY: u32 = 65534;

/// Finds the programs. Debian keeps those of the server out of `PATH`, in a folder per version.
fn programs() -> Result<PathBuf, String> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = debian.chain(env::split_paths(&path)).collect();
    let there = |folder: &&PathBuf| {
        ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).exists())
    };
    all.iter().find(there).cloned().ok_or_else(|| "no PostgreSQL server".to_owned())
}

/// Server, its files, and commands for it.
struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
    /// Copy of the library, if it is preloaded.
    preload: Option<PathBuf>,
    server: Option<Child>,
}

impl Cluster {
    fn new(programs: &Path, name: &str, preloaded: bool) -> Self {
        let folder =
            env::temp_dir().join(format!("hugepilot-postgres-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        // That user may lack access to the build folder.
        let library = folder.join("libhugepilot_preload.so");
        fs::copy(crate::library(), &library).unwrap();
        if need::root() == Need::Ok {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut cluster = Self {
            programs: programs.to_owned(),
            folder,
            preload: preloaded.then_some(library),
            server: None,
        };
        cluster.said(
            "initdb",
            &["-D", "data", "-A", "trust", "-U", "test", "-E", "UTF8", "--no-locale", "-N"],
        );
        cluster.start();
        cluster
    }

    /// Creates a command of one of its programs, in its folder, as a user that it accepts.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.args(args).current_dir(&self.folder).stdin(Stdio::null());
        command.env("PGHOST", &self.folder).env("PGUSER", "test").env("PGDATABASE", "postgres");
        command
            .env("PGDATA", self.folder.join("data"))
            .env("PGOPTIONS", "-c client_min_messages=warning");
        if need::root() == Need::Ok {
            command.uid(NOBODY).gid(NOBODY);
        }
        if let Some(library) = &self.preload {
            command.env("LD_PRELOAD", library).env("HUGEPILOT_STATS", self.folder.join("stats"));
        }
        command
    }

    /// Runs one of its programs, which must succeed. Returns its output.
    fn said(&self, program: &str, args: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(program, args).output().unwrap();
        let printed =
            [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(status.success(), "{program} {args:?}: {status}: {printed}\n{}", self.log());
        printed
    }

    fn start(&mut self) {
        // If autovacuum runs at the wrong moment, VACUUM FULL loses pieces (PostgreSQL's bug
        // 18351).
        let settings = [
            "huge_pages=off",
            "fsync=off",
            "listen_addresses=",
            "max_prepared_transactions=2",
            "autovacuum=off",
            // A scan would begin where an earlier one was cancelled, so that rows come in the order
            // of that moment.
            "synchronize_seqscans=off",
        ];
        let socket = format!("unix_socket_directories={}", self.folder.display());
        let mut server = self.command("postgres", &["-c", &socket]);
        server.args(settings.iter().flat_map(|setting| ["-c", setting]));
        let log = File::create(self.folder.join("log")).unwrap();
        self.server = Some(server.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let began = Instant::now();
        while !self.log().contains("ready to accept connections") {
            assert!(began.elapsed() < Duration::from_secs(30), "{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Runs statements in a session. Returns them with their results and errors, in order.
    fn session(&self, name: &str, statements: &str) -> String {
        let (file, out) =
            (self.folder.join(format!("{name}.sql")), self.folder.join(format!("{name}.out")));
        fs::write(&file, statements).unwrap();
        let printed = File::create(&out).unwrap();
        let mut psql = self.command("psql", &["-X", "-a", "-q", "-f", file.to_str().unwrap()]);
        psql.stdout(printed.try_clone().unwrap()).stderr(printed);
        let status = psql.status().unwrap();
        let text = fs::read_to_string(&out).unwrap();
        assert!(status.success(), "{name}: {status}: {text}\n{}", self.log());
        text.replace(self.folder.to_str().unwrap(), "")
    }

    /// Runs all sessions at once, beside short transactions of eight clients, each of which starts
    /// a server process.
    fn work(&self) -> Vec<String> {
        self.said("pgbench", &["-i", "-q", "-s", "1"]);
        thread::scope(|scope| {
            let bench = scope
                .spawn(|| self.said("pgbench", &["-n", "-c8", "-j2", "-t12", "-C", "-Mprepared"]));
            let sessions =
                SESSIONS.map(|(name, text, _)| scope.spawn(move || self.session(name, text)));
            bench.join().unwrap();
            let mut printed = sessions.map(|session| session.join().unwrap()).to_vec();
            printed.push(self.said("psql", &["-X", "-A", "-t", "-c", BALANCES]));
            let dump = self.said("pg_dump", &["--schema=tables", "--schema=values"]);
            // Those lines have a key made for each dump.
            printed.push(
                dump.lines()
                    .filter(|line| !line.contains("restrict "))
                    .collect::<Vec<_>>()
                    .join("\n"),
            );
            printed
        })
    }

    /// Stops the server in order, and returns its log.
    fn stop(&mut self) -> String {
        self.said("pg_ctl", &["stop", "-m", "fast"]);
        let status = self.server.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }

    /// Returns the statistics of every preloaded process that exited.
    fn reports(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.join("stats")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _: io::Result<Output> =
                self.command("pg_ctl", &["stop", "-m", "immediate"]).output();
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the output of a cluster, and checks the statistics of its server.
fn run(programs: &Path, name: &str, preloaded: bool) -> Vec<String> {
    let mut cluster = Cluster::new(programs, name, preloaded);
    let server = cluster.server.as_ref().unwrap().id();
    let printed = cluster.work();
    let log = cluster.stop();
    for bad in ["terminated by signal", "PANIC", "hugepilot:", "was not shut down"] {
        assert!(!log.contains(bad), "{bad}: {log}");
    }
    if preloaded {
        let reports = cluster.reports();
        assert!(reports.iter().all(|own| own["mapped_bytes"].as_u64() > Some(0)), "{reports:?}");
        assert!(
            reports.iter().any(|own| own["pid"].as_u64() == Some(server.into())),
            "the server's own"
        );
        // One each for 96 transactions, the sessions, and their workers.
        assert!(reports.len() > 110, "{}", reports.len());
    }
    printed
}

#[test]
fn postgres_answers_as_without() {
    let programs = programs();
    requires!(Need::from(programs.as_ref()));
    let programs = &programs.unwrap();
    let [with, without] = thread::scope(|scope| {
        let both = [("preloaded", true), ("plain", false)];
        both.map(|(name, preloaded)| scope.spawn(move || run(programs, name, preloaded)))
            .map(|run| run.join().unwrap())
    });
    for ((name, _, errors), printed) in SESSIONS.iter().zip(&without) {
        assert!(printed.contains(&format!("{name} end")), "{name}: {printed}");
        assert_eq!(printed.matches("ERROR: ").count(), *errors, "{name}: {printed}");
    }
    assert_eq!(without[SESSIONS.len()], "t|t|96\n");
    for (with, without) in with.iter().zip(&without) {
        for (line, (with, without)) in with.lines().zip(without.lines()).enumerate() {
            assert_eq!(with, without, "line {}", line + 1);
        }
        assert_eq!(with.len(), without.len());
    }
}
