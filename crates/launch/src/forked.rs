//! Whether children were, or may be, killed for want of pages of a pool.
//!
//! A mapping of private hugetlb pages has its pages promised; a child made by fork has none promised. It shares its parent's pages
//! until one of the two writes, and then takes one of its own from what the pool has free, or is killed by SIGBUS
//! (`Documentation/mm/hugetlbfs_reserv.rst`).

use hugepilot_record::run::{Ending, Mode, Obstacles, Run};
use hugepilot_units::Bytes;

const SIGBUS: i32 = 7;
const WHY: &str = "a child made by fork that writes to its parent's pages of the pool takes pages of its own, and is killed by \
                   SIGBUS where the pool has no more; fix: a larger pool (--pool), or --pages thp";

/// What to tell of it; nothing where the mode uses no pool, or the program had no page of one.
pub fn pool_warning(mode: Mode, run: &Run, obstacles: &Obstacles) -> Option<String> {
    let on_pool = run.peak.hugetlb_peak_bytes > Bytes::ZERO || run.peak.rss_samples == 0;
    if mode.uses_pool().is_none() || !on_pool {
        return None;
    }
    if run.ending.code() == Ending::Killed(SIGBUS).code() {
        return Some(format!("a process of it was killed by SIGBUS: {WHY}"));
    }
    obstacles
        .pool_parent
        .as_ref()
        .map(|name| format!("{name} had pages of the pool and started others: {WHY}"))
}

#[cfg(test)]
mod tests {
    use hugepilot_record::run::Peak;

    use super::*;

    #[test]
    fn parents_on_a_pool_and_deaths_by_sigbus_are_told_and_nothing_else() {
        let parent = Obstacles { pool_parent: Some("make".to_owned()), ..Obstacles::default() };
        let run = |ending, hugetlb_peak_bytes| Run {
            ending,
            wall_seconds: 1.0,
            stopped: false,
            user_seconds: 1.0,
            system_seconds: 0.0,
            processor_wait_seconds: None,
            page_faults: 1,
            peak: Peak { hugetlb_peak_bytes, rss_samples: 3, ..Peak::default() },
        };
        let (some, none) = (Bytes::mib(4), Bytes::ZERO);
        let well = Ending::Exited(0);
        let table = [
            (Mode::Hugetlb, run(well, some), &parent, Some("make had pages")),
            (Mode::Hugepilot, run(well, some), &parent, Some("make had pages")),
            (
                Mode::Hugetlb,
                run(Ending::Killed(7), some),
                &parent,
                Some("a process of it was killed by SIGBUS"),
            ),
            (
                Mode::Hugetlb,
                run(Ending::Exited(135), some),
                &Obstacles::default(),
                Some("a process of it was killed by SIGBUS"),
            ),
            (Mode::Hugetlb, run(Ending::Killed(11), some), &Obstacles::default(), None),
            (Mode::Hugetlb, run(well, none), &parent, None),
            (Mode::Hugepilot, run(Ending::Killed(7), none), &Obstacles::default(), None),
            (Mode::Thp, run(Ending::Killed(7), some), &parent, None),
        ];
        for (mode, run, obstacles, says) in table {
            let told = pool_warning(mode, &run, obstacles);
            assert_eq!(told.is_some(), says.is_some(), "{mode} {run:?}");
            assert!(
                told.is_none_or(|told| told.starts_with(says.unwrap_or_default())),
                "{mode} {run:?}"
            );
        }
    }
}
