//! Lists obstacles to huge pages of a process.

use hugepilot_record::Obstacle;
use hugepilot_render::sentence::lines;

/// A line for each obstacle, with its help.
pub(crate) fn obstacles(all: &[Obstacle]) -> String {
    all.iter().map(|one| lines("obstacle", one)).collect()
}
