//! Sentences for obstacles to huge pages that concern a whole process.

use hugepilot_record::Obstacle;

use crate::sentence::lines;

/// A line for each obstacle, with its help.
pub(crate) fn obstacles(all: &[Obstacle]) -> String {
    all.iter().map(|one| lines("obstacle", one)).collect()
}
