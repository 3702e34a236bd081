//! Bytes that `read` returns for counters, by the `read_format` of perf_event_open(2).

use hugepilot_events::EventReading;
use hugepilot_record::GroupTime;
use perf_event_open_sys::bindings as sys;

/// Layout of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Number of events, time enabled, time running, and the value of each event.
    Group,
    /// Value, time enabled, time running of one event: for kernels that give inherited groups no
    /// common read.
    Single,
}

const WORD: usize = size_of::<u64>();

impl Layout {
    /// Returns `read_format`.
    pub(super) const fn read_format(self) -> u64 {
        let times =
            (sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;
        match self {
            Self::Group => times | sys::PERF_FORMAT_GROUP as u64,
            Self::Single => times,
        }
    }

    /// Returns the bytes of a read of `events`, and one word more, so that a longer read shows.
    pub(super) const fn bytes(self, events: usize) -> usize {
        match self {
            Self::Group => (3 + events + 1) * WORD,
            Self::Single => 4 * WORD,
        }
    }
}

/// Parses a read of `events`; `None` if it is not one, as of a thread whose group has another
/// number of events.
pub(super) fn parse(layout: Layout, events: usize, bytes: &[u8]) -> Option<Vec<EventReading>> {
    let (words, rest) = bytes.as_chunks::<WORD>();
    if !rest.is_empty() {
        return None;
    }
    let words: Vec<u64> = words.iter().map(|&word| u64::from_ne_bytes(word)).collect();
    let time = |enabled_ns, running_ns| GroupTime { enabled_ns, running_ns };
    match (layout, &words[..]) {
        (Layout::Group, &[count, enabled, running, ref values @ ..]) => {
            let fits = usize::try_from(count) == Ok(events) && values.len() == events;
            let read =
                values.iter().map(|&value| EventReading { value, time: time(enabled, running) });
            fits.then(|| read.collect())
        }
        (Layout::Single, &[value, enabled, running]) if events == 1 => {
            Some(vec![EventReading { value, time: time(enabled, running) }])
        }
        _ => None,
    }
}
