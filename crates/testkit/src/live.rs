//! Journal of live runs.

/// First rounds of `hugepilot tune --policy heat`, `pcc` and `hawkeye`, each with `--journal`, on
/// `hugepilot lab workload hot-set --size 64MiB --hot 16MiB`: Linux 6.18, AMD EPYC. The path of the
/// program is replaced, and the header and next states of the first version are of this one.
pub const LIVE_JOURNAL: &str = include_str!("../testdata/live.ndjson");
