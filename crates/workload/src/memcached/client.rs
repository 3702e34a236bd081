//! Client of memcached's text protocol, as far as filling and reading need it.

use std::io::{self, BufRead, Write};

use super::super::rng::mix;
use super::{Class, Items, NAME};
use crate::{Result, ServerFault, WorkloadError};

/// Length of a key: a letter and the item's index in hexadecimal.
pub(super) const KEY_LEN: usize = 9;
/// Bytes sent at once.
const PIECE: usize = 1 << 20;
/// Length limit of a line of an answer.
const MAX_LINE: u64 = 1 << 10;

/// A connection. `S` is the stream, in tests a script.
pub(super) struct Client<S> {
    stream: S,
    out: Vec<u8>,
    line: Vec<u8>,
    value: Vec<u8>,
}

impl<S: BufRead + Write> Client<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, out: Vec::new(), line: Vec::new(), value: Vec::new() }
    }

    /// Stores all `items` in order, and checks the server's count.
    pub(super) fn fill(&mut self, items: Items) -> Result<()> {
        for number in 0..items.count() {
            set(&mut self.out, items, number);
            if self.out.len() >= PIECE {
                self.send()?;
            }
        }
        self.out.extend(b"stats\r\n");
        self.send()?;
        let (mut stored, mut evicted) = (None, None);
        loop {
            let line = self.line()?;
            let mut words = line.split(|byte| byte.is_ascii_whitespace());
            match (words.next(), words.next(), words.next().and_then(number_of)) {
                (Some(b"END"), ..) => break,
                (_, Some(b"curr_items"), count) => stored = count,
                (_, Some(b"evictions"), count) => evicted = count,
                (Some(b"STAT"), ..) => {}
                _ => return Err(unexpected(line)),
            }
        }
        if stored == Some(items.count()) && evicted == Some(0) {
            return Ok(());
        }
        let count = items.count();
        Err(WorkloadError::Server(ServerFault::Stored { count, stored, evicted }))
    }

    /// Requests the items with these indices; [`Client::answer`] reads the answer.
    pub(super) fn request(&mut self, items: Items, numbers: &[usize]) -> Result<()> {
        self.out.extend(b"get");
        for &number in numbers {
            self.out.push(b' ');
            self.out.extend(key(items, number));
        }
        self.out.extend(b"\r\n");
        self.send()
    }

    /// Reads the answer to the oldest request, checks each value, and returns the sum of their
    /// first words.
    ///
    /// # Errors
    /// [`WorkloadError::Damaged`] if a value is missing or wrong, [`WorkloadError::Server`] if the
    /// server fails.
    pub(super) fn answer(&mut self, items: Items, numbers: &[usize]) -> Result<u64> {
        let mut sum = 0_u64;
        for &number in numbers {
            let (class, _) = items.of(number);
            let line = self.line()?;
            if line == b"END" {
                return Err(WorkloadError::Damaged { workload: NAME });
            }
            let mut words = line.split(|&byte| byte == b' ');
            let header = (words.next(), words.next(), words.nth(1).and_then(number_of));
            if header != (Some(b"VALUE"), Some(&key(items, number)), Some(class.value)) {
                return Err(unexpected(line));
            }
            self.value.resize(class.value + 2, 0);
            self.stream.read_exact(&mut self.value).map_err(lost)?;
            sum = sum.wrapping_add(self.checked(items, number, class)?);
        }
        if self.line()? == b"END" { Ok(sum) } else { Err(unexpected(&self.line)) }
    }

    /// Returns the first word of the value, if its ends are those of item `number`.
    fn checked(&self, items: Items, number: usize, class: Class) -> Result<u64> {
        let word = |at: usize| {
            self.value[at * 8..]
                .first_chunk()
                .map_or(0, |bytes: &[u8; 8]| u64::from_le_bytes(*bytes))
        };
        let last = class.value / 8 - 1;
        let right = |at| word(at) == value_word(items, number, at);
        if right(0) && right(last) && self.value.ends_with(b"\r\n") {
            Ok(word(0))
        } else {
            Err(WorkloadError::Damaged { workload: NAME })
        }
    }

    fn send(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(lost)
    }

    /// Reads the next line, without its end.
    fn line(&mut self) -> Result<&[u8]> {
        self.line.clear();
        let mut limited = io::Read::take(&mut self.stream, MAX_LINE);
        limited.read_until(b'\n', &mut self.line).map_err(lost)?;
        if let Some(text) = self.line.strip_suffix(b"\r\n") {
            let len = text.len();
            self.line.truncate(len);
            return Ok(&self.line);
        }
        Err(if self.line.is_empty() {
            WorkloadError::Server(ServerFault::Closed)
        } else {
            unexpected(&self.line)
        })
    }
}

fn lost(error: io::Error) -> WorkloadError {
    WorkloadError::Server(ServerFault::Connection(error))
}

fn unexpected(line: &[u8]) -> WorkloadError {
    WorkloadError::Server(ServerFault::Answer(String::from_utf8_lossy(line).into_owned()))
}

