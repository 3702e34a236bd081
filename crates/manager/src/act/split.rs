//! Splits one huge page of another process, and looks what came of it.
//!
//! The kernel frees a base page on the split only if it finds it zero-filled itself, under the page lock, so what the
//! program writes meanwhile is never lost. It also says yes where it did nothing; so what counts is what the page map shows
//! before and after.

use std::collections::BTreeMap;

use hugepilot_kernel::{Claim, KernelError, Target, TargetState};
use hugepilot_policy::{mapping_split_skip, split_skip};
use hugepilot_record::{Errno, Mapping, SkipReason, Split, SplitAct, SplitOutcome, Stop};
use hugepilot_units::{AddrRange, Bytes, Nanos};

use super::unreadable;

/// So many splits of one process in a row that come to nothing in the same way, and it is left alone.
pub const MAX_FUTILE: usize = 64;

/// Splits the huge page of `split`, unless it changed since it was planned. About 0.3 ms.
pub fn split(target: &dyn Target, split: &Split) -> SplitAct {
    let skipped = |reason| SplitAct {
        region: split.region,
        took: Nanos::ZERO,
        outcome: SplitOutcome::Skipped(reason),
    };
    let failed = |error: &KernelError| {
        let outcome = SplitOutcome::Failed(error.errno().unwrap_or(Errno::EIO));
        SplitAct { region: split.region, took: Nanos::ZERO, outcome }
    };
    let before = match target.region_pages(split.region) {
        Ok(pages) => pages,
        Err(error) if error.is_gone() => return skipped(SkipReason::Special),
        Err(error) => return failed(&error),
    };
    if let Some(reason) = split_skip(&before) {
        return skipped(reason);
    }
    if !still_zero(target, split) {
        return skipped(SkipReason::Changed);
    }
    let (start, queued) = (target.now(), target.queued());
    let answer = target.split(split.page);
    let took = (target.now() - start) - (target.queued() - queued);
    let after = target.region_pages(split.region);
    let outcome = match (answer, target.state(), after) {
        (Err(errno), ..) => SplitOutcome::Failed(errno),
        // What it gave back when it ended or became another program was not our doing.
        (_, Ok(TargetState::Gone | TargetState::Execed), _) => SplitOutcome::Failed(Errno::ESRCH),
        (_, Err(error), _) | (_, _, Err(error)) => {
            SplitOutcome::Failed(error.errno().unwrap_or(Errno::EIO))
        }
        (Ok(_), Ok(TargetState::Alive), Ok(after)) if after.huge => SplitOutcome::StillHuge,
        (Ok(_), Ok(TargetState::Alive), Ok(after)) => SplitOutcome::Freed(
            target.sizes().base.times(before.resident.saturating_sub(after.resident)),
        ),
    };
    SplitAct { region: split.region, took, outcome }
}

/// Whether the page that will be named is still unused: the named page is aged, and reclaimed sooner.
fn still_zero(target: &dyn Target, split: &Split) -> bool {
    let page = AddrRange::at(split.page, target.sizes().base);
    let mut bytes = vec![1; page.len().as_usize()];
    matches!(target.read_memory(&[page], &mut bytes), Ok(read) if read == bytes.len() && bytes.iter().all(|&byte| byte == 0))
}

/// What came of the last splits of one process, as far as they came to the same.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    last: Option<SplitOutcome>,
    count: usize,
}

impl Streak {
    /// What had changed before its turn came says nothing.
    fn note(&mut self, outcome: SplitOutcome) {
        if matches!(outcome, SplitOutcome::Skipped(_)) {
            return;
        }
        self.count = if self.last == Some(outcome) { self.count + 1 } else { 1 };
        self.last = Some(outcome);
    }

    /// Whether the process should be left alone from now on. What was split and gave nothing counts as futile.
    fn ends(self) -> Option<Stop> {
        match self.last? {
            SplitOutcome::Failed(Errno::EPERM | Errno::EACCES | Errno::ENOSYS) => {
                Some(Stop::NotPermitted)
            }
            SplitOutcome::Failed(Errno::ESRCH) => Some(Stop::TargetGone),
            SplitOutcome::Freed(bytes) if bytes > Bytes::ZERO => None,
            _ => (self.count >= MAX_FUTILE).then_some(Stop::RepeatedFailure),
        }
    }
}

