//! History: the cool-down of regions that were split or promoted, and their re-collapses. Pure.
//!
//! A split region that is huge and bloated again was *re-collapsed*: khugepaged or the program
//! collapsed it, or the program mapped new memory there. An immediate split could repeat for ever,
//! so the region rests for the cool-down, twice as long after each re-collapse. After
//! `max_recollapses`, it is excluded for the life of its process.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hugepilot_record::{Census, Pid, ProcessId, SkipReason};
use hugepilot_units::{Nanos, Region};
use serde::{Deserialize, Serialize};

/// Limit on remembered regions: half a TiB, in about 12 MB.
const MAX_REGIONS: usize = 1 << 18;

/// Identity of a process: pid and start time, because pids are reused.
pub type Key = (Pid, u64);

/// Returns the identity of a process.
pub fn key_of(id: &ProcessId) -> Key {
    (id.pid, id.start_ticks)
}

/// Sort key of processes: by start time, because pids wrap around.
pub fn by_start(id: &ProcessId) -> (u64, Pid) {
    (id.start_ticks, id.pid)
}

/// Returns the index of the first process, sorted by start time, that started after `last`; 0 if
/// there is none.
pub fn next_after<T: PartialOrd>(starts: &[T], last: Option<T>) -> usize {
    let Some(last) = last else { return 0 };
    starts.iter().position(|start| *start > last).unwrap_or(0)
}

/// Limits on repeated changes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoolDown {
    /// Rest of a region after a split, an attempt, or a promotion.
    pub time: Nanos,
    /// Re-collapses after which a region is excluded.
    pub max_recollapses: u32,
}

/// Past of a region that the daemon changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionHistory {
    /// Time of the last split, attempt or promotion.
    at: Nanos,
    recollapses: u32,
    /// Whether it was on base pages when last seen.
    split: bool,
    /// Whether the last change was a promotion by this daemon.
    promoted: bool,
}

impl RegionHistory {
    /// Notes that it is huge and bloated. Returns whether it was re-collapsed.
    fn note_bloated(&mut self) -> bool {
        let was_split = std::mem::take(&mut self.split);
        self.recollapses = self.recollapses.saturating_add(u32::from(was_split));
        was_split
    }

    /// Returns the reason to skip it at `now`.
    fn skip(&self, now: Nanos, rules: CoolDown) -> Option<SkipReason> {
        if self.recollapses >= rules.max_recollapses {
            return Some(SkipReason::RecollapsesRepeatedly);
        }
        let rest = rules.time.get().saturating_mul(1 << self.recollapses.min(32));
        (now < self.at + Nanos::new(rest)).then_some(SkipReason::CoolingDown)
    }
}

impl CoolDown {
    /// Returns the bloated regions that must not be split at `now`, of those with a past.
    pub fn resting(
        self,
        past: &BTreeMap<Region, RegionHistory>,
        now: Nanos,
    ) -> BTreeMap<Region, SkipReason> {
        let skip = |mut past: RegionHistory| {
            past.note_bloated();
            past.skip(now, self)
        };
        past.iter().filter_map(|(&region, &past)| Some((region, skip(past)?))).collect()
    }

    /// Returns `census` without the bloated regions that must not be split at `now`. They count as
    /// skipped.
    pub fn awake<'a>(
        self,
        census: &'a Census,
        past: &BTreeMap<Region, RegionHistory>,
        now: Nanos,
    ) -> Cow<'a, Census> {
        let resting = self.resting(past, now);
        if resting.is_empty() {
            return Cow::Borrowed(census);
        }
        let mut census = census.clone();
        census.bloated.retain(|page| !resting.contains_key(&page.region));
        for reason in resting.into_values() {
            *census.skipped.entry(reason).or_insert(0) += 1;
        }
        Cow::Owned(census)
    }
}

/// Re-collapsed regions of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recollapses {
    /// Their number.
    pub regions: u64,
    /// Number of these that are excluded from now on.
    pub excluded: u64,
    /// Example of these, to determine possible causes.
    pub example: Option<Region>,
}

/// Earlier changes of the regions of all processes.
#[derive(Debug, Default)]
pub struct History(BTreeMap<(Key, Region), RegionHistory>);

impl History {
    /// Drops processes that ended.
    pub fn keep_living(&mut self, lives: impl Fn(Key) -> bool) {
        let mut last: Option<(Key, bool)> = None;
        self.0.retain(|&(key, _), _| match last {
            Some((known, alive)) if known == key => alive,
            _ => {
                let alive = lives(key);
                last = Some((key, alive));
                alive
            }
        });
    }

    /// Returns what is known of the bloated regions of `census`.
    pub fn past_of(&self, census: &Census) -> BTreeMap<Region, RegionHistory> {
        let key = key_of(&census.process);
        let past = |region| Some((region, *self.0.get(&(key, region))?));
        census.bloated.iter().filter_map(|page| past(page.region)).collect()
    }

