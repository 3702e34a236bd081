//! Report of a tune of which nothing is known yet.

use std::collections::BTreeMap;

use hugepilot_units::Bytes;

use super::{Activity, SCHEMA, SamplerReport, TargetInfo, TuneReport};
use crate::PolicyName;

impl TuneReport {
    /// A report on `target` without any result.
    pub fn empty(target: TargetInfo, dry_run: bool, policy: PolicyName) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            target,
            sampler: SamplerReport::default(),
            ground_truth: None,
            dry_run,
            policy,
            schedule: None,
            footprint_bytes: None,
            budget_bytes: None,
            budget_of_others_bytes: None,
            selected: Vec::new(),
            skipped: BTreeMap::new(),
            skipped_stall_ratio: BTreeMap::new(),
            eligible_regions: None,
            attempted_regions: 0,
            untried_regions: 0,
            verified_regions: 0,
            demoted_regions: 0,
            lost_regions: 0,
            promotions: 0,
            demotions: 0,
            freed_by: None,
            exec: None,
            failed: BTreeMap::new(),
            huge_bytes_before: None,
            huge_bytes_after: None,
            added_bytes: Bytes::ZERO,
            lazily_freed_bytes: Bytes::ZERO,
            promotion_seconds: 0.0,
            acts_seconds: None,
            last_promotion_seconds: None,
            most_promoted_seconds: None,
            coverage_ratio: None,
            trial: None,
            no_trial: None,
            predicted_speedup: None,
            predicted_by: None,
            eligible_speedup: None,
            before: Activity::default(),
            after: None,
            metric: None,
            no_metric: None,
            load: None,
            baseline: None,
            tuned: None,
            all_huge: None,
            speedup: None,
            speedup_interval: None,
            speedup_certainty: None,
            all_huge_speedup: None,
            all_huge_speedup_interval: None,
            all_huge_speedup_certainty: None,
            all_huge_gain_ratio: None,
            all_huge_gain_interval: None,
            stopped: None,
            no_verdict: None,
            target_ended: false,
            warnings: Vec::new(),
        }
    }
}
