//! Sentences for the warnings of `run` and `compare`.

use hugepilot_record::run::{CompareWarning, PoolShortage, RunWarning};
use hugepilot_record::settings::Restored;

use crate::Sentence;

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
            Self::KilledBySigbus => format!("SIGBUS killed a process of the program; {FORK}"),
            Self::ForkOnPool { process } => {
                format!("{process} had hugetlb pages and started other processes; {FORK}")
            }
            Self::PoolTooSmall(PoolShortage { page_bytes, requested, causes }) => {
                let causes: Vec<String> = causes.iter().map(Sentence::text).collect();
                let causes = causes.join("; ");
                format!("the pool has fewer than {requested} free pages of {page_bytes}: {causes}")
            }
            Self::SettingRecovered { pid, name, before, set_to } => format!(
                "hugepilot (pid {pid}) was killed after it had set {name} to {set_to}; it is \
                 {before} again"
            ),
            Self::SettingNotRestored { name, before, set_to, restored } => {
                not_restored(name, before, set_to, restored)
            }
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
                format!("{failed_runs} of {runs} runs failed; their rounds do not count")
            }
        }
    }

    fn help(&self) -> Vec<String> {
        match self {
            Self::LoaderVariablesRemoved => {
                vec!["set them after the --, as in -- env NAME=value CMD".to_owned()]
            }
            Self::KilledBySigbus | Self::ForkOnPool { .. } => {
                vec!["a larger pool: --pool AMOUNT".to_owned(), "--pages thp".to_owned()]
            }
            Self::SettingNotRestored { name, before, restored: Restored::Failed(_), .. } => {
                vec![format!("echo {before} | sudo tee {}", setting_path(name))]
            }
            _ => Vec::new(),
        }
    }
}

const FORK: &str = "a child made by fork that writes to hugetlb pages of its parent takes free \
                    pages of the pool, and SIGBUS kills it if there are none";

fn not_restored(name: &str, before: &str, set_to: &str, restored: &Restored) -> String {
    match restored {
        Restored::Yes => format!("{name} is {before} again"),
        Restored::ChangedSince(now) => format!(
            "{name} stays {now}: it was changed after hugepilot had set it to {set_to}; the \
             former value was {before}"
        ),
        Restored::Failed(error) => format!("cannot restore {name} to {before}: {error}"),
    }
}

/// File of a setting, by its name in the journal.
fn setting_path(name: &str) -> String {
    let directory =
        if name.starts_with("hugepages-") { "hugepages" } else { "transparent_hugepage" };
    format!("/sys/kernel/mm/{directory}/{name}")
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_record::pool::PoolShortfall;
    use hugepilot_record::run::Mode;
    use hugepilot_units::Bytes;

    use super::*;

    #[test]
    fn warnings_of_a_mode_name_it() {
        let warning = RunWarning::RunsFailed { failed_runs: 2, runs: 5 };
        let of = |mode| CompareWarning { mode, warning: warning.clone() }.text();
        assert_eq!(of(Some(Mode::Thp)), "thp: 2 of 5 runs failed; their rounds do not count");
        assert_eq!(of(None), "2 of 5 runs failed; their rounds do not count");
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

    #[test]
    fn a_setting_that_is_not_restored_has_the_command() {
        let of = |name: &str, restored| RunWarning::SettingNotRestored {
            name: name.to_owned(),
            before: "511".to_owned(),
            set_to: "409".to_owned(),
            restored,
        };
        let failed = of("khugepaged/max_ptes_none", Restored::Failed("EPERM".to_owned()));
        let command = "echo 511 | sudo tee \
                       /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";
        assert_eq!(failed.help(), [command]);
        let pool = of("hugepages-2048kB/nr_hugepages", Restored::Failed("EPERM".to_owned()));
        assert!(pool.help()[0].ends_with("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"));
        let changed = of("a", Restored::ChangedSince("7".to_owned()));
        assert!(changed.text().starts_with("a stays 7") && changed.help().is_empty());
        let recovered = RunWarning::SettingRecovered {
            pid: Pid(7),
            name: "a".to_owned(),
            before: "1".to_owned(),
            set_to: "2".to_owned(),
        };
        assert_eq!(
            recovered.text(),
            "hugepilot (pid 7) was killed after it had set a to 2; it is 1 again"
        );
    }
}
