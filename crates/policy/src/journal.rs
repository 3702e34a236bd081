//! Journal of rounds: reads it line by line, within bounds.
//!
//! A journal is NDJSON: a [`Header`], then a round in each line. The daemon has several goals, so
//! further headers follow. A run that is killed leaves an incomplete last line, which is not an
//! error.

mod sound;

use std::io::{self, BufRead, Read};

use hugepilot_units::{Bytes, Nanos};
use serde::{Deserialize, Deserializer, Serialize};

use crate::daemon::DaemonRound;
use crate::debloat::round::SplitRound;
use crate::round::{Goal, Header, Round, SCHEMA};

/// Most characters of the schema or the version in a message.
const MAX_SHOWN: usize = 80;
/// Start of a header.
const HEADER: &[u8] = b"{\"schema\"";

/// Bounds of a journal, so that a damaged one cannot fill the memory.
#[derive(Clone, Copy, Debug)]
pub struct JournalLimits {
    /// Longest line. A mapping takes about 350 bytes in each round.
    pub line: Bytes,
    /// Most rounds, and later headers.
    pub rounds: u64,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { line: Bytes::mib(256), rounds: 100_000 }
    }
}

/// Cause why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The first line is not a header of a journal.
    #[error("not a journal of hugepilot")]
    NoJournal,
    /// The first line has another schema.
    #[error("schema {found:?}, expected {SCHEMA:?}")]
    Schema {
        /// Its schema, shortened.
        found: String,
    },
    /// A line is not what hugepilot writes.
    #[error("line {line} is damaged: {what}")]
    Damaged {
        /// Line, from 1.
        line: u64,
        /// Cause.
        what: String,
    },
    /// A line is longer than allowed.
    #[error("line {line} is longer than {limit}")]
    LongLine {
        /// Line, from 1.
        line: u64,
        /// The limit.
        limit: Bytes,
    },
    /// There are more rounds than allowed.
    #[error("more than {limit} rounds")]
    ManyRounds {
        /// The limit.
        limit: u64,
    },
}

/// A round of a journal, as its goal has them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum JournalRound {
    /// Round of a tune.
    Tune(Box<Round>),
    /// Round of a debloat.
    Debloat(Box<SplitRound>),
    /// Decision of the daemon about itself.
    Daemon(Box<DaemonRound>),
}

impl JournalRound {
    /// Returns the begin of the time that the round is about: of a tune, its first observation.
    pub fn begin(&self) -> Nanos {
        match self {
            Self::Tune(round) => {
                let since = round.rows.iter().map(|row| row.seen.window.since);
                since.chain([round.time]).min().unwrap_or_default()
            }
            Self::Debloat(round) => round.time,
            Self::Daemon(round) => round.time,
        }
    }

    /// Parses a line, and checks its numbers.
    fn parse(line: &[u8], goal: &Goal) -> serde_json::Result<Result<Self, String>> {
        let mut from = serde_json::Deserializer::from_slice(line);
        let round = Self::of(&mut from, goal)?;
        from.end()?;
        Ok(round)
    }

    fn of<'de, D: Deserializer<'de>>(
        from: D,
        goal: &Goal,
    ) -> Result<Result<Self, String>, D::Error> {
        Ok(match goal {
            Goal::Tune(_) => {
                let round = Round::deserialize(from)?;
                sound::round(&round).map(|()| Self::Tune(Box::new(round)))
            }
            Goal::Debloat(_) => {
                let round = SplitRound::deserialize(from)?;
                sound::splits(&round).map(|()| Self::Debloat(Box::new(round)))
            }
            Goal::Daemon => {
                let round = DaemonRound::deserialize(from)?;
                sound::daemon(&round).map(|()| Self::Daemon(Box::new(round)))
            }
        })
    }
}

/// A journal that is being read: an iterator over its rounds.
#[derive(Debug)]
pub struct JournalReader<R> {
    from: R,
    limits: JournalLimits,
    header: Header,
    line: Vec<u8>,
    /// Number of the last line.
    number: u64,
    cut: u64,
    is_over: bool,
}

