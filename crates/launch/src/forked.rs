//! Fork and hugetlb pools: children that SIGBUS has killed, or may kill, for lack of free pages.
//!
//! A mapping of private hugetlb pages reserves its pages; a child made by fork has none reserved.
//! It shares the pages of its parent until one of the two writes. Then it takes a free page of the
//! pool, or SIGBUS kills it (`Documentation/mm/hugetlbfs_reserv.rst`).

use hugepilot_record::{Ending, Mode};
use hugepilot_reports::run::{Run, RunWarning};
use hugepilot_units::Bytes;

use crate::effect::Obstacles;

const SIGBUS: i32 = 7;

/// Returns a warning if a mode on a pool killed a process, or may do so. `None` if the program had
/// no page of the pool.
pub fn pool_warning(mode: Mode, run: &Run, obstacles: &Obstacles) -> Option<RunWarning> {
    let on_pool = run.peak.hugetlb_peak_bytes > Bytes::ZERO || run.peak.rss_samples == 0;
    if mode.uses_pool().is_none() || !on_pool {
        return None;
    }
    if run.ending.code() == Ending::Killed(SIGBUS).code() {
        let limit = obstacles.pool_limit.as_ref().map(|file| file.display().to_string());
        return Some(RunWarning::KilledBySigbus { limit });
    }
    let process = obstacles.pool_parent.clone();
    process.map(|process| RunWarning::ForkOnPool { process })
}

#[cfg(test)]
mod tests {
    use hugepilot_reports::run::Peak;

    use super::*;

    fn run(ending: Ending, hugetlb_peak_bytes: Bytes) -> Run {
        Run {
            ending,
            wall_seconds: 1.0,
            stopped: false,
            user_seconds: 1.0,
            system_seconds: 0.0,
            processor_wait_seconds: None,
            page_faults: 1,
            peak: Peak { hugetlb_peak_bytes, rss_samples: 3, ..Peak::default() },
        }
    }

    #[test]
    fn parents_on_a_pool_and_deaths_by_sigbus_are_warnings() {
        let parent = Obstacles { pool_parent: Some("make".to_owned()), ..Obstacles::default() };
        let other = Obstacles::default();
        let (some, none) = (Bytes::mib(4), Bytes::ZERO);
        let well = Ending::Exited(0);
        let fork = Some(RunWarning::ForkOnPool { process: "make".to_owned() });
        let killed = Some(RunWarning::KilledBySigbus { limit: None });
        let table = [
            (Mode::Hugetlb, run(well, some), &parent, &fork),
            (Mode::Hugepilot, run(well, some), &parent, &fork),
            (Mode::Hugetlb, run(Ending::Killed(7), some), &parent, &killed),
            (Mode::Hugetlb, run(Ending::Exited(135), some), &other, &killed),
            (Mode::Hugetlb, run(Ending::Killed(11), some), &other, &None),
            (Mode::Hugetlb, run(well, none), &parent, &None),
            (Mode::Hugepilot, run(Ending::Killed(7), none), &other, &None),
            (Mode::Thp, run(Ending::Killed(7), some), &parent, &None),
        ];
        for (mode, run, obstacles, warning) in table {
            assert_eq!(&pool_warning(mode, &run, obstacles), warning, "{mode} {run:?}");
        }
    }
}
