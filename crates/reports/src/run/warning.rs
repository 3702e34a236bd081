//! Warnings of `run` and `compare`.

use hugepilot_record::sentence::{Sentence, counted};
use hugepilot_record::{Stop, raise_pool_limit};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mode;
use crate::pool::PoolShortfall;
use crate::settings::SettingWarning;

/// Warning of `run` and `compare`. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum RunWarning {
    /// The user's value of a variable was kept.
    #[text("{name}={value} is set by the user; it was kept")]
    VariableKept {
        /// Name.
        name: String,
        /// Value, control characters escaped.
        value: String,
    },
    /// The user's value of a glibc tunable was kept.
    #[text("{tunable} in GLIBC_TUNABLES is set by the user; it was kept")]
    TunableKept {
        /// Tunable as `name=value`, control characters escaped.
        tunable: String,
    },
    /// The loader may have removed variables of the user from hugepilot.
    #[text(
        "the loader removes LD_PRELOAD, LD_LIBRARY_PATH and GLIBC_TUNABLES from hugepilot (file \
         capabilities, set-user-ID); the program did not get them"
    )]
    #[help("set them after the --, as in -- env NAME=value CMD")]
    LoaderVariablesRemoved,
    /// A process of the program was killed by SIGBUS on pages of a hugetlb pool.
    #[text("SIGBUS killed a process of the program{}", sigbus(limit.as_deref()))]
    #[help(all = sigbus_help(limit.as_deref()))]
    KilledBySigbus {
        /// File of a limit of the cgroup on pool pages; `None` without a limit.
        #[serde(default)]
        limit: Option<String>,
    },
    /// A process with pages of a hugetlb pool started others.
    #[text("{process} had hugetlb pages and started other processes; {FORK}")]
    #[help(all = sigbus_help(None))]
    ForkOnPool {
        /// Name of the process, control characters escaped.
        process: String,
    },
    /// The hugetlb pool has fewer free pages than requested.
    #[text(of = a)]
    PoolTooSmall(PoolShortage),
    /// A run was stopped for a while; it was discarded and repeated.
    #[text("a run was stopped for a while; it was discarded and repeated")]
    RunRepeated,
    /// The repeated run was stopped, too.
    #[text("the repeated run was stopped, too; its wall time includes the stop")]
    RunStopped,
    /// The program left processes running; hugepilot ended them.
    #[text("the program left processes running; hugepilot ended them")]
    ProcessesEnded,
    /// Runs failed; their rounds do not count.
    #[text(
        "{failed_runs} of {} failed; a round with a failed run does not count",
        counted(u64::from(*runs), "run", "runs")
    )]
    RunsFailed {
        /// Failed runs.
        failed_runs: u32,
        /// All runs.
        runs: u32,
    },
    /// Promotion from outside reached less than half of the memory.
    #[text("{}", reached_little(a))]
    #[help("--pages hugepilot, or glibc-thp: the allocator advises memory before its first touch")]
    #[help("give the program more work, so that it runs longer")]
    ReachedLittle(PartialReach),
    /// A kernel setting that this command, or a killed one, changed.
    #[serde(untagged)]
    #[text(of = a)]
    Setting(SettingWarning),
}

/// Memory that promotion from outside reached, the least of the runs with this warning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartialReach {
    /// Peak of anonymous memory on transparent huge pages.
    pub reached_bytes: Bytes,
    /// Peak of the resident set.
    pub memory_bytes: Bytes,
    /// Regions that hugepilot promoted.
    pub promoted_regions: u64,
    /// Time that hugepilot spent on promotion.
    pub promotion_seconds: f64,
    /// Time of the run.
    pub wall_seconds: f64,
    /// Cause of the last early end of a promotion; `null` if all ended by themselves.
    pub stopped: Option<Stop>,
}

/// Hugetlb pool with fewer free pages than requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolShortage {
    /// Page size of the pool.
    pub page_bytes: Bytes,
    /// Requested free pages.
    pub requested: u64,
    /// Causes.
    pub causes: Vec<PoolShortfall>,
}

/// Warning of `compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareWarning {
    /// Mode; `null` if the warning is not about one.
    pub mode: Option<Mode>,
    /// Warning.
    #[serde(flatten)]
    pub warning: RunWarning,
}

