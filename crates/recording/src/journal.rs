//! A journal alone, as a recording of its rounds.

use hugepilot_policy::journal::{JournalError, JournalLines, JournalRound};
use hugepilot_render::table::counted;
use hugepilot_units::PageSizes;
use serde_json::Value;

use super::timeline::{Timeline, Window};
use crate::{Head, Line, RecordedMachine, SCHEMA};

/// Start of a journal.
const START: &str = "{\"schema\":\"hugepilot.journal/";

impl Timeline {
    /// Whether a file that begins so is a journal.
    pub fn is_journal(text: &str) -> bool {
        text.starts_with(START)
    }

    /// A journal as a recording without metrics. A last line that was cut is a warning.
    ///
    /// # Errors
    /// A line is damaged or of another version.
    pub fn of_journal(text: &str, window: Window) -> Result<Self, JournalError> {
        let (mut lines, mut rounds) = (Vec::new(), JournalLines::default());
        let (mut started, mut sizes, mut cut) = (None, None, 0);
        for line in text.split_inclusive('\n') {
            let value: Value = match serde_json::from_str(line) {
                Ok(value) => value,
                // Its writer was killed.
                Err(_) if !line.ends_with('\n') => {
                    cut = line.len();
                    break;
                }
                Err(error) => {
                    let (line, what) = (lines.len() as u64 + 1, error.to_string());
                    return Err(JournalError::Damaged { line, what });
                }
            };
            if let Some(round) = rounds.round(value.clone())? {
                started = started.or(Some(round.begin()));
                sizes = sizes.or(page_sizes(&round));
            }
            lines.push(Line::Journal(value));
        }
        let machine = RecordedMachine {
            base_page_bytes: sizes.map_or(0, |sizes: PageSizes| sizes.base.get()),
            huge_page_bytes: sizes.map_or(0, |sizes| sizes.huge.get()),
            ..RecordedMachine::default()
        };
        let (schema, started) = (SCHEMA.to_owned(), started.unwrap_or_default());
        let mut timeline = Self::new(Head { schema, started, machine, ..Head::default() }, window);
        timeline.is_journal = true;
        lines.into_iter().for_each(|line| timeline.add(line));
        if cut > 0 {
            let cut = counted(cut as u64, "byte", "bytes");
            timeline.warnings.push(format!("the last line of {cut} was cut"));
        }
        Ok(timeline)
    }
}

/// Sizes of the pages of a round, if it has a process.
fn page_sizes(round: &JournalRound) -> Option<PageSizes> {
    match round {
        JournalRound::Tune(round) => round.rows.first().map(|row| row.seen.memory.sizes),
        JournalRound::Debloat(round) => round.rows.first().map(|row| row.seen.census.sizes),
        JournalRound::Daemon(_) => None,
    }
}
