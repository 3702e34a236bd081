//! Records of measurements.

use serde::{Deserialize, Serialize};

use super::super::records::Machine;
use super::options::Part;
use super::{agree, peers, processes, programs, replay, reuse, sizes, speed, threads, utility};

/// Measurement, with the command that made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) row: Row,
    pub(super) command: String,
    pub(super) machine: Machine,
}

/// Row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub(super) enum Row {
    Speed(speed::Line),
    Peers(peers::Line),
    Reuse(reuse::Line),
    Utility(utility::Line),
    Sizes(sizes::Line),
    Threads(threads::Line),
    Processes(processes::Line),
    Replay(replay::Line),
    Agree(agree::Line),
    Programs(programs::Line),
}

impl Row {
    pub(super) fn part(&self) -> Part {
        match self {
            Self::Speed(_) => Part::Speed,
            Self::Peers(_) => Part::Peers,
            Self::Reuse(_) => Part::Reuse,
            Self::Utility(_) => Part::Utility,
            Self::Sizes(_) => Part::Sizes,
            Self::Threads(_) => Part::Threads,
            Self::Processes(_) => Part::Processes,
            Self::Replay(_) => Part::Replay,
            Self::Agree(_) => Part::Agree,
            Self::Programs(_) => Part::Programs,
        }
    }

    /// Adds a later measurement of the same row of the table. Returns whether `other` is one.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Speed(line), Self::Speed(other)) => line.join(other),
            (Self::Peers(line), Self::Peers(other)) => line.join(other),
            (Self::Threads(line), Self::Threads(other)) => line.join(other),
            (Self::Processes(line), Self::Processes(other)) => line.join(other),
            (Self::Replay(line), Self::Replay(other)) => line.join(other),
            _ => false,
        }
    }

    /// Cells of the row, as [`Self::head`] names them.
    pub(super) fn cells(&self) -> Vec<String> {
        match self {
            Self::Speed(line) => line.cells(),
            Self::Peers(line) => line.cells(),
            Self::Reuse(line) => line.cells(),
            Self::Utility(line) => line.cells(),
            Self::Sizes(line) => line.cells(),
            Self::Threads(line) => line.cells(),
            Self::Processes(line) => line.cells(),
            Self::Replay(line) => line.cells(),
            Self::Agree(line) => line.cells(),
            Self::Programs(line) => line.cells(),
        }
    }

    /// Titles of the columns.
    pub(super) fn head(&self) -> Vec<String> {
        match self {
            Self::Speed(_) => table(&speed::HEAD),
            Self::Peers(_) => table(&peers::HEAD),
            Self::Reuse(_) => table(&reuse::HEAD),
            Self::Utility(line) => line.head(),
            Self::Sizes(line) => line.head(),
            Self::Threads(line) => line.head(),
            Self::Processes(line) => line.head(),
            Self::Replay(_) => table(&replay::HEAD),
            Self::Agree(_) => table(&agree::HEAD),
            Self::Programs(line) => line.head(),
        }
    }
}

fn table(head: &[&str]) -> Vec<String> {
    head.iter().map(|&title| title.to_owned()).collect()
}
