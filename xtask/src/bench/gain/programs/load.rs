//! Load generator: fills a server with keys, then reads random keys: four batches of 64 at a time.
//!
//! Arguments: `redis` or `memcached`, a Unix socket, keys.

use std::env;
use std::hint::spin_loop;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(20);
const BATCH: u64 = 64;
/// Batches that the server has at a time.
const IN_FLIGHT: usize = 4;
const VALUE: [u8; 64] = [b'v'; 64];

/// Protocol: commands, and the bytes of one reply.
struct Protocol {
    set: fn(&mut Vec<u8>, u64),
    get: fn(&mut Vec<u8>, u64),
    stored: &'static str,
    found: usize,
    first: u8,
}

const REDIS: Protocol = Protocol {
    set: |out, key| {
        let _ = write!(out, "*3\r\n$3\r\nSET\r\n$12\r\nkey:{key:08}\r\n$64\r\n");
        out.extend_from_slice(&VALUE);
        out.extend_from_slice(b"\r\n");
    },
    get: |out, key| _ = write!(out, "*2\r\n$3\r\nGET\r\n$12\r\nkey:{key:08}\r\n"),
    stored: "+OK\r\n",
    found: "$64\r\n\r\n".len() + VALUE.len(),
    first: b'$',
};

const MEMCACHED: Protocol = Protocol {
    set: |out, key| {
        let _ = write!(out, "set key:{key:08} 0 0 64\r\n");
        out.extend_from_slice(&VALUE);
        out.extend_from_slice(b"\r\n");
    },
    get: |out, key| _ = write!(out, "get key:{key:08}\r\n"),
    stored: "STORED\r\n",
    found: "VALUE key:00000000 0 64\r\n\r\nEND\r\n".len() + VALUE.len(),
    first: b'V',
};

/// Connection with its buffers.
struct Client {
    server: UnixStream,
    out: Vec<u8>,
    replies: Vec<u8>,
}

impl Client {
    /// Sends a command for each key, and returns their number.
    fn send(&mut self, command: fn(&mut Vec<u8>, u64), keys: impl Iterator<Item = u64>) -> usize {
        self.out.clear();
        let count = keys.map(|key| command(&mut self.out, key)).count();
        let mut sent = 0;
        while sent < self.out.len() {
            sent += busy(|| self.server.write(&self.out[sent..]));
        }
        count
    }

    /// Receives `count` replies of this length, and returns the start of the last.
    fn receive(&mut self, count: usize, length: usize) -> u8 {
        self.replies.resize(count * length, 0);
        let mut received = 0;
        while received < self.replies.len() {
            received += busy(|| self.server.read(&mut self.replies[received..]));
        }
        self.replies[(count - 1) * length]
    }
}

fn main() {
    let args: Vec<String> = env::args().collect();
    let protocol = if args[1] == "redis" { REDIS } else { MEMCACHED };
    let keys: u64 = args[3].parse().expect("a number of keys");
    let mut client = Client { server: connected(&args[2]), out: Vec::new(), replies: Vec::new() };
    for first in (0..keys).step_by(BATCH as usize) {
        let count = client.send(protocol.set, first..keys.min(first + BATCH));
        let reply = client.receive(count, protocol.stored.len());
        assert_eq!(reply, protocol.stored.as_bytes()[0], "a key was not stored");
    }
    println!("ready");
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % keys
    };
    // The server always has another batch: it is measured, not the wake-up of its CPU.
    for _ in 1..IN_FLIGHT {
        client.send(protocol.get, (0..BATCH).map(|_| next()));
    }
    loop {
        let (begun, mut ops) = (Instant::now(), 0);
        while begun.elapsed() < EVERY {
            let count = client.send(protocol.get, (0..BATCH).map(|_| next()));
            let reply = client.receive(count, protocol.found);
            assert_eq!(reply, protocol.first, "a key was not found");
            ops += BATCH;
        }
        println!("ops {ops}");
    }
}

/// Repeats an attempt until the socket is ready. Does not sleep: the server would pay for the
/// wake-up of the other CPU, which costs more than a request in a virtual machine.
fn busy(mut attempt: impl FnMut() -> io::Result<usize>) -> usize {
    loop {
        match attempt() {
            Ok(0) => panic!("the server closed the connection"),
            Ok(bytes) => return bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) => panic!("no connection to the server: {error}"),
        }
    }
}

/// Connects to a server that may still be starting.
fn connected(socket: &str) -> UnixStream {
    for _ in 0..200 {
        if let Ok(stream) = UnixStream::connect(socket) {
            stream.set_nonblocking(true).expect("a socket can be polled");
            return stream;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("no server at {socket}");
}