    /// Notes that the bloated regions of `census` are huge. Returns the re-collapsed ones.
    pub fn note_census(&mut self, census: &Census, rules: CoolDown) -> Recollapses {
        let (key, mut recollapses) = (key_of(&census.process), Recollapses::default());
        for page in &census.bloated {
            let Some(past) = self.0.get_mut(&(key, page.region)) else { continue };
            if past.note_bloated() {
                recollapses.regions += 1;
                recollapses.excluded += u64::from(past.recollapses >= rules.max_recollapses);
                recollapses.example = Some(page.region);
            }
        }
        recollapses
    }

    /// Records an attempt on a region at `now`, and whether it was split.
    pub fn note(&mut self, key: Key, region: Region, now: Nanos, split: bool) {
        self.make_room(key, region);
        let past = self.0.entry((key, region)).or_default();
        *past = RegionHistory { at: now, split, promoted: false, ..*past };
    }

    /// Records that this daemon promoted a region at `now`: that is not a re-collapse, and the
    /// region is not split soon.
    pub fn note_promoted(&mut self, key: Key, region: Region, now: Nanos) {
        self.make_room(key, region);
        let past = self.0.entry((key, region)).or_default();
        *past = RegionHistory { at: now, split: false, promoted: true, ..*past };
    }

    /// Returns the regions of a process that must not be promoted at `now`: they were split a short
    /// time ago, or are re-collapsed again and again.
    pub fn resting(&self, key: Key, now: Nanos, rules: CoolDown) -> Vec<Region> {
        let of_process = (key, Region::new(0))..=(key, Region::new(u64::MAX));
        self.0
            .range(of_process)
            .filter(|(_, past)| !past.promoted && past.skip(now, rules).is_some())
            .map(|(&(_, region), _)| region)
            .collect()
    }

    fn make_room(&mut self, key: Key, region: Region) {
        if self.0.len() >= MAX_REGIONS && !self.0.contains_key(&(key, region)) {
            self.forget_old();
        }
    }

