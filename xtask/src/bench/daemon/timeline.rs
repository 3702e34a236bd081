//! The mix: programs, when they start, grow, idle and end, and when memory goes short. Pure.
//!
//! Times are shares of the whole run and sizes are shares of the memory limit, so that a short run
//! on little memory tests everything.

/// When memory goes short. No program starts or grows then, so that none exceeds the limit.
pub(super) const SHORTAGES: [(f64, f64); 2] = [(0.26, 0.40), (0.70, 0.86)];
/// Memory that the ballast wants during a shortage.
pub(super) const BALLAST: f64 = 0.46;
/// Use of the limit up to which the ballast grows. The rest is a margin for the other programs.
pub(super) const CEILING: f64 = 0.93;
/// Seconds at the start of a busy phase that do not count: memory is filled and caches are cold.
/// Longer in long runs.
const SETTLE: f64 = 8.0;
const SETTLE_SHARE: f64 = 1.0 / 60.0;
/// Length of the windows in which rates are compared, in seconds, and their number in a long run,
/// where they are longer.
const WINDOW: f64 = 5.0;
const WINDOWS: f64 = 90.0;
/// Length in seconds from which windows are the same shares of every run.
pub(super) const SCALED: f64 = 480.0;

/// Sort of a program, by which it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `hugepilot lab workload` with these words.
    Lab(&'static [&'static str]),
    /// redis, with a load generator that pauses while the program idles.
    Redis,
    /// The program of `programs/grow.rs`.
    Grow,
}

/// Program of the mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Program {
    /// Name of its processes, by which the rules of the daemon find it.
    pub(super) name: &'static str,
    /// Its part in the mix.
    pub(super) about: &'static str,
    pub(super) kind: Kind,
    /// CPU on which it runs, so that the same programs compete in each mode.
    pub(super) cpu: usize,
    pub(super) start: f64,
    pub(super) end: f64,
    /// Memory at the start, bloat included.
    pub(super) size: f64,
    /// Times at which it grows, and by how much.
    pub(super) grows: &'static [(f64, f64)],
    /// When it idles.
    pub(super) idle: Option<(f64, f64)>,
    /// Whether a rule of the daemon denies its promotion.
    pub(super) denied: bool,
}

/// Program that runs from start to end, for the fields that others share.
const PLAIN: Program = Program {
    name: "",
    about: "",
    kind: Kind::Grow,
    cpu: 0,
    start: 0.0,
    end: 1.0,
    size: 0.0,
    grows: &[],
    idle: None,
    denied: false,
};

/// All programs. Every one is busy with one thread unless it idles.
pub(super) const MIX: [Program; 10] = [
    Program {
        name: "mix-hot",
        about: "memory-bound throughout",
        kind: Kind::Lab(&["hot-set", "--hot", "{third}"]),
        size: 0.12,
        ..PLAIN
    },
    Program {
        name: "redis-server",
        about: "idles in the middle",
        kind: Kind::Redis,
        cpu: 1,
        size: 0.08,
        idle: Some((0.42, 0.56)),
        ..PLAIN
    },
    Program {
        name: "mix-grow",
        about: "grows in steps",
        kind: Kind::Grow,
        cpu: 1,
        start: 0.03,
        end: 0.95,
        size: 0.02,
        grows: &[(0.10, 0.02), (0.17, 0.02), (0.52, 0.015), (0.60, 0.015)],
        ..PLAIN
    },
    Program {
        name: "mix-batch",
        about: "starts later, ends early",
        kind: Kind::Lab(&["pointer-chase"]),
        start: 0.08,
        end: 0.50,
        size: 0.06,
        ..PLAIN
    },
    Program {
        name: "mix-bloat",
        about: "60 % bloat on advised huge pages",
        kind: Kind::Lab(&["random-access", "--bloat", "80,40"]),
        cpu: 1,
        size: 0.18,
        ..PLAIN
    },
    Program {
        name: "mix-btree",
        about: "78 % bloat on advised huge pages, starts late",
        kind: Kind::Lab(&["btree"]),
        start: 0.54,
        size: 0.09,
        ..PLAIN
    },
    Program {
        name: "mix-denied",
        about: "denied by a rule",
        kind: Kind::Lab(&["gups"]),
        cpu: 1,
        end: 0.44,
        size: 0.04,
        denied: true,
        ..PLAIN
    },
    Program {
        name: "mix-friendly",
        about: "huge pages bring nothing",
        kind: Kind::Lab(&["tlb-friendly", "--scan", "{third}"]),
        cpu: 1,
        start: 0.46,
        size: 0.04,
        ..PLAIN
    },
    Program {
        name: "mix-reference-0",
        about: "reference of CPU 0: base pages in every mode",
        cpu: 0,
        ..REFERENCE
    },
    Program {
        name: "mix-reference-1",
        about: "reference of CPU 1: base pages in every mode",
        cpu: 1,
        ..REFERENCE
    },
];

