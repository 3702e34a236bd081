//! Generic names of events, as perf has them. Source: perf-list(1), `linux/perf_event.h`.

use super::code::{CACHE, EventCode, HARDWARE, SOFTWARE};
use super::design::plain;

/// Names, `perf_event_attr.type` and `config`.
const NAMES: &[(&str, u32, u64)] = &[
    ("cycles", HARDWARE, 0),
    ("cpu-cycles", HARDWARE, 0),
    ("instructions", HARDWARE, 1),
    ("cache-references", HARDWARE, 2),
    ("cache-misses", HARDWARE, 3),
    ("branches", HARDWARE, 4),
    ("branch-instructions", HARDWARE, 4),
    ("branch-misses", HARDWARE, 5),
    ("bus-cycles", HARDWARE, 6),
    ("stalled-cycles-frontend", HARDWARE, 7),
    ("stalled-cycles-backend", HARDWARE, 8),
    ("ref-cycles", HARDWARE, 9),
    ("cpu-clock", SOFTWARE, 0),
    ("task-clock", SOFTWARE, 1),
    ("page-faults", SOFTWARE, 2),
    ("faults", SOFTWARE, 2),
    ("context-switches", SOFTWARE, 3),
    ("cs", SOFTWARE, 3),
    ("cpu-migrations", SOFTWARE, 4),
    ("migrations", SOFTWARE, 4),
    ("minor-faults", SOFTWARE, 5),
    ("major-faults", SOFTWARE, 6),
    ("alignment-faults", SOFTWARE, 7),
    ("emulation-faults", SOFTWARE, 8),
    ("cgroup-switches", SOFTWARE, 11),
];

/// Caches in the order of their numbers.
const CACHES: [&str; 7] = ["l1_dcache", "l1_icache", "llc", "dtlb", "itlb", "branch", "node"];
/// Accesses and misses of the operations, in the order of their numbers.
const OPERATIONS: [(&str, &str); 3] =
    [("loads", "load_misses"), ("stores", "store_misses"), ("prefetches", "prefetch_misses")];

/// Returns the names.
pub(super) fn names() -> Vec<String> {
    let caches = CACHES.iter().flat_map(|cache| {
        let names = OPERATIONS.iter().flat_map(|&(access, miss)| [access, miss]);
        names.map(move |operation| format!("{cache}_{operation}"))
    });
    NAMES.iter().map(|&(name, ..)| name.to_owned()).chain(caches).collect()
}

/// Returns the code of a generic name.
pub(super) fn code(name: &str) -> Option<EventCode> {
    let name = plain(name);
    let fixed = |kind, config| EventCode::Fixed { kind, config, config1: 0 };
    let found = NAMES.iter().find(|(known, ..)| plain(known) == name);
    if let Some(&(_, kind, config)) = found {
        return Some(fixed(kind, config));
    }
    let (cache, operation) = (0_u64..)
        .zip(CACHES)
        .find_map(|(number, cache)| Some((number, name.strip_prefix(cache)?.strip_prefix('_')?)))?;
    (0_u64..).zip(OPERATIONS).find_map(|(number, (access, miss))| {
        let result = [access, miss].iter().position(|&known| known == operation)? as u64;
        Some(fixed(CACHE, cache | number << 8 | result << 16))
    })
}