    /// Drops the older half of the regions that were never re-collapsed; without any, of all.
    fn forget_old(&mut self) {
        let calm = self.0.values().any(|past| past.recollapses == 0);
        let goes = |past: &RegionHistory| !calm || past.recollapses == 0;
        let mut times: Vec<Nanos> =
            self.0.values().filter(|past| goes(past)).map(|past| past.at).collect();
        times.sort_unstable();
        let Some(&median) = times.get(times.len() / 2) else { return };
        self.0.retain(|_, past| !goes(past) || past.at > median);
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{BloatedPage, Skips};
    use hugepilot_units::PageSizes;
    use proptest::prelude::*;

    use super::*;

    const RULES: CoolDown = CoolDown { time: Nanos::seconds(10), max_recollapses: 3 };
    const KEY: Key = (Pid(7), 1);

    fn census(regions: &[u64]) -> Census {
        let page = |&region: &u64| BloatedPage {
            region: Region::new(region),
            zero_pages: 400,
            first_zero_page: 0,
            table_lines: 14,
        };
        Census {
            process: ProcessId { pid: KEY.0, start_ticks: KEY.1, command: "x".into() },
            sizes: PageSizes::X86_64,
            bloated: regions.iter().map(page).collect(),
            huge_pages: regions.len() as u64,
            read_pages: regions.len() as u64,
            unread_pages: 0,
            stranded: None,
            skipped: Skips::new(),
            took: Nanos::ZERO,
        }
    }

    /// Removes the regions that rest at `now`.
    fn filter(history: &mut History, census: &mut Census, now: Nanos) -> Recollapses {
        let recollapses = history.note_census(census, RULES);
        let awake = RULES.awake(census, &history.past_of(census), now).into_owned();
        *census = awake;
        recollapses
    }

    /// Returns whether region 5 may be split, the reason if not, and re-collapses.
    fn filtered(history: &mut History, second: u64) -> (bool, Option<SkipReason>, Recollapses) {
        let mut seen = census(&[5]);
        let recollapses = filter(history, &mut seen, Nanos::seconds(second));
        (!seen.bloated.is_empty(), seen.skipped.keys().next().copied(), recollapses)
    }

    #[test]
    fn the_next_plan_starts_with_the_process_after_the_last_one_served() {
        let next = |last| next_after(&[3, 5, 9], last);
        assert_eq!([None, Some(3), Some(4), Some(5), Some(9)].map(next), [0, 1, 1, 2, 0]);
    }

    #[test]
    fn a_region_rests_twice_as_long_after_each_recollapse_and_then_for_good() {
        let mut history = History::default();
        let split = |history: &mut History, second| {
            history.note(KEY, Region::new(5), Nanos::seconds(second), true);
        };
        split(&mut history, 0);
        let (may, why, recollapses) = filtered(&mut history, 1);
        assert_eq!((may, why), (false, Some(SkipReason::CoolingDown)));
        assert_eq!(
            recollapses,
            Recollapses { regions: 1, excluded: 0, example: Some(Region::new(5)) }
        );
        assert_eq!(
            filtered(&mut history, 19),
            (false, Some(SkipReason::CoolingDown), Recollapses::default())
        );
        assert!(filtered(&mut history, 20).0);
        split(&mut history, 20);
        assert_eq!(filtered(&mut history, 59).1, Some(SkipReason::CoolingDown));
        assert!(filtered(&mut history, 60).0);
        split(&mut history, 60);
        let (may, why, recollapses) = filtered(&mut history, 10_000);
        assert_eq!(
            (may, why, recollapses.excluded),
            (false, Some(SkipReason::RecollapsesRepeatedly), 1)
        );
        assert_eq!(filtered(&mut history, 1 << 40).1, Some(SkipReason::RecollapsesRepeatedly));
    }

    #[test]
    fn a_failed_split_rests_but_does_not_count_as_recollapsed() {
        let mut history = History::default();
        history.note(KEY, Region::new(5), Nanos::ZERO, false);
        assert_eq!(
            filtered(&mut history, 9),
            (false, Some(SkipReason::CoolingDown), Recollapses::default())
        );
        assert!(filtered(&mut history, 10).0);
    }

    #[test]
    fn a_promoted_region_is_not_split_soon_nor_a_split_one_promoted() {
        let mut history = History::default();
        let resting = |history: &History, second| {
            let regions = history.resting(KEY, Nanos::seconds(second), RULES);
            regions.into_iter().map(Region::get).collect::<Vec<u64>>()
        };
        history.note(KEY, Region::new(4), Nanos::ZERO, true);
        history.note_promoted(KEY, Region::new(5), Nanos::ZERO);
        history.note((Pid(8), 1), Region::new(6), Nanos::ZERO, true);
        assert_eq!((resting(&history, 9), resting(&history, 10)), (vec![4], vec![]));
        let found = filtered(&mut history, 9);
        assert_eq!(found, (false, Some(SkipReason::CoolingDown), Recollapses::default()));
        assert!(filtered(&mut history, 10).0, "bloat came later");
        history.note(KEY, Region::new(5), Nanos::seconds(10), true);
        history.note_promoted(KEY, Region::new(5), Nanos::seconds(20));
        assert_eq!(filtered(&mut history, 30).2, Recollapses::default(), "the daemon did it");
    }

    #[test]
    fn processes_that_ended_are_forgotten_and_others_are_not_mixed_up() {
        let mut history = History::default();
        history.note(KEY, Region::new(5), Nanos::ZERO, true);
        history.note((KEY.0, 2), Region::new(5), Nanos::ZERO, true);
        history.note((KEY.0, 2), Region::new(6), Nanos::ZERO, true);
        history.keep_living(|key| key != KEY);
        assert_eq!(history.0.len(), 2);
        assert!(filtered(&mut history, 1).0, "a later process with the same number has no history");
    }

    #[test]
    fn memory_is_bounded_and_those_that_flip_are_remembered_longest() {
        let mut history = History::default();
        history.note(KEY, Region::new(5), Nanos::ZERO, true);
        filtered(&mut history, 1);
        for region in 0..2 * MAX_REGIONS as u64 {
            history.note(KEY, Region::new(1000 + region), Nanos::seconds(2 + region), true);
        }
        assert!(history.0.len() <= MAX_REGIONS);
        assert!(history.0.contains_key(&(KEY, Region::new(5))));
        assert!(history.0.contains_key(&(KEY, Region::new(999 + 2 * MAX_REGIONS as u64))));
    }

    proptest! {
        /// However often regions are re-collapsed, none is split too often or too soon.
        #[test]
        fn no_region_is_split_too_often(
            steps in prop::collection::vec((0_u64..4, 0_u64..30, any::<bool>()), 1..300),
        ) {
            let mut history = History::default();
            let (mut now, mut splits) = (Nanos::ZERO, BTreeMap::<u64, Vec<Nanos>>::new());
            for (region, wait, works) in steps {
                now = now + Nanos::seconds(wait);
                let mut seen = census(&[region]);
                filter(&mut history, &mut seen, now);
                if !seen.bloated.is_empty() {
                    history.note(KEY, Region::new(region), now, works);
                    if works {
                        splits.entry(region).or_default().push(now);
                    }
                }
            }
            for times in splits.values() {
                prop_assert!(times.len() <= 3);
                prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= RULES.time));
            }
        }
    }
}