fn number_of(word: &[u8]) -> Option<usize> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Returns the key of item `number`.
fn key(items: Items, number: usize) -> [u8; KEY_LEN] {
    let (class, number) = items.of(number);
    let mut key = [class.letter; KEY_LEN];
    for (digit, place) in key[1..].iter_mut().rev().enumerate() {
        *place = b"0123456789abcdef"[number >> (4 * digit) & 15];
    }
    key
}

/// Returns word `at` of the value of item `number`, never 0.
fn value_word(items: Items, number: usize, at: usize) -> u64 {
    mix(items.seed ^ ((number as u64) << 16 | at as u64)) | 1
}

/// Appends the command that stores item `number`. The server does not answer it.
fn set(out: &mut Vec<u8>, items: Items, number: usize) {
    let (class, _) = items.of(number);
    out.extend(b"set ");
    out.extend(key(items, number));
    out.extend(format!(" 0 0 {} noreply\r\n", class.value).bytes());
    (0..class.value / 8).for_each(|at| out.extend(value_word(items, number, at).to_le_bytes()));
    out.extend(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::*;

    const ITEMS: Items = Items { small: 3, records: 2, seed: 1 };

    /// Server that answers from a script and records its input.
    struct Script {
        answers: Cursor<Vec<u8>>,
        input: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.answers.read(into)
        }
    }
    impl BufRead for Script {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.answers.fill_buf()
        }
        fn consume(&mut self, amount: usize) {
            self.answers.consume(amount);
        }
    }
    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.input.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(answers: &[u8]) -> Client<Script> {
        Client::new(Script { answers: Cursor::new(answers.to_vec()), input: Vec::new() })
    }

    /// Returns the server's answer to a GET of `numbers`.
    fn answer(numbers: &[usize]) -> Vec<u8> {
        let mut answer = Vec::new();
        for &number in numbers {
            let mut stored = Vec::new();
            set(&mut stored, ITEMS, number);
            let end = stored.iter().position(|&byte| byte == b'\n').unwrap() + 1;
            let (class, _) = ITEMS.of(number);
            answer.extend(b"VALUE ");
            answer.extend(key(ITEMS, number));
            answer.extend(format!(" 0 {}\r\n", class.value).bytes());
            answer.extend(&stored[end..]);
        }
        answer.extend(b"END\r\n");
        answer
    }

    #[test]
    fn requests_and_answers_follow_the_protocol() {
        let mut client = client(&[answer(&[1, 4]), answer(&[0])].concat());
        client.request(ITEMS, &[1, 4]).unwrap();
        client.request(ITEMS, &[0]).unwrap();
        assert_eq!(client.stream.input, b"get s00000001 r00000001\r\nget s00000000\r\n");
        let first = |number| value_word(ITEMS, number, 0);
        assert_eq!(client.answer(ITEMS, &[1, 4]).unwrap(), first(1).wrapping_add(first(4)));
        assert_eq!(client.answer(ITEMS, &[0]).unwrap(), first(0));
        assert_eq!(key(ITEMS, 0x12), *b"r0000000f");
    }

    #[test]
    fn a_missing_or_changed_value_is_detected() {
        let refused = |answer: &[u8]| client(answer).answer(ITEMS, &[1, 4]).unwrap_err();
        assert!(matches!(refused(&answer(&[1])), WorkloadError::Damaged { .. }));
        let whole = answer(&[1, 4]);
        for place in [24, whole.len() - 8] {
            let mut changed = whole.clone();
            changed[place] ^= 8;
            assert!(matches!(refused(&changed), WorkloadError::Damaged { .. }), "at {place}");
        }
    }

    #[test]
    fn any_other_answer_is_a_fault_of_the_server() {
        let whole = answer(&[1, 4]);
        let cut = &whole[..whole.len() / 2];
        for answer in [&b""[..], b"SERVER_ERROR out of memory\r\n", b"VALUE", &answer(&[4, 1]), cut]
        {
            let error = client(answer).answer(ITEMS, &[1, 4]).unwrap_err();
            assert!(matches!(error, WorkloadError::Server(_)), "{error}");
        }
    }

    #[test]
    fn a_fill_stores_all_and_checks_the_servers_count() {
        let stats = |stored, evicted| {
            format!("STAT pid 1\r\nSTAT curr_items {stored}\r\nSTAT evictions {evicted}\r\nEND\r\n")
        };
        let mut full = client(stats(5, 0).as_bytes());
        full.fill(ITEMS).unwrap();
        let input = String::from_utf8_lossy(&full.stream.input).into_owned();
        assert_eq!(input.matches(" noreply\r\n").count(), 5);
        assert!(
            input.starts_with("set s00000000 0 0 184 noreply\r\n")
                && input.ends_with("\r\nstats\r\n")
        );
        for (stored, evicted) in [(4, 0), (5, 1)] {
            assert!(client(stats(stored, evicted).as_bytes()).fill(ITEMS).is_err());
        }
        assert!(client(b"ERROR\r\n").fill(ITEMS).is_err());
    }
}
