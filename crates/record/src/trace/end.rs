//! End block: the number of accesses, since version 3 the warnings, and since version 4 the number
//! of folded accesses.
//!
//! A warning is three numbers: its kind and two facts, 0 where it has fewer.

use super::TraceWarning;
use super::block::{Rest, put};

/// Most warnings of a trace.
const MAX_WARNINGS: u64 = 64;
/// Last signal of Linux.
const MAX_SIGNAL: i32 = 64;

/// Appends the contents of the block.
pub(super) fn put_end(raw: &mut Vec<u8>, accesses: u64, folded: u64, warnings: &[TraceWarning]) {
    put(raw, accesses);
    let all: Vec<[u64; 3]> = warnings.iter().filter_map(numbers).collect();
    put(raw, all.len() as u64);
    all.iter().flatten().for_each(|&number| put(raw, number));
    put(raw, folded);
}

/// Takes the warnings.
pub(super) fn warnings(rest: &mut Rest<'_>) -> Result<Vec<TraceWarning>, String> {
    let count = rest.number("the number of warnings", MAX_WARNINGS)?;
    let warning = |_| {
        let mut number = || rest.number("a warning", u64::MAX);
        let [kind, first, second] = [number()?, number()?, number()?];
        of_numbers(kind, first, second)
            .ok_or_else(|| format!("unknown warning {kind} {first} {second}"))
    };
    (0..count).map(warning).collect()
}

/// Returns the numbers of a warning; `None` for that of a trace without accesses, which shows it,
/// and for that of a simulation.
fn numbers(warning: &TraceWarning) -> Option<[u64; 3]> {
    let of_code = |code: i32| u64::from(code.cast_unsigned());
    Some(match *warning {
        TraceWarning::Forked { children } => [0, children, 0],
        TraceWarning::Lost { accesses } => [1, accesses, 0],
        TraceWarning::Replaced => [2, 0, 0],
        TraceWarning::Failed { status } => [3, of_code(status), 0],
        TraceWarning::Killed { signal } => [4, of_code(signal), 0],
        TraceWarning::Cut => [5, 0, 0],
        TraceWarning::Skipped { accesses } => [6, accesses, 0],
        TraceWarning::Windowed { accesses, of_accesses } => [7, accesses, of_accesses],
        TraceWarning::MaxAccesses => [8, 0, 0],
        TraceWarning::MaxBytes => [9, 0, 0],
        TraceWarning::Interrupted => [10, 0, 0],
        TraceWarning::Phases => [11, 0, 0],
        TraceWarning::Empty { .. } | TraceWarning::TooManyMappings { .. } => return None,
    })
}

/// Returns the warning with these numbers; `None` if no writer makes them.
fn of_numbers(kind: u64, first: u64, second: u64) -> Option<TraceWarning> {
    let code = |number: u64| u32::try_from(number).ok().map(u32::cast_signed);
    let warning = match kind {
        0 => TraceWarning::Forked { children: first },
        1 => TraceWarning::Lost { accesses: first },
        2 => TraceWarning::Replaced,
        3 => TraceWarning::Failed { status: code(first)? },
        4 => TraceWarning::Killed { signal: code(first)? },
        5 => TraceWarning::Cut,
        6 => TraceWarning::Skipped { accesses: first },
        7 => TraceWarning::Windowed { accesses: first, of_accesses: second },
        8 => TraceWarning::MaxAccesses,
        9 => TraceWarning::MaxBytes,
        10 => TraceWarning::Interrupted,
        11 => TraceWarning::Phases,
        _ => return None,
    };
    (numbers(&warning) == Some([kind, first, second]) && is_sound(&warning)).then_some(warning)
}

/// Whether the facts of a warning are possible.
fn is_sound(warning: &TraceWarning) -> bool {
    match *warning {
        TraceWarning::Forked { children: count }
        | TraceWarning::Lost { accesses: count }
        | TraceWarning::Skipped { accesses: count } => count > 0,
        TraceWarning::Failed { status } => (1..=255).contains(&status),
        TraceWarning::Killed { signal } => (1..=MAX_SIGNAL).contains(&signal),
        TraceWarning::Windowed { accesses, of_accesses } => (1..of_accesses).contains(&accesses),
        _ => true,
    }
}
