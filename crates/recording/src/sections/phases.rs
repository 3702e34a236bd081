//! Tables of phases: those that the recording names, those between rounds that changed pages, and
//! those that change points show.

use hugepilot_render::model::{Cell, Section, Table, Unit};

use super::more_rows;
use crate::measures::Measure;
use crate::memory::Memory;
use crate::phases::phases;
use crate::rounds::RoundRow;
use crate::timeline::{ProcessTrack, Timeline, column};
use crate::track::Track;

/// Rows of a table at most.
const MAX_ROWS: usize = 200;
/// Cause of a value that is missing.
const NO_SLICE: &str = "no slice with a value ends in the phase";

/// A phase, in seconds since the start of the recording.
struct Phase {
    name: String,
    from: f64,
    to: f64,
}

/// Tables of the phases of a process, with its use of the machine in each.
pub(super) fn section(
    timeline: &Timeline,
    process: &ProcessTrack,
    measures: &[Measure],
    title: String,
) -> Section {
    let mut section = Section::new(title, "");
    if process.track.slots().is_empty() {
        return section;
    }
    let named = named(timeline, process);
    let (found, basis) = found(process, measures);
    let by = format!("Phases by change points of {}", basis.join(", "));
    let changed = between_rounds(timeline, process);
    let tables = [
        ("Phases that the recording names", named),
        ("Phases between rounds that changed pages", changed),
        (&by, found),
    ];
    for (title, phases) in tables {
        if phases.is_empty() {
            continue;
        }
        section.blocks.push(table(timeline, process, title, &phases).into());
        section = section.with_all(more_rows(phases.len(), MAX_ROWS));
    }
    if !section.blocks.is_empty() {
        "A phase has the slices that end in it. Faults are counts; the huge share is that of the \
         resident memory at its end."
            .clone_into(&mut section.text);
    }
    section
}

/// Phases that the recording names.
fn named(timeline: &Timeline, process: &ProcessTrack) -> Vec<Phase> {
    let begins = timeline.phases.iter();
    let begins = begins.map(|phase| (phase.name.clone(), timeline.seconds(phase.time)));
    in_turn(timeline, process, begins.collect(), "(before the first phase)")
}

/// Phases between the rounds that changed pages of a process. Each begins with a decision, and has
/// the change.
fn between_rounds(timeline: &Timeline, process: &ProcessTrack) -> Vec<Phase> {
    let is_own = |row: &&RoundRow| {
        let ticks = process.start_ticks;
        row.id.pid == process.pid && (ticks == 0 || row.id.start_ticks == ticks)
    };
    let rows = timeline.rounds.rows.iter().filter(is_own);
    let changes = rows.filter_map(|row| Some((row.change()?, timeline.seconds(row.decided))));
    in_turn(timeline, process, changes.collect(), "(before the first change)")
}

/// Phases with these names and begins, in the window. Each ends where the next begins. `first`:
/// name of the slices before.
fn in_turn(
    timeline: &Timeline,
    process: &ProcessTrack,
    begins: Vec<(String, f64)>,
    first: &str,
) -> Vec<Phase> {
    let times: Vec<f64> = begins.iter().map(|&(_, time)| time).collect();
    let ends = times.iter().skip(1).copied().chain([timeline.duration]);
    let phases = begins.into_iter().zip(ends);
    let phases = phases.map(|((name, from), to)| Phase { name, from, to });
    let before = times.first().map(|&to| Phase { name: first.to_owned(), from: 0.0, to });
    let before = before.filter(|phase| !range(&process.track, phase).is_empty());
    let window = timeline.window;
    let (first, last) = (window.from.unwrap_or(f64::MIN), window.to.unwrap_or(f64::MAX));
    before
        .into_iter()
        .chain(phases)
        .filter(|phase| phase.from < last && phase.to > first)
        .map(|phase| Phase { from: phase.from.max(first), to: phase.to.min(last), ..phase })
        .collect()
}

/// Phases by change points, numbered, and the measures that decided.
fn found(process: &ProcessTrack, measures: &[Measure]) -> (Vec<Phase>, Vec<String>) {
    let (found, basis) = phases(process, measures);
    let slots = process.track.slots();
    // Exactly the end of the phase before: a slice is of one phase.
    let begin = |slot: usize| match slot.checked_sub(1) {
        Some(before) => slots[before].end,
        None => (slots[0].end - slots[0].length).max(0.0),
    };
    let phases = found.iter().zip(1..).map(|(phase, number)| Phase {
        name: number.to_string(),
        from: begin(phase.first),
        to: slots[phase.end - 1].end,
    });
    (phases.collect(), basis)
}

fn table(timeline: &Timeline, process: &ProcessTrack, title: &str, phases: &[Phase]) -> Table {
    let columns = ["phase", "from", "took", "CPU use", "stall share", "huge share", "faults"];
    let mut table = Table::new(title, columns);
    let has_ipc = ["instructions", "cycles"].iter().all(|name| {
        column(&timeline.head, name)
            .is_some_and(|at| process.track.column(at).iter().any(|value| value.is_finite()))
    });
    if has_ipc {
        table.columns.push("IPC".to_owned());
    }
    let memory = Memory::of(timeline, process);
    for phase in phases.iter().take(MAX_ROWS) {
        let sum = |names: &[&str]| {
            let columns = names.iter().filter_map(|name| column(&timeline.head, name));
            columns.filter_map(|at| sum(&process.track, at, phase)).reduce(|a, b| a + b)
        };
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
        let cpu_seconds = sum(&["user_time", "system_time"]).map(|nanos| nanos * 1e-9);
        let seconds = column(&timeline.head, "user_time")
            .and_then(|column| seconds(&process.track, column, phase));
        let stalls = |column| self::sum(&process.stalls, column, phase);
        let no_samples = timeline.head.sampler_missing.as_deref().unwrap_or("no samples");
        let mut row = vec![
            phase.name.clone().into(),
            Cell::seconds(phase.from),
            Cell::seconds(phase.to - phase.from),
            Cell::of(ratio(cpu_seconds, seconds), Unit::Ratio, NO_SLICE),
            Cell::of(ratio(stalls(2), stalls(0)), Unit::Ratio, no_samples),
            Cell::of(memory.huge_ratio(phase.to), Unit::Ratio, "no pages were read"),
            Cell::of(sum(&["minor_faults", "major_faults"]), Unit::Count, NO_SLICE),
        ];
        if has_ipc {
            let ipc = ratio(sum(&["instructions"]), sum(&["cycles"]));
            row.push(Cell::of(ipc, Unit::Number, NO_SLICE));
        }
        table.row(row);
    }
    table
}

/// Slices that end in a phase. One that ends when the next begins is of this one.
fn range(track: &Track, phase: &Phase) -> std::ops::Range<usize> {
    let before = |time: f64| track.slots().partition_point(|slot| slot.end <= time);
    let first = before(phase.from);
    first..before(phase.to).max(first)
}

/// Seconds of the slices of a phase that have a value.
fn seconds(track: &Track, column: usize, phase: &Phase) -> Option<f64> {
    let range = range(track, phase);
    let measured = range.filter(|&at| track.column(column)[at].is_finite());
    measured.map(|at| track.span(column, at)).reduce(|a, b| a + b)
}

/// Sum of a counter over a phase; `None` without any value.
fn sum(track: &Track, column: usize, phase: &Phase) -> Option<f64> {
    let values = track.column(column)[range(track, phase)].iter().copied();
    values.filter(|value| value.is_finite()).reduce(|a, b| a + b)
}
