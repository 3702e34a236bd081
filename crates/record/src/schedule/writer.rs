//! Writer of schedules.

use std::io::{self, Write};

use serde::Serialize;

use super::{Schedule, ScheduleEvent};

impl Schedule {
    /// Writes the schedule. Each line is one write, so a file deserves a buffer.
    ///
    /// # Errors
    /// `file` cannot be written.
    pub fn write(&self, mut file: impl Write) -> io::Result<()> {
        write_line(&mut file, &self.header)?;
        for event in &self.events {
            let Some(mapping) = self.mappings.get(event.mapping as usize) else { continue };
            let (at, action, index) = (event.at, event.action, event.index);
            let mapping = mapping.clone();
            write_line(&mut file, &ScheduleEvent { at, action, mapping, index })?;
        }
        file.flush()
    }
}

fn write_line(file: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}
