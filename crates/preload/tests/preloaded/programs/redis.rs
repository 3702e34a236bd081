//! Test of a redis server, with the preloaded `malloc` and without.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use hugepilot_testkit::{need, requires};

use crate::Preloaded;

/// Scripts that fill the server: many small keys, then every type in its small and its large
/// encoding.
const FILL: [&str; 7] = [
    "for i = 1, 60000 do redis.call('SET', 'key' .. i, string.rep('x', 100)) end",
    "for i = 1, 30000 do \
     redis.call('HSET', 'hash' .. i % 300, 'field' .. i, string.rep('h', i % 200)) end",
    "for i = 1, 30000 do redis.call('RPUSH', 'list' .. i % 30, string.rep('l', i % 500)) end",
    "for i = 1, 30000 do redis.call('SADD', 'set' .. i % 30, i, 's' .. i % 1000) end",
    "for i = 1, 30000 do redis.call('ZADD', 'zset' .. i % 30, i % 777, 'member' .. i) end",
    "for i = 1, 30000 do \
     redis.call('XADD', 'stream' .. i % 3, i .. '-1', 'field', string.rep('v', i % 100)) end",
    "for i = 1, 4 do redis.call('SET', 'big' .. i, string.rep('b', i * 1000000)) \
     redis.call('APPEND', 'big' .. i, 'end') end",
];

/// Scripts that read the data in ways that allocate, and shrink some of it.
const CHANGE: [&str; 6] = [
    "for i = 0, 29 do redis.call('SORT', 'list' .. i, 'ALPHA', 'DESC', 'STORE', 'sorted' .. i) end",
    "redis.call('ZUNIONSTORE', 'union', 3, 'zset1', 'zset2', 'zset3') \
     redis.call('SINTERSTORE', 'inter', 'set1', 'set2')",
    "for i = 0, 29 do redis.call('LTRIM', 'list' .. i, 10, -10) \
     redis.call('ZREMRANGEBYRANK', 'zset' .. i, 0, 99) end",
    "for i = 0, 2 do redis.call('XTRIM', 'stream' .. i, 'MAXLEN', 5000) end",
    "for i = 1, 60000, 3 do redis.call('DEL', 'key' .. i) end",
    "for i = 2, 60000, 3 do redis.call('APPEND', 'key' .. i, string.rep('y', i % 300)) end",
];

/// Server, killed on drop.
struct Server {
    process: Child,
    port: u16,
    started: Instant,
}

impl Server {
    fn start(redis: &mut Command, port: u16) -> Self {
        Self {
            process: redis.stdout(Stdio::null()).spawn().unwrap(),
            port,
            started: Instant::now(),
        }
    }

