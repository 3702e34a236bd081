//! Return of all regions after the measurement (`tune --try`).

use super::TuneReport;
use crate::undo::{UndoReport, UndoneProcess};

impl TuneReport {
    /// With the regions that were returned after the measurement. `is_single`: whether this is the
    /// only target, so that the processes that it started are in this report.
    #[must_use]
    pub fn with_tried(self, undone: &UndoReport, is_single: bool) -> Self {
        let of_target = |process: &&UndoneProcess| is_single || process.pid == self.target.pid;
        let tried = undone.processes.iter().filter(of_target).cloned().collect();
        Self { tried: Some(tried), ..self }
    }

    /// Promoted regions that are huge after the command: those that were kept; with `--try`, only
    /// those that could not be returned.
    pub fn left_regions(&self) -> u64 {
        let Some(tried) = &self.tried else { return self.acts.kept_regions() };
        tried.iter().map(UndoneProcess::left_regions).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hugepilot_record::{Pid, Stop};
    use hugepilot_units::Bytes;

    use super::super::{TargetInfo, TuneActs};
    use super::*;
    use crate::undo::{SCHEMA, UndoState};

    fn process(pid: i32, returned: u64, state: UndoState) -> UndoneProcess {
        UndoneProcess {
            pid: Pid(pid),
            command: "db".to_owned(),
            state,
            promoted_regions: 9,
            returned_regions: returned,
            freed_bytes: Bytes::ZERO,
            not_huge_regions: 2,
            skipped: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    #[test]
    fn after_a_trial_of_all_only_the_regions_that_could_not_be_returned_are_left() {
        let stopped = UndoState::Stopped { cause: Stop::InUse };
        let processes = vec![
            process(4711, 7, UndoState::Running),
            process(4712, 3, stopped),
            process(4713, 0, UndoState::Ended),
        ];
        let undone =
            UndoReport { schema: SCHEMA.to_owned(), dry_run: false, processes, cut_bytes: 0 };
        let report = TuneReport {
            target: TargetInfo { pid: Pid(4711), ..TargetInfo::default() },
            acts: TuneActs { verified_regions: 27, ..TuneActs::default() },
            ..TuneReport::default()
        };
        assert_eq!(report.left_regions(), 27);
        let single = report.with_tried(&undone, true);
        assert_eq!(single.left_regions(), 4, "those of the second process");
        let one = single.with_tried(&undone, false);
        assert_eq!((one.left_regions(), one.tried.unwrap().len()), (0, 1));
    }
}
