//! How many stalls to expect on each huge page, from a few samples, and what they will cost once it is split.
//!
//! A region sampled twice is not twice as hot as one sampled once: with so few samples most differences are chance, and an
//! order that believed them would split dense huge pages that were lucky. So each count is drawn towards the mean of its
//! likes, the huge pages of the same process with about the same bloat density, as far as the counts of these look like
//! chance. This is empirical Bayes with a gamma prior (Robbins 1956), moments for its two parameters: if counts scatter no
//! more than Poisson's law lets them, all of the group get the mean; the more they do, the more each count is believed.

use std::collections::BTreeMap;

use hugepilot_record::Census;
use hugepilot_units::Region;

/// Groups by bloat density.
const GROUPS: usize = 10;
/// A process without samples: so many are taken to have been missed in all of it.
const UNSEEN: f64 = 0.5;

/// The counts of some huge pages.
#[derive(Clone, Copy, Default)]
struct Group {
    pages: f64,
    sum: f64,
    squares: f64,
}

impl Group {
    fn add(&mut self, count: f64) {
        self.pages += 1.0;
        self.sum += count;
        self.squares += count * count;
    }

    /// What to expect of a page that was sampled `count` times, in a process that has `all` of these.
    fn expected(&self, count: f64, all: &Self) -> f64 {
        // A group of few pages says little about itself, so one page like the average is thought to it.
        let average = all.sum.max(UNSEEN) / all.pages;
        let mean = ((self.sum + average) / (self.pages + 1.0)).max(UNSEEN / all.pages);
        let variance = self.squares / self.pages - (self.sum / self.pages).powi(2);
        let beyond_chance = variance - mean;
        if beyond_chance <= 0.0 {
            return mean;
        }
        // The gamma prior has this mean and, beyond Poisson's, this variance.
        let shape = mean * mean / beyond_chance;
        mean * (count + shape) / (mean + shape)
    }
}

/// Expected stalls on each of the bloated pages of `census`, in their order; positive. All alike where nobody looked.
pub(super) fn expected(census: &Census, stalls: Option<&BTreeMap<Region, u32>>) -> Vec<f64> {
    let Some(stalls) = stalls else { return vec![1.0; census.bloated.len()] };
    let base_pages = usize::try_from(census.sizes.base_per_huge()).unwrap_or(usize::MAX);
    let group_of = |zero_pages: u32| (zero_pages as usize * GROUPS / base_pages).min(GROUPS - 1);
    let count_of = |region| f64::from(stalls.get(&region).copied().unwrap_or(0));
    let (mut groups, mut all) = ([Group::default(); GROUPS], Group::default());
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

    fn group(counts: impl IntoIterator<Item = f64>) -> Group {
        let mut group = Group::default();
        counts.into_iter().for_each(|count| group.add(count));
        group
    }

    #[test]
    fn differences_that_look_like_chance_are_not_believed() {
        // Mean 2, variance 1.5: less than chance alone would give.
        let even = group([1.0, 1.0, 2.0, 4.0]);
        assert!(
            [0.0, 1.0, 4.0].iter().all(|&count| (even.expected(count, &even) - 2.0).abs() < 1e-12)
        );
    }

    #[test]
    fn differences_beyond_chance_are() {
        let uneven = group((0..100).map(|page| if page < 90 { 0.0 } else { 40.0 }));
        // Mean 4, variance 144: shape 16/140, so 0 becomes 4·0.114/4.114 and 40 becomes 4·40.114/4.114.
        assert!((uneven.expected(0.0, &uneven) - 0.1111).abs() < 1e-3);
        assert!((uneven.expected(40.0, &uneven) - 39.0).abs() < 0.01);
    }

    /// What was measured of `random-access --bloat 80,20 --hot bloated` at 8 GiB: nine of ten updates fall on the emptier half;
    /// to split it cost 0.66 of the time scattered and 0.22 contiguous, the other half 0.21 and 0.09.
    #[test]
    fn the_cost_is_about_what_was_measured() {
        let scattered = cost(9.0, 57) / cost(1.0, 64);
        assert!((scattered / (0.66 / 0.21) - 1.0).abs() < 0.15, "{scattered}");
        let layouts = cost(9.0, 57) / cost(9.0, 13);
        assert!((layouts / (0.66 / 0.22) - 1.0).abs() < 0.35, "{layouts}");
    }

    #[test]
    fn a_single_page_is_not_judged_by_its_own_luck_alone() {
        let all = group((0..100).map(|_| 2.0));
        let single = group([0.0]);
        assert!((single.expected(0.0, &all) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_process_without_samples_is_cold_but_not_free_and_all_of_it_alike() {
        let unseen = group([0.0; 50]);
        for pages in [1, 20] {
            let part = group(vec![0.0; pages]);
            assert!((part.expected(0.0, &unseen) - 0.01).abs() < 1e-12);
        }
    }
}
