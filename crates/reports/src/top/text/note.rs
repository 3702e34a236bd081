//! The answer about a process, or why something about it is unknown.

use hugepilot_record::{Answer, SkipReason};
use hugepilot_render::table::counted;

use crate::top::TopNote;

/// The answer, with what blocks huge pages.
pub(super) fn answered(answer: Answer, blocked_by: Option<SkipReason>) -> String {
    blocked_by.map_or_else(|| answer.to_string(), |reason| format!("{answer}: {reason}"))
}

/// A note in few words.
pub(super) fn short(note: &TopNote) -> String {
    match note {
        TopNote::NoPermission => "no permission".to_owned(),
        TopNote::TooSmall => "below a huge page".to_owned(),
        TopNote::Idle => "idle".to_owned(),
        TopNote::NotRead => "not read yet".to_owned(),
        TopNote::NotMeasured => "not measured yet".to_owned(),
        TopNote::Waiting => "others are sampled".to_owned(),
        TopNote::FewSamples { samples } => counted(*samples, "sample", "samples"),
        TopNote::NotSampled { error } => format!("not sampled: {error}"),
    }
}
