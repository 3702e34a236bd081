//! Recordings: from lines to tracks, measures, and a report.

mod areas;
mod census;
mod code;
mod comparison;
mod heat;
mod journal;
mod measures;
mod memory;
mod multiplexing;
mod phases;
mod rounds;
mod sections;
mod signatures;
mod stack_events;
mod thread_stalls;
mod timeline;
mod track;

pub(crate) use code::frame_name;
pub use code::{CodeTrack, Stack};
pub use comparison::comparison_report;
pub use sections::recording_report;
pub use signatures::signatures_section;
pub use stack_events::{StackEvent, StackEvents};
pub use timeline::{ProcessTrack, Timeline, Window};
pub use track::{Slot, Track};
