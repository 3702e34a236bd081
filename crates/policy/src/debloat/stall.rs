//! How many stalls to expect on each huge page, from a few samples, and what they will cost once it is split.
//!
//! A region sampled twice is not twice as hot as one sampled once: with so few samples most differences are chance, and an
//! order that believed them would split dense huge pages that were lucky. So each count is drawn towards the mean of its
//! likes, the huge pages of the same process with about the same bloat density, as far as the counts of these look like
//! chance. This is empirical Bayes with a gamma prior (Robbins 1956), moments for its two parameters: if counts scatter no
//! more than Poisson's law lets them, all of the group get the mean; the more they do, the more each count is believed.

use std::collections::BTreeMap;

use hugepilot_record::Census;
use hugepilot_stats::CountGroup;
use hugepilot_units::Region;

/// Groups by bloat density.
const GROUPS: usize = 10;
/// Expected stalls on each of the bloated pages of `census`, in their order; positive. All alike where nobody looked.
pub(super) fn expected(census: &Census, stalls: Option<&BTreeMap<Region, u32>>) -> Vec<f64> {
    let Some(stalls) = stalls else { return vec![1.0; census.bloated.len()] };
    let base_pages = usize::try_from(census.sizes.base_per_huge()).unwrap_or(usize::MAX);
    let group_of = |zero_pages: u32| (zero_pages as usize * GROUPS / base_pages).min(GROUPS - 1);
    let count_of = |region| f64::from(stalls.get(&region).copied().unwrap_or(0));
    let (mut groups, mut all) = ([CountGroup::default(); GROUPS], CountGroup::default());
    for page in &census.bloated {
        let count = count_of(page.region);
        groups[group_of(page.zero_pages)].add(count);
        all.add(count);
    }
    let expected = census
        .bloated
        .iter()
        .map(|page| groups[group_of(page.zero_pages)].expected(count_of(page.region), &all));
    expected.collect()
}

/// What it costs to split a huge page with so many stalls, in any unit, when walks then need `table_lines` of the page table.
///
/// A stall becomes dear when its walk finds no entry in the caches. A line of the page table that is used twice as often is
/// the likelier to be there: misses fall with the root of what a cache offers each line (the rule of thumb of Chow 1974;
/// Hartstein et al., JILP 2008). So the few used pages of an empty huge page cost less than their stalls say, and cold pages
/// cost more: `stalls · √(lines / stalls)`.
pub(super) fn cost(stalls: f64, table_lines: u32) -> f64 {
    (stalls * f64::from(table_lines.max(1))).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was measured of `random-access --bloat 80,20 --hot bloated` at 8 GiB: nine of ten updates fall on the emptier half;
    /// to split it cost 0.66 of the time scattered and 0.22 contiguous, the other half 0.21 and 0.09.
    #[test]
    fn the_cost_is_about_what_was_measured() {
        let scattered = cost(9.0, 57) / cost(1.0, 64);
        assert!((scattered / (0.66 / 0.21) - 1.0).abs() < 0.15, "{scattered}");
        let layouts = cost(9.0, 57) / cost(9.0, 13);
        assert!((layouts / (0.66 / 0.22) - 1.0).abs() < 0.35, "{layouts}");
    }
}