impl Sentence for CompareWarning {
    fn text(&self) -> String {
        let text = self.warning.text();
        self.mode.map_or_else(|| text.clone(), |mode| format!("{mode}: {text}"))
    }
    fn help(&self) -> Vec<String> {
        self.warning.help()
    }
}

impl Sentence for PoolShortage {
    fn text(&self) -> String {
        let Self { page_bytes, requested, causes } = self;
        let causes: Vec<String> = causes.iter().map(Sentence::text).collect();
        let causes = causes.join("; ");
        format!("the pool has fewer than {requested} free pages of {page_bytes}: {causes}")
    }
}

/// Why SIGBUS killed a process on pages of a pool.
fn sigbus(limit: Option<&str>) -> String {
    match limit {
        None => format!("; {FORK}"),
        Some(file) => format!(
            ": a touch beyond the limit of the cgroup on pool pages ({file}), or a write after fork"
        ),
    }
}

/// Help against that.
fn sigbus_help(limit: Option<&str>) -> Vec<String> {
    let pool = limit.map_or_else(|| "a larger pool: --pool AMOUNT".to_owned(), raise_pool_limit);
    vec![pool, "--pages thp".to_owned()]
}

const FORK: &str = "a child made by fork that writes to hugetlb pages of its parent takes free \
                    pool pages, and SIGBUS kills it if there are none";

/// The sentence for a mode that promotes from outside and reached little.
fn reached_little(reach: &PartialReach) -> String {
    let PartialReach { reached_bytes, memory_bytes, wall_seconds, promotion_seconds, .. } = reach;
    let regions = counted(reach.promoted_regions, "region", "regions");
    let cause = match (reach.stopped, reach.promoted_regions) {
        (Some(stop), _) => format!("promotion stopped: {stop}"),
        (None, 0) => "no region may be promoted, or none was in time".to_owned(),
        (None, _) => "hugepilot promotes memory only after its first touch".to_owned(),
    };
    format!(
        "only {reached_bytes} of {memory_bytes} were on huge pages: {cause}; {regions} took \
         {promotion_seconds:.1} s of a run of {wall_seconds:.1} s"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_read_back_what_they_write() {
        let setting = SettingWarning::SettingChangedSince {
            name: "a".to_owned(),
            set_to: "1".to_owned(),
            before: "2".to_owned(),
            now: "3".to_owned(),
        };
        let warnings = [
            (RunWarning::Setting(setting), "setting_changed_since"),
            (RunWarning::RunsFailed { failed_runs: 1, runs: 2 }, "runs_failed"),
            (RunWarning::KilledBySigbus { limit: None }, "killed_by_sigbus"),
        ];
        for (warning, code) in warnings {
            let warning = CompareWarning { mode: Some(Mode::Thp), warning };
            let json = serde_json::to_value(&warning).unwrap();
            assert_eq!((&json["code"], &json["mode"]), (&code.into(), &"thp".into()));
            assert_eq!(serde_json::from_value::<CompareWarning>(json).unwrap(), warning);
        }
    }

    #[test]
    fn warnings_of_a_mode_name_it() {
        let warning = RunWarning::RunsFailed { failed_runs: 2, runs: 5 };
        let of = |mode| CompareWarning { mode, warning: warning.clone() }.text();
        let failed = "2 of 5 runs failed; a round with a failed run does not count";
        assert_eq!(of(Some(Mode::Thp)), format!("thp: {failed}"));
        assert_eq!(of(None), failed);
    }

    #[test]
    fn a_mode_that_reached_little_says_what_it_reached_and_why() {
        let reach = PartialReach {
            reached_bytes: Bytes::mib(28),
            memory_bytes: Bytes::mib(601),
            promoted_regions: 14,
            promotion_seconds: 1.24,
            wall_seconds: 3.36,
            stopped: None,
        };
        let warning = RunWarning::ReachedLittle(reach.clone());
        assert_eq!(
            warning.text(),
            "only 28MiB of 601MiB were on huge pages: hugepilot promotes memory only after its \
             first touch; 14 regions took 1.2 s of a run of 3.4 s"
        );
        assert!(warning.help()[0].starts_with("--pages hugepilot"), "{:?}", warning.help());
        let stopped = Some(Stop::MemoryPressure);
        let text = RunWarning::ReachedLittle(PartialReach { stopped, ..reach }).text();
        assert!(text.contains(": promotion stopped: "), "{text}");
    }
}
