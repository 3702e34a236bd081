//! Expected stalls on each huge page, from few samples, and their cost after a split.
//!
//! A region with two samples is not twice as hot as one with one. With few samples most differences
//! are chance, and an order that trusted them would split dense huge pages at random. So each count
//! shrinks towards the mean of similar huge pages, those of the same process with about the same
//! bloat density. This is empirical Bayes with a gamma prior (Robbins 1956), whose two parameters
//! come from moments. If the counts vary no more than Poisson's law predicts, each huge page gets
//! the mean. The more they vary, the more each count is trusted.

use std::collections::BTreeMap;

use hugepilot_record::Census;
use hugepilot_stats::CountGroup;
use hugepilot_units::Region;

/// Groups by bloat density.
const GROUPS: usize = 10;
/// Returns the expected stalls on each bloated page of `census`, in its order; positive. Equal if
/// the process was not sampled.
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

/// Returns the cost of a split, in any unit, if page walks then need `table_lines` of the page
/// table.
///
/// A stall becomes expensive if its walk finds no entry in the caches. A line of the page table
/// that is used twice as often is more likely in a cache: misses fall with the square root of the
/// cache space per line (the rule of thumb of Chow 1974; Hartstein et al., JILP 2008). So the few
/// used pages of a bloated huge page cost less than their stalls suggest, and cold pages cost more:
/// `stalls · √(lines / stalls)`.
pub(super) fn cost(stalls: f64, table_lines: u32) -> f64 {
    (stalls * f64::from(table_lines.max(1))).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measured with `random-access --bloat 80,20 --hot bloated` at 8 GiB. Nine of ten updates go
    /// to the more bloated half. A split of that half cost 0.66 of the time scattered and 0.22
    /// contiguous, a split of the other half 0.21 and 0.09.
    #[test]
    fn the_cost_is_about_what_was_measured() {
        let scattered = cost(9.0, 57) / cost(1.0, 64);
        assert!((scattered / (0.66 / 0.21) - 1.0).abs() < 0.15, "{scattered}");
        let layouts = cost(9.0, 57) / cost(9.0, 13);
        assert!((layouts / (0.66 / 0.22) - 1.0).abs() < 0.35, "{layouts}");
    }
}