    fn client(&self) -> Client {
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(self.started.elapsed() < Duration::from_secs(20), "{error}"),
            }
            thread::sleep(Duration::from_millis(20));
        };
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(BufReader::new(stream))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, commands: &str) {
        self.0.get_mut().write_all(commands.as_bytes()).unwrap();
    }

    /// Reads one reply as text; of a multi-part reply, only the first line.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the server closed the connection");
        let Some(len) = line.trim().strip_prefix('$') else { return line.trim().to_owned() };
        let mut bulk = vec![0; len.parse::<usize>().expect(len) + 2];
        self.0.read_exact(&mut bulk).unwrap();
        String::from_utf8_lossy(&bulk).trim().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(&format!("{command}\r\n"));
        self.answer()
    }

    fn script(&mut self, text: &str) {
        assert_eq!(self.ask(&format!("EVAL \"{text} return 7\" 0")), ":7", "{text}");
    }

    fn number(&mut self, section: &str, name: &str) -> u64 {
        let info = self.ask(&format!("INFO {section}"));
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("{name}: {info}")).trim().parse().unwrap()
    }

    fn waits(&mut self, what: &str, mut until: impl FnMut(&mut Self) -> bool) {
        let began = Instant::now();
        while !until(self) {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs eight clients at once. Each sends all its commands before it reads a reply.
fn pipelines(server: &Server) {
    thread::scope(|scope| {
        for own in 0..8 {
            scope.spawn(move || {
                let (mut client, mut all) = (server.client(), String::new());
                for i in 0..1000 {
                    let text = "p".repeat(i % 120 + 1);
                    all += &format!("SET pipe{own}:{i} {text}\r\nAPPEND pipe{own} {text}\r\n");
                    all += &format!("LPUSH queue{own} {text}\r\nHSET table{own} {i} {text}\r\n");
                    all += &format!("DEL pipe{own}:{}\r\n", i / 2);
                }
                client.send(&all);
                for _ in 0..1000 * 5 {
                    let answer = client.answer();
                    assert!(!answer.starts_with('-'), "{answer}");
                }
            });
        }
    });
}

/// Forks children that save the data while it changes.
fn saves(client: &mut Client) {
    assert_eq!(client.ask("BGSAVE"), "+Background saving started");
    (0..2000).for_each(|i| assert_eq!(client.ask(&format!("SET some{i} {i}")), "+OK"));
    client.waits("the child saves", |client| {
        client.number("persistence", "rdb_bgsave_in_progress") == 0
    });
    assert!(client.ask("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    assert!(client.ask("BGREWRITEAOF").starts_with("+Background append only file rewriting"));
    (0..2000).step_by(2).for_each(|i| assert_eq!(client.ask(&format!("DEL some{i}")), ":1"));
    client.waits("the child rewrites", |client| {
        client.number("persistence", "aof_rewrite_in_progress") == 0
    });
    assert!(client.ask("INFO persistence").contains("aof_last_bgrewrite_status:ok"));
}

/// Checks the memory report of the server, which uses `malloc_usable_size`.
fn memory_is_known(client: &mut Client) {
    let used = client.number("memory", "used_memory");
    assert!(client.number("memory", "used_memory_rss") > 0 && used > 20 << 20, "{used}");
    let big: u64 = client.ask("MEMORY USAGE big4").trim_start_matches(':').parse().unwrap();
    assert!((4_000_003..8_100_000).contains(&big), "{big}");
    assert!(client.ask("MEMORY DOCTOR").contains("Sam"));
    // Requires an allocator that supports defragmentation.
    assert!(client.ask("CONFIG SET activedefrag yes").contains("cannot be enabled"));
}

/// Runs the workload. Returns a digest of the data, which must survive saving and loading.
fn work(server: &Server) -> String {
    let mut client = server.client();
    let client = &mut client;
    FILL.iter().for_each(|text| client.script(text));
    memory_is_known(client);
    CHANGE.iter().for_each(|text| client.script(text));
    saves(client);
    pipelines(server);
    let digest = client.ask("DEBUG DIGEST");
    for reload in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        assert_eq!(client.ask(reload), "+OK");
        assert_eq!(client.ask("DEBUG DIGEST"), digest, "{reload}");
    }
    let keys = client.ask("DBSIZE");
    client.script("for i = 1, 20000 do redis.call('SET', 'soon' .. i, i, 'PX', i % 100 + 1) end");
    client.waits("keys expire", |client| client.ask("DBSIZE") == keys);
    digest
}

fn run(redis: &mut Command, port: u16, folder: &Path) -> String {
    fs::create_dir_all(folder).unwrap();
    redis.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--dir",
        folder.to_str().unwrap(),
    ]);
    redis.args([
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "no",
        "--enable-debug-command",
        "yes",
    ]);
    let mut server = Server::start(redis, port);
    let digest = work(&server);
    server.client().send("SHUTDOWN NOSAVE\r\n");
    assert!(server.process.wait().unwrap().success());
    fs::remove_dir_all(folder).unwrap();
    digest
}

#[test]
fn redis_holds_the_same_data_as_without() {
    requires!(need::program("redis-server"));
    let folder =
        |name| std::env::temp_dir().join(format!("hugepilot-redis-{}-{name}", std::process::id()));
    let mut redis = Preloaded::new("redis-server", &[]);
    // Ports that are chosen together differ.
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    drop(listeners);
    let (with, without) = thread::scope(|scope| {
        let mut other = Command::new("redis-server");
        let plain = scope.spawn(move || run(&mut other, ports[0], &folder("plain")));
        (run(&mut redis.command, ports[1], &folder("preloaded")), plain.join().unwrap())
    });
    assert_eq!(with, without);
    let report = redis.report();
    assert!(report["allocated_bytes"].as_u64() > Some(10 << 20), "{report}");
}
