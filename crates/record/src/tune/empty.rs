//! Report of a tune of which nothing is known yet.

use super::{SCHEMA, TargetInfo, TuneReport};
use crate::PolicyName;

impl TuneReport {
    /// A report on `target` without any result.
    pub fn empty(target: TargetInfo, dry_run: bool, policy: PolicyName) -> Self {
        Self { schema: SCHEMA.to_owned(), target, dry_run, policy, ..Self::default() }
    }
}