/// Counts what was passed over or failed, by reason; `still_huge` where the kernel said yes and did nothing. Gives what was
/// freed, where it was split.
pub fn count(
    outcome: SplitOutcome,
    skipped: &mut BTreeMap<String, u64>,
    failed: &mut BTreeMap<String, u64>,
) -> Option<Bytes> {
    let (counts, key) = match outcome {
        SplitOutcome::Freed(bytes) => return Some(bytes),
        SplitOutcome::StillHuge => (failed, "still_huge".to_owned()),
        SplitOutcome::Failed(errno) => (failed, errno.to_string()),
        SplitOutcome::Skipped(reason) => (skipped, reason.to_string()),
    };
    *counts.entry(key).or_insert(0) += 1;
    None
}

/// All that was done to one process, and whether it is to be left alone.
#[derive(Debug, Default)]
pub struct Splits {
    /// In order.
    pub acts: Vec<SplitAct>,
    /// Why it was left alone before the plan was done.
    ended: Option<Stop>,
    streak: Streak,
    claim: Option<Claim>,
    /// Where nothing may be split, and why.
    forbidden: Vec<(AddrRange, SkipReason)>,
    next_look: Option<Nanos>,
}

/// A program may lock its memory, or have it watched, at any time; its mappings are looked at no more often than this.
const LOOK_EVERY: Nanos = Nanos::seconds(1);
/// A look walks all page tables, and new mappings of the program wait for it: so many times as long as it took, there is none.
const LOOK_REST: u64 = 20;

impl Splits {
    /// One more split of `target`; `None` when it is to be left alone.
    pub fn split(&mut self, target: &dyn Target, planned: &Split) -> Option<SplitOutcome> {
        self.ended = self.ended.or_else(|| match target.state() {
            Ok(TargetState::Alive) => self.streak.ends(),
            Ok(TargetState::Gone) => Some(Stop::TargetGone),
            Ok(TargetState::Execed) => Some(Stop::TargetExeced),
            Err(error) => Some(unreadable(&error)),
        });
        if self.ended.is_some() {
            return None;
        }
        self.ended = self.take_claim(target).and_then(|()| self.look(target)).err();
        if self.ended.is_some() {
            return None;
        }
        let start = planned.region.range(target.sizes()).start;
        let forbidden = self.forbidden.iter().find(|(range, _)| range.contains(start));
        let act = match forbidden {
            Some(&(_, reason)) => SplitAct {
                region: planned.region,
                took: Nanos::ZERO,
                outcome: SplitOutcome::Skipped(reason),
            },
            None => split(target, planned),
        };
        self.streak.note(act.outcome);
        self.acts.push(act);
        Some(act.outcome)
    }

    /// Why it is left alone, if it is.
    pub fn ended(&self) -> Option<Stop> {
        self.ended.or_else(|| self.streak.ends())
    }

    /// From the first split to the last, no other run of hugepilot changes it.
    fn take_claim(&mut self, target: &dyn Target) -> Result<(), Stop> {
        if self.claim.is_none() {
            self.claim = Some(target.claim().map_err(|error| unreadable(&error))?);
        }
        Ok(())
    }

    /// Looks where nothing may be split, when it is time to. A look that fails leaves what the last one showed; without one,
    /// nothing may be done.
    fn look(&mut self, target: &dyn Target) -> Result<(), Stop> {
        let begun = target.now();
        if self.next_look.is_some_and(|next| begun < next) {
            return Ok(());
        }
        match target.mappings() {
            Ok(mappings) => {
                let forbidden =
                    |mapping: &Mapping| Some((mapping.range, mapping_split_skip(mapping)?));
                self.forbidden = mappings.iter().filter_map(forbidden).collect();
            }
            Err(error) if self.next_look.is_none() => {
                return Err(unreadable(&error));
            }
            // One that ended meanwhile is seen to have by the split itself.
            Err(_) => {}
        }
        let now = target.now();
        self.next_look =
            Some(now + LOOK_EVERY.max(Nanos::new((now - begun).get().saturating_mul(LOOK_REST))));
        Ok(())
    }

