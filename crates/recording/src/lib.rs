//! Recordings: the format of their files, and documents of them: from lines to tracks, measures and
//! sections; profiles for other tools. Pure: it reads and writes streams that its callers open.

#![forbid(unsafe_code)]

mod areas;
mod census;
mod code;
mod comparison;
mod format;
mod heat;
mod journal;
mod measures;
mod memory;
mod multiplexing;
mod phases;
pub mod profile;
mod rounds;
mod sections;
mod signatures;
mod stack_events;
mod text;
mod thread_stalls;
mod timeline;
mod track;

pub(crate) use code::frame_name;
pub use code::{CodeTrack, Stack};
pub use comparison::comparison_report;
pub use format::*;
pub use sections::recording_report;
pub use signatures::signatures_section;
pub use stack_events::{StackEvent, StackEvents};
pub use text::record_text;
pub use timeline::{ProcessTrack, Timeline, Window};
pub use track::{Slot, Track};

use hugepilot_record::Sentence;
