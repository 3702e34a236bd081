//! Plot of the stalls of threads.

use hugepilot_record::Tid;

use super::marks;
use super::process::MAX_LINES;
use crate::model::{Chart, Plot, TimeLine, TimePlot, Unit};
use crate::recording::timeline::{ProcessTrack, Timeline};

/// Share of stalls of each thread over time; `None` for a process with one thread.
pub(super) fn plot(timeline: &Timeline, process: &ProcessTrack) -> Option<Plot> {
    let (times_seconds, shares) = process.thread_stalls.shares(MAX_LINES);
    let name = |tid: Tid| match process.threads.get(&tid) {
        Some((name, _)) if !name.is_empty() => format!("{name} ({})", tid.0),
        _ => format!("thread {}", tid.0),
    };
    let line = |(tid, values)| TimeLine { name: name(tid), values };
    let lines: Vec<TimeLine> = shares.into_iter().map(line).collect();
    let marks = marks(timeline);
    (!lines.is_empty()).then(|| Plot {
        title: "Stall share by thread".to_owned(),
        text: "Samples at scattered accesses as a share of all samples of the thread, of the \
               threads with the most samples."
            .to_owned(),
        chart: Chart::Time(TimePlot {
            unit: Unit::Ratio,
            stacked: false,
            times_seconds,
            lines,
            marks,
        }),
    })
}