    /// What the page map showed freed.
    pub fn freed(&self) -> Bytes {
        let freed = self.acts.iter().map(|act| match act.outcome {
            SplitOutcome::Freed(bytes) => bytes,
            _ => Bytes::ZERO,
        });
        freed.sum()
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_kernel::fake::{FakeTarget, Script};
    use hugepilot_units::{PageSizes, Region};

    use super::*;

    fn planned(region: u64) -> Split {
        let range = Region::new(region).range(PageSizes::X86_64);
        Split {
            process: 0,
            region: Region::new(region),
            page: range.start,
            frees: Bytes::mib(1),
            stalls: 0.0,
        }
    }

    fn outcome(target: &FakeTarget) -> SplitOutcome {
        split(target, &planned(7)).outcome
    }

    #[test]
    fn what_is_seen_freed_counts() {
        let target = FakeTarget::with_bloat([(7, 400)]);
        let act = split(&target, &planned(7));
        assert_eq!(act.outcome, SplitOutcome::Freed(Bytes::kib(1600)));
        assert_eq!(act.took, Nanos::millis(2));
        assert_eq!(outcome(&target), SplitOutcome::Skipped(SkipReason::AlreadySplit));
        assert_eq!(target.asked.borrow().len(), 1);
    }

    #[test]
    fn a_success_that_split_nothing_frees_nothing() {
        let target = FakeTarget::with_bloat([(7, 400)]).scripted([Script::FakeSuccess]);
        assert_eq!(outcome(&target), SplitOutcome::StillHuge);
    }

    #[test]
    fn errors_go_under_their_names() {
        for errno in [Errno::EINVAL, Errno::EPERM, Errno::EAGAIN, Errno::ENOMEM] {
            let target = FakeTarget::with_bloat([(7, 400)]).scripted([Script::Fail(errno)]);
            assert_eq!(outcome(&target), SplitOutcome::Failed(errno));
        }
        let target = FakeTarget::with_bloat([(7, 400)]).scripted([Script::SucceedAndDie]);
        assert_eq!(outcome(&target), SplitOutcome::Failed(Errno::ESRCH));
    }

    #[test]
    fn what_a_target_gave_back_by_becoming_another_program_is_not_freed() {
        let target = FakeTarget::with_bloat([(7, 400)]);
        target.state.set(TargetState::Execed);
        assert_eq!(outcome(&target), SplitOutcome::Failed(Errno::ESRCH));
    }

    #[test]
    fn what_changed_since_the_plan_is_left_alone() {
        let target = FakeTarget::with_bloat([(7, 400)]);
        target.pages.borrow_mut().get_mut(&Region::new(7)).unwrap().shared = 512;
        assert_eq!(outcome(&target), SplitOutcome::Skipped(SkipReason::SharedAfterFork));
        target.pages.borrow_mut().get_mut(&Region::new(7)).unwrap().shared = 0;
        target.dirtied.set(Some(planned(7).page));
        assert_eq!(outcome(&target), SplitOutcome::Skipped(SkipReason::Changed));
        target.state.set(TargetState::Gone);
        assert_eq!(outcome(&target), SplitOutcome::Skipped(SkipReason::Special));
        assert!(target.asked.borrow().is_empty());
    }

    #[test]
    fn every_outcome_is_counted_once_under_its_name() {
        let (mut skipped, mut failed) = (BTreeMap::new(), BTreeMap::new());
        let mut count = |outcome| count(outcome, &mut skipped, &mut failed);
        assert_eq!(count(SplitOutcome::Freed(Bytes::kib(4))), Some(Bytes::kib(4)));
        assert_eq!(count(SplitOutcome::StillHuge), None);
        assert_eq!(count(SplitOutcome::Failed(Errno::EAGAIN)), None);
        assert_eq!(count(SplitOutcome::Skipped(SkipReason::Changed)), None);
        assert_eq!(count(SplitOutcome::Skipped(SkipReason::Changed)), None);
        assert_eq!(skipped, [("changed".to_owned(), 2)].into());
        assert_eq!(failed, [("EAGAIN".to_owned(), 1), ("still_huge".to_owned(), 1)].into());
    }

    #[test]
    fn a_process_that_gives_nothing_is_left_alone() {
        let ends = |outcomes: &[SplitOutcome]| {
            let mut streak = Streak::default();
            outcomes.iter().for_each(|&outcome| streak.note(outcome));
            streak.ends()
        };
        let freed = SplitOutcome::Freed(Bytes::kib(4));
        assert_eq!(ends(&[]), None);
        assert_eq!(ends(&[freed; 200]), None);
        assert_eq!(ends(&[freed, SplitOutcome::Failed(Errno::EPERM)]), Some(Stop::NotPermitted));
        assert_eq!(ends(&[SplitOutcome::Failed(Errno::ESRCH)]), Some(Stop::TargetGone));
        let mut futile = [SplitOutcome::StillHuge; MAX_FUTILE];
        assert_eq!(ends(&futile[1..]), None);
        assert_eq!(ends(&futile), Some(Stop::RepeatedFailure));
        futile[MAX_FUTILE / 2] = freed;
        assert_eq!(ends(&futile), None);
        let nothing = [SplitOutcome::Freed(Bytes::ZERO); MAX_FUTILE];
        assert_eq!(
            ends(&nothing),
            Some(Stop::RepeatedFailure),
            "a split that frees nothing is no use"
        );
        let changed = [SplitOutcome::Skipped(SkipReason::AlreadySplit); 1000];
        assert_eq!(
            ends(&changed),
            None,
            "what the program gave back itself says nothing of the rest"
        );
        let between = [SplitOutcome::StillHuge, changed[0]].repeat(MAX_FUTILE);
        assert_eq!(ends(&between), Some(Stop::RepeatedFailure));
    }

    /// A process with two bloated regions, of which the first is locked.
    fn locked() -> FakeTarget {
        let mut target = FakeTarget::with_bloat([(7, 400), (8, 400)]);
        let line = "00e00000-01000000 rw-p 00000000 00:00 0\nSize: 2048 kB\nVmFlags: rd wr mr mw me ac lo\n";
        target.mappings =
            hugepilot_kernel::proc::parse_smaps(line.as_bytes(), std::path::Path::new("smaps"))
                .unwrap();
        target
    }

    #[test]
    fn a_look_that_fails_forgets_nothing_and_the_first_must_not() {
        let (target, mut splits) = (locked(), Splits::default());
        assert_eq!(splits.split(&target, &planned(8)), Some(SplitOutcome::Freed(Bytes::kib(1600))));
        target.unreadable.set(Some(Errno::EMFILE));
        target.sleep(Nanos::seconds(10));
        assert_eq!(
            splits.split(&target, &planned(7)),
            Some(SplitOutcome::Skipped(SkipReason::Mlocked))
        );
        for (errno, stop) in
            [(Errno::EMFILE, Stop::Unreadable), (Errno::EACCES, Stop::NotPermitted)]
        {
            let mut new = Splits::default();
            target.unreadable.set(Some(errno));
            assert_eq!((new.split(&target, &planned(7)), new.ended()), (None, Some(stop)));
        }
    }

    #[test]
    fn out_of_descriptors_is_not_gone_and_what_another_run_changes_is_left_alone() {
        let target = FakeTarget::with_bloat([(7, 400)]);
        target.unknown.set(Some(Errno::EMFILE));
        assert_eq!(outcome(&target), SplitOutcome::Failed(Errno::EMFILE));
        let mut splits = Splits::default();
        assert_eq!(
            (splits.split(&target, &planned(7)), splits.ended()),
            (None, Some(Stop::Unreadable))
        );
        target.unknown.set(None);
        target.claimed.set(true);
        let mut splits = Splits::default();
        assert_eq!((splits.split(&target, &planned(7)), splits.ended()), (None, Some(Stop::InUse)));
        assert!(target.asked.borrow().is_empty());
    }

    #[test]
    fn a_look_that_takes_long_is_rarely_taken() {
        let (target, mut splits) = (locked(), Splits::default());
        // Each look takes 200 ms, so the next one is 4 s away.
        target.mappings_take.set(Nanos::millis(200));
        let looks = (0..100).filter(|_| {
            let begun = target.now();
            splits.split(&target, &planned(7));
            let took = target.now() - begun;
            target.sleep(Nanos::millis(100));
            took >= Nanos::millis(200)
        });
        assert_eq!(looks.count(), 3, "in 10 s");
    }

    #[test]
    fn memory_that_is_locked_after_the_plan_is_left_alone() {
        let target = locked();
        let outcome = Splits::default().split(&target, &planned(7));
        assert_eq!(outcome, Some(SplitOutcome::Skipped(SkipReason::Mlocked)));
        assert!(target.asked.borrow().is_empty());
    }
}