/// Program on base pages in every mode: its rate shows the speed of its CPU.
const REFERENCE: Program =
    Program { kind: Kind::Lab(&["gups", "--pages", "base"]), size: 0.015, ..PLAIN };

/// Returns the reference that runs on the CPU of `program`; `None` for a reference itself.
pub(super) fn reference_of(program: &Program) -> Option<&'static Program> {
    let is_reference = |one: &Program| one.kind == REFERENCE.kind;
    let same = |one: &&Program| is_reference(one) && one.cpu == program.cpu;
    if is_reference(program) { None } else { MIX.iter().find(same) }
}

/// Change of the mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    /// The program with this index starts.
    Start(usize),
    /// The program ends.
    End(usize),
    /// The program grows by this share of the limit.
    Grow(usize, f64),
    /// The program becomes idle.
    Idle(usize),
    /// The program becomes busy again.
    Resume(usize),
    /// The ballast starts.
    Short,
    /// The ballast frees its memory.
    Relief,
}

/// All events with their times, in order. Programs end at the end of the run by themselves.
pub(super) fn events() -> Vec<(f64, Event)> {
    let mut events = Vec::new();
    for (index, program) in MIX.iter().enumerate() {
        events.push((program.start, Event::Start(index)));
        events.extend(program.grows.iter().map(|&(at, by)| (at, Event::Grow(index, by))));
        if let Some((from, to)) = program.idle {
            events.extend([(from, Event::Idle(index)), (to, Event::Resume(index))]);
        }
        if program.end < 1.0 {
            events.push((program.end, Event::End(index)));
        }
    }
    for (from, to) in SHORTAGES {
        events.extend([(from, Event::Short), (to, Event::Relief)]);
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    events
}

/// Windows in which the rates of `program` count, in seconds of a run of `length` seconds: those
/// of one grid for all programs that lie in a busy phase, after some time to settle.
pub(super) fn windows(program: &Program, length: f64) -> Vec<(f64, f64)> {
    if length > SCALED {
        let scale = length / SCALED;
        let scaled = |(from, to)| (from * scale, to * scale);
        return windows(program, SCALED).into_iter().map(scaled).collect();
    }
    let window = WINDOW.max(length / WINDOWS);
    let settle = SETTLE.max(length * SETTLE_SHARE);
    let mut begins = vec![program.start];
    begins.extend(program.grows.iter().map(|grow| grow.0));
    begins.extend(program.idle.map(|idle| idle.1));
    let is_busy = |&(from, to): &(f64, f64)| {
        let idle = program.idle.is_some_and(|idle| from < idle.1 * length && to > idle.0 * length);
        let settles = |at: f64| from < at * length + settle && to > at * length;
        to <= program.end * length
            && from >= program.start * length
            && !idle
            && !begins.iter().any(|&at| settles(at))
    };
    let count = (length / window).floor() as u32;
    let grid = (0..count).map(|index| (f64::from(index) * window, f64::from(index + 1) * window));
    grid.filter(is_busy).collect()
}

/// Whether a window of seconds lies in a shortage.
pub(super) fn is_short(window: (f64, f64), length: f64) -> bool {
    let middle = f64::midpoint(window.0, window.1) / length;
    SHORTAGES.iter().any(|&(from, to)| (from..to).contains(&middle))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of all programs at a time.
    fn used(at: f64) -> f64 {
        let size = |program: &Program| {
            let grown: f64 =
                program.grows.iter().filter(|grow| grow.0 <= at).map(|grow| grow.1).sum();
            program.size + grown
        };
        MIX.iter().filter(|one| (one.start..one.end).contains(&at)).map(size).sum()
    }

    #[test]
    fn memory_suffices_between_shortages_and_not_in_them() {
        for (at, _) in events().into_iter().filter(|event| event.0 < 1.0) {
            assert!(used(at) < 0.64, "{at}: {}; above 65 % the daemon promotes nothing", used(at));
        }
        for (from, _) in SHORTAGES {
            assert!(used(from) + BALLAST > CEILING + 0.05, "{}", used(from));
        }
    }

    #[test]
    fn nothing_starts_or_grows_while_memory_is_short() {
        let inside = |at: f64| SHORTAGES.iter().any(|&(from, to)| (from..=to).contains(&at));
        for (at, event) in events() {
            let needs = matches!(event, Event::Start(_) | Event::Grow(..) | Event::Resume(_));
            assert!(!(needs && inside(at)), "{at}: {event:?}");
        }
    }

    #[test]
    fn every_kind_of_change_comes_in_order() {
        let events = events();
        assert!(events.is_sorted_by(|a, b| a.0 <= b.0));
        let count =
            |wanted: fn(&Event) -> bool| events.iter().filter(|(_, event)| wanted(event)).count();
        assert_eq!(count(|event| matches!(event, Event::Start(_))), MIX.len());
        assert_eq!(count(|event| matches!(event, Event::Short)), 2);
        assert_eq!(count(|event| matches!(event, Event::Relief)), 2);
        assert_eq!(count(|event| matches!(event, Event::Idle(_))), 1);
        assert_eq!(count(|event| matches!(event, Event::Grow(..))), 4);
        assert!(events.iter().all(|(at, _)| (0.0..1.0).contains(at)));
    }

    #[test]
    fn names_are_those_of_processes_and_one_is_denied() {
        let mut names: Vec<_> = MIX.iter().map(|program| program.name).collect();
        assert!(names.iter().all(|name| name.len() <= 15), "the kernel truncates names");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MIX.len());
        assert_eq!(MIX.iter().filter(|program| program.denied).count(), 1);
    }

    #[test]
    fn every_program_has_a_reference_on_its_cpu_that_runs_throughout() {
        let [of_hot, of_redis] = [0, 1].map(|index| reference_of(&MIX[index]).unwrap());
        assert_eq!((of_hot.name, of_redis.name), ("mix-reference-0", "mix-reference-1"));
        for program in &MIX {
            let Some(reference) = reference_of(program) else { continue };
            assert_eq!((reference.cpu, reference.start), (program.cpu, 0.0));
            assert_eq!((reference.end, reference_of(reference)), (1.0, None));
        }
        assert_eq!(MIX.iter().filter(|program| reference_of(program).is_none()).count(), 2);
    }

    #[test]
    fn windows_lie_in_busy_phases_of_one_grid() {
        for length in [180.0, 1800.0] {
            for program in &MIX {
                let windows = windows(program, length);
                assert!(windows.len() >= 5, "{} has {} windows", program.name, windows.len());
                assert!(windows.iter().any(|&window| is_short(window, length)), "{}", program.name);
            }
        }
        assert_eq!((WINDOW * WINDOWS).max(SETTLE / SETTLE_SHARE), SCALED);
        let redis = windows(&MIX[1], 1000.0);
        let window = 1000.0 / 90.0;
        assert!(redis.iter().all(|&(from, to)| (to - from - window).abs() < 1e-9));
        assert!(redis[0].0 >= 1000.0 / 60.0, "it settles");
        assert!(!redis.iter().any(|&(from, to)| from < 560.0 + 1000.0 / 60.0 && to > 420.0));
        assert_eq!(redis.len(), 88 - 15, "{redis:?}");
        let grow = windows(&MIX[2], 1000.0);
        assert!(!grow.iter().any(|&(from, to)| from < 600.0 + 1000.0 / 60.0 && to > 600.0));
    }
}
