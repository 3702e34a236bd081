//! Journal of live runs.

/// First rounds of `hugepilot tune --policy heat`, `pcc` and `hawkeye`, each with `--journal`, on
/// `hugepilot lab workload hot-set --size 64MiB --hot 16MiB`: Linux 6.18, AMD EPYC. The path of the
/// program and a former name of the reason `file` are replaced, all else is as the run wrote it.
pub const LIVE_JOURNAL: &str = include_str!("../testdata/live.ndjson");