impl<R: BufRead> JournalReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The file is not a journal, or one of another version.
    pub fn new(from: R, limits: JournalLimits) -> Result<Self, JournalError> {
        let header = Header::of(Goal::Tune(Box::default()));
        let mut reader =
            Self { from, limits, header, line: Vec::new(), number: 0, cut: 0, is_over: false };
        if !reader.next_line()? {
            return Err(JournalError::NoJournal);
        }
        reader.header = header_of(&reader.line, 1)?;
        Ok(reader)
    }

    /// The goal of the round that was read last, or of the first one.
    pub const fn goal(&self) -> &Goal {
        &self.header.goal
    }

    /// Version of hugepilot in the first header, shortened. One process writes a journal, so that
    /// later headers have the same.
    pub fn version(&self) -> &str {
        &self.header.version
    }

    /// Bytes of an incomplete last line, once all rounds are read; 0 without one.
    pub const fn cut_bytes(&self) -> u64 {
        self.cut
    }

    /// Reads the next line. Returns whether there is one.
    fn next_line(&mut self) -> Result<bool, JournalError> {
        self.line.clear();
        let limit = self.limits.line.get();
        self.from.by_ref().take(limit.saturating_add(1)).read_until(b'\n', &mut self.line)?;
        self.number += 1;
        if self.line.len() as u64 > limit {
            return Err(JournalError::LongLine { line: self.number, limit: self.limits.line });
        }
        Ok(!self.line.is_empty())
    }

    fn read(&mut self) -> Result<Option<JournalRound>, JournalError> {
        while !self.is_over && self.next_line()? {
            if self.number > self.limits.rounds.saturating_add(1) {
                return Err(JournalError::ManyRounds { limit: self.limits.rounds });
            }
            let is_cut = self.line.last() != Some(&b'\n');
            if self.line.starts_with(HEADER) && !is_cut {
                let header = header_of(&self.line, self.number).map_err(|error| match error {
                    JournalError::NoJournal => damaged(self.number, "not a header"),
                    error => error,
                })?;
                self.header.goal = header.goal;
                continue;
            }
            let line = self.number;
            return match JournalRound::parse(&self.line, &self.header.goal) {
                Ok(round) => round.map(Some).map_err(|what| damaged(line, what)),
                // Its writer was killed.
                Err(_) if is_cut => {
                    self.cut = self.line.len() as u64;
                    Ok(None)
                }
                Err(error) => Err(differs(line, &error)),
            };
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for JournalReader<R> {
    type Item = Result<JournalRound, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        self.is_over |= !matches!(read, Ok(Some(_)));
        read.transpose()
    }
}

/// Journal whose lines come one by one, as a recording has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalLines {
    header: Option<Header>,
    /// Number of the last line.
    number: u64,
}

impl JournalLines {
    /// Reads a line. Returns its round; `None` for a header.
    ///
    /// # Errors
    /// The line is damaged, or of another version, or comes before a header.
    pub fn round(&mut self, line: serde_json::Value) -> Result<Option<JournalRound>, JournalError> {
        self.number += 1;
        if line.get("schema").is_some() {
            self.header = Some(header_of(line.to_string().as_bytes(), self.number)?);
            return Ok(None);
        }
        let header = self.header.as_ref().ok_or(JournalError::NoJournal)?;
        let round = JournalRound::of(line, &header.goal);
        let round = round.map_err(|error| differs(self.number, &error))?;
        round.map(Some).map_err(|what| damaged(self.number, what))
    }
}

/// The part of a text that a message has.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

fn damaged(line: u64, what: impl Into<String>) -> JournalError {
    JournalError::Damaged { line, what: what.into() }
}

/// A line that differs from its schema. Its position is in the line, not in the file.
fn differs(line: u64, error: &serde_json::Error) -> JournalError {
    let text = error.to_string();
    let (what, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    let what = match error.column() {
        0 => what.to_owned(),
        column => format!("{what} at column {column}"),
    };
    damaged(line, what)
}

/// Parses a header, and checks its numbers. `number`: of its line.
fn header_of(line: &[u8], number: u64) -> Result<Header, JournalError> {
    let mut header = parse_header(line, number)?;
    sound::header(&header).map_err(|what| damaged(number, what))?;
    header.version = shown(&header.version);
    Ok(header)
}

fn parse_header(line: &[u8], line_number: u64) -> Result<Header, JournalError> {
    /// The part of a header that names its version.
    #[derive(Deserialize)]
    struct Named {
        schema: String,
    }
    let Ok(Named { schema }) = serde_json::from_slice(line) else {
        return Err(JournalError::NoJournal);
    };
    if schema != SCHEMA {
        return Err(JournalError::Schema { found: shown(&schema) });
    }
    serde_json::from_slice(line).map_err(|error| differs(line_number, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::VERSION;

    #[test]
    fn the_version_of_a_journal_is_known_since_it_is_written() {
        let version = |text: &str| {
            let reader = JournalReader::new(text.as_bytes(), JournalLimits::default());
            reader.map(|reader| reader.version().to_owned())
        };
        let header = serde_json::to_string(&Header::of(Goal::Daemon)).unwrap() + "\n";
        assert_eq!(version(&header).unwrap(), VERSION);
        for hostile in [r"\u001b[2J", "\u{202e}0.1"] {
            let error = version(&header.replacen(VERSION, hostile, 1)).unwrap_err().to_string();
            assert_eq!(error, "line 1 is damaged: its version has control characters");
        }
        let long = header.replacen(VERSION, &"9".repeat(1 << 20), 1);
        assert_eq!(version(&long).unwrap().len(), 80);
    }
    #[test]
    fn the_version_of_a_journal_is_that_of_its_first_header() {
        let header = serde_json::to_string(&Header::of(Goal::Daemon)).unwrap() + "\n";
        let text = header.clone() + &header.replacen(VERSION, "0.0.9", 1);
        let mut reader = JournalReader::new(text.as_bytes(), JournalLimits::default()).unwrap();
        assert!(reader.next().is_none());
        assert_eq!(reader.version(), VERSION);
    }
    #[test]
    fn a_line_that_differs_from_its_schema_has_its_number_once() {
        let text =
            serde_json::to_string(&Header::of(Goal::Daemon)).unwrap() + "\n{\"time\":\"x\"}\n";
        let mut reader = JournalReader::new(text.as_bytes(), JournalLimits::default()).unwrap();
        let error = reader.next().unwrap().unwrap_err().to_string();
        let expected = "line 2 is damaged: invalid type: string \"x\", expected u64 at column 11";
        assert_eq!(error, expected);
    }
}
