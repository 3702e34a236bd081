//! Sentences for the warnings of `run` and `compare`.

use hugepilot_record::run::{CompareWarning, PartialReach, PoolShortage, RunWarning};

use crate::Sentence;
use crate::table::counted;

impl Sentence for CompareWarning {
    fn text(&self) -> String {
        let text = self.warning.text();
        self.mode.map_or_else(|| text.clone(), |mode| format!("{mode}: {text}"))
    }
    fn help(&self) -> Vec<String> {
        self.warning.help()
    }
}

impl Sentence for RunWarning {
    fn text(&self) -> String {
        match self {
            Self::VariableKept { name, value } => {
                format!("{name}={value} is set by the user; it was kept")
            }
            Self::TunableKept { tunable } => {
                format!("{tunable} in GLIBC_TUNABLES is set by the user; it was kept")
            }
            Self::LoaderVariablesRemoved => {
                "the loader removes LD_PRELOAD, LD_LIBRARY_PATH and GLIBC_TUNABLES from hugepilot \
                 (file capabilities, set-user-ID); the program did not get them"
                    .to_owned()
            }
            Self::KilledBySigbus { limit: None } => {
                format!("SIGBUS killed a process of the program; {FORK}")
            }
            Self::KilledBySigbus { limit: Some(file) } => format!(
                "SIGBUS killed a process of the program: a touch beyond the limit of the cgroup on \
                 pool pages ({file}), or a write after fork"
            ),
            Self::ForkOnPool { process } => {
                format!("{process} had hugetlb pages and started other processes; {FORK}")
            }
            Self::PoolTooSmall(PoolShortage { page_bytes, requested, causes }) => {
                let causes: Vec<String> = causes.iter().map(Sentence::text).collect();
                let causes = causes.join("; ");
                format!("the pool has fewer than {requested} free pages of {page_bytes}: {causes}")
            }
            Self::Setting(warning) => warning.text(),
            Self::RunRepeated => {
                "a run was stopped for a while; it was discarded and repeated".to_owned()
            }
            Self::RunStopped => {
                "the repeated run was stopped, too; its wall time includes the stop".to_owned()
            }
            Self::ProcessesEnded => {
                "the program left processes running; hugepilot ended them".to_owned()
            }
            Self::RunsFailed { failed_runs, runs } => {
                let runs = counted(u64::from(*runs), "run", "runs");
                format!("{failed_runs} of {runs} failed; a round with a failed run does not count")
            }
            Self::ReachedLittle(reach) => reached_little(reach),
        }
    }

    fn help(&self) -> Vec<String> {
        match self {
            Self::LoaderVariablesRemoved => {
                vec!["set them after the --, as in -- env NAME=value CMD".to_owned()]
            }
            Self::KilledBySigbus { limit: Some(file) } => {
                vec![hugepilot_record::raise_pool_limit(file), "--pages thp".to_owned()]
            }
            Self::KilledBySigbus { .. } | Self::ForkOnPool { .. } => {
                vec!["a larger pool: --pool AMOUNT".to_owned(), "--pages thp".to_owned()]
            }
            Self::Setting(warning) => warning.help(),
            Self::ReachedLittle(_) => vec![
                "--pages hugepilot, or glibc-thp: the allocator advises memory before its first \
                 touch"
                    .to_owned(),
                "give the program more work, so that it runs longer".to_owned(),
            ],
            _ => Vec::new(),
        }
    }
}

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

const FORK: &str = "a child made by fork that writes to hugetlb pages of its parent takes free \
                    pool pages, and SIGBUS kills it if there are none";

#[cfg(test)]
mod tests {
    use hugepilot_record::Stop;
    use hugepilot_record::pool::PoolShortfall;
    use hugepilot_record::run::Mode;
    use hugepilot_units::Bytes;

    use super::*;

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

    #[test]
    fn a_pool_that_is_too_small_has_its_causes() {
        let causes = vec![PoolShortfall::Interrupted];
        let shortage = PoolShortage { page_bytes: Bytes::mib(2), requested: 9, causes };
        let text = RunWarning::PoolTooSmall(shortage).text();
        assert!(
            text.starts_with("the pool has fewer than 9 free pages of 2MiB: a signal"),
            "{text}"
        );
    }
}
