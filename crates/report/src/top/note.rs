//! The answer about a process, or why something about it is unknown.

use hugepilot_record::top::TopNote;
use hugepilot_record::{Answer, SkipReason};

use crate::sentence::Sentence;
use crate::table::counted;

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

impl Sentence for TopNote {
    fn text(&self) -> String {
        match self {
            Self::NoPermission => "the process may not be read".to_owned(),
            Self::TooSmall => "it has less resident memory than a huge page".to_owned(),
            Self::Idle => "it uses too little CPU time to be sampled".to_owned(),
            Self::NotRead => "the CPU budget did not yet suffice to read its pages".to_owned(),
            Self::NotMeasured => "its CPU use is known from the second reading on".to_owned(),
            Self::Waiting => "other processes are sampled first".to_owned(),
            Self::FewSamples { samples } => {
                let samples = counted(*samples, "sample is", "samples are");
                format!("{samples} too few for a share of stalls")
            }
            Self::NotSampled { error } => format!("it cannot be sampled: {error}"),
        }
    }
    fn help(&self) -> Vec<String> {
        match self {
            Self::NotSampled { .. } => vec!["test the samplers: hugepilot doctor".to_owned()],
            _ => Vec::new(),
        }
    }
}
