//! Policy `hawkeye`: highest access coverage first (Panwar et al., ASPLOS'19, as described in
//! Manocha et al., MICRO'23, section 2.3).
//!
//! The access coverage of a region is the number of its base pages that were touched. Regions are
//! in buckets of it; promotion begins with the highest bucket, in which processes take turns. The
//! regions of a process leave a bucket in the order in which they entered it.
//!
//! HawkEye reads the accessed bits of page tables. Here, the coverage is the number of distinct
//! base pages with samples, which understates that of regions with few samples.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugepilot_record::Snapshot;
use hugepilot_units::{PageSizes, Region, Share};
use serde::{Deserialize, Serialize};

use super::interval::{Interval, Ranked, next_interval};
use super::state::Cursor;
use super::{Candidate, Candidates, Decision, State, TuneGoal};

/// Regions of a process by bucket, each list in the order in which its regions entered it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Buckets(BTreeMap<u64, Vec<Region>>);

impl Buckets {
    /// Whether no region is in a bucket.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves regions whose bucket changed to the end of their new list, in address order. A region
    /// without a bucket leaves: if it returns, it is new.
    fn update(&mut self, mut buckets: BTreeMap<Region, u64>) {
        for (bucket, regions) in &mut self.0 {
            regions.retain(|region| {
                let stays = buckets.get(region) == Some(bucket);
                if stays {
                    buckets.remove(region);
                }
                stays
            });
        }
        for (region, bucket) in buckets {
            self.0.entry(bucket).or_default().push(region);
        }
        self.0.retain(|_, regions| !regions.is_empty());
    }

    /// Returns all regions, those of the highest bucket first.
    fn order(&self) -> impl Iterator<Item = Region> + '_ {
        self.0.values().rev().flatten().copied()
    }
}

/// Rules of the policy `hawkeye`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HawkeyeRules {
    /// Buckets of access coverage; ten are 50 of 512 base pages wide.
    pub buckets: u32,
    /// Whether a bucket is twice as wide as the one below, as in the kernel of HawkEye: bucket `n`
    /// ends at 2ⁿ base pages.
    #[serde(default)]
    pub doubling: bool,
    /// Regions promoted in an interval, of all processes together: as many as the kernel scans,
    /// which is 4096 base pages.
    pub promotions: usize,
    /// Regions in buckets above 1 below which a process gets no promotion; 0 for no such rule. The
    /// kernel of HawkEye waits for as many as one pass promotes.
    #[serde(default)]
    pub least_regions: usize,
    /// Share of the regions in use that an interval promotes, instead of `promotions`: eight
    /// regions are too many for a process that is small beside the paper's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Share>,
}

impl Default for HawkeyeRules {
    fn default() -> Self {
        Self { buckets: 10, doubling: false, promotions: 8, least_regions: 0, pace: None }
    }
}

impl HawkeyeRules {
    /// The kernel of HawkEye, as far as simulated time has it: it waits 1 s between clearing and
    /// reading accessed bits, as all sets do. Its pause after a pass, at least 5 s and 19 times the
    /// CPU time of the pass, is not simulated, since a scan takes no time here.
    pub const KERNEL: Self =
        Self { buckets: 12, doubling: true, promotions: 8, least_regions: 8, pace: None };
    /// Eight regions of the least footprint of a graph in the paper, 10 GB: 5,120 regions.
    pub const PACE: Share = Share::fraction(8, 5120);

    /// Returns how many regions the interval of a snapshot promotes.
    fn most(&self, goal: &TuneGoal, snapshot: &Snapshot) -> usize {
        let Some(pace) = self.pace else { return self.promotions };
        let length = goal.observe.get().max(1);
        let number = snapshot.time.get().saturating_add(length / 2) / length;
        let regions = snapshot.processes.iter().map(|one| one.memory.pages.len() as u64).sum();
        usize::try_from(pace.turn_of(regions, number)).unwrap_or(usize::MAX)
    }

    /// Decides one interval for all processes of the snapshot.
    pub(super) fn decide(
        &self,
        goal: &TuneGoal,
        snapshot: &Snapshot,
        mut state: State,
    ) -> Decision {
        let until = next_interval(snapshot.time, goal.observe);
        let most = self.most(goal, snapshot);
        let mut interval = Interval::new(goal, snapshot, &mut state, most, until);
        let mut covered = Vec::new();
        for (index, process) in snapshot.processes.iter().enumerate() {
            let past = state.of_mut(&process.id);
            let mut found = Candidates::eligible(&process.memory, &process.window, past, goal);
            found.regions.retain(|candidate| candidate.sampled_pages > 0);
            let bucket = |one: &Candidate| self.bucket(one, process.memory.sizes);
            // Within a bucket, only the time of entry decides: HawkEye knows neither stalls nor
            // walks.
            past.buckets
                .update(found.regions.iter().map(|one| (one.region, bucket(one))).collect());
            let by_region: BTreeMap<Region, Candidate> =
                found.regions.iter().map(|&candidate| (candidate.region, candidate)).collect();
            found.regions =
                past.buckets.order().filter_map(|one| by_region.get(&one).copied()).collect();
            interval.note(index, &found);
            let in_use = found.regions.iter().filter(|one| bucket(one) > 1).count();
            if in_use < self.least_regions {
                found.regions.clear();
            }
            interval.expect(index, &found);
            covered.push(found.regions);
        }
        let ranked = self.rank(snapshot, &covered, state.place.cursor);
        interval.grant(&ranked);
        let granted =
            ranked.iter().rev().find(|(index, one)| interval.promotes(*index, one.region));
        if let Some(&(index, Candidate { region, .. })) = granted {
            let pid = snapshot.processes[index].id.pid;
            state.place.cursor = Some(Cursor { pid, region, time: snapshot.time });
        }
        Decision { processes: interval.finish(), state }
    }

    /// Bucket of a candidate, from 0; the last one has the remaining base pages, too.
    fn bucket(&self, one: &Candidate, sizes: PageSizes) -> u64 {
        let buckets = u64::from(self.buckets.max(1));
        if self.doubling {
            let ceiling = one.sampled_pages.max(1).next_power_of_two().ilog2();
            return u64::from(ceiling).min(buckets - 1);
        }
        let width = (sizes.base_per_huge() * 500 / 512 / buckets).max(1);
        (u64::from(one.sampled_pages) / width).min(buckets - 1)
    }

    /// Candidates in the order of promotion. The first turn is that of the process after the one
    /// that had the last.
    fn rank(
        &self,
        snapshot: &Snapshot,
        covered: &[Vec<Candidate>],
        last: Option<Cursor>,
    ) -> Vec<Ranked> {
        let mut ranked = Vec::new();
        for (index, candidates) in covered.iter().enumerate() {
            let process = &snapshot.processes[index];
            let is_before = last.is_some_and(|last| process.id.pid <= last.pid);
            let mut turns: BTreeMap<u64, u64> = BTreeMap::new();
            for &candidate in candidates {
                let bucket = self.bucket(&candidate, process.memory.sizes);
                let turn = turns.entry(bucket).or_insert(0);
                let key = (Reverse(bucket), *turn, is_before, process.id.pid);
                ranked.push((key, (index, candidate)));
                *turn += 1;
            }
        }
        ranked.sort_by_key(|&(key, _)| key);
        ranked.into_iter().map(|(_, ranked)| ranked).collect()
    }
}
