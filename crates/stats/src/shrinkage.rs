//! Shrinkage of counts towards the mean of their group.
//!
//! With few samples most differences between counts are chance. Empirical Bayes with a gamma prior
//! (Robbins 1956) draws each count towards the mean of its group. The method of moments gives the
//! two parameters. If counts scatter no more than Poisson's law, every member gets the mean; the
//! more they scatter, the more weight each count has.

/// Sum of a group whose members were all counted as zero: half an event in the whole group.
const UNSEEN: f64 = 0.5;

/// Counts of the members of one group, as their first two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountGroup {
    members: f64,
    sum: f64,
    squares: f64,
}

impl CountGroup {
    /// Adds a member with this count.
    pub fn add(&mut self, count: f64) {
        self.members += 1.0;
        self.sum += count;
        self.squares += count * count;
    }

    /// Expected count of a member that was counted `count` times. `all` holds this group and its
    /// neighbours; both have at least one member.
    pub fn expected(&self, count: f64, all: &Self) -> f64 {
        // A small group says little about itself, so one average member is added to it.
        let average = all.sum.max(UNSEEN) / all.members;
        let mean = ((self.sum + average) / (self.members + 1.0)).max(UNSEEN / all.members);
        let variance = self.squares / self.members - (self.sum / self.members).powi(2);
        let beyond_chance = variance - mean;
        if beyond_chance <= 0.0 {
            return mean;
        }
        // The gamma prior has this mean and, beyond Poisson's, this variance.
        let shape = mean * mean / beyond_chance;
        mean * (count + shape) / (mean + shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(counts: impl IntoIterator<Item = f64>) -> CountGroup {
        let mut group = CountGroup::default();
        counts.into_iter().for_each(|count| group.add(count));
        group
    }

    #[test]
    fn differences_within_chance_are_not_believed() {
        // Mean 2, variance 1.5: less than chance alone would give.
        let even = group([1.0, 1.0, 2.0, 4.0]);
        let is_mean = |&count: &f64| (even.expected(count, &even) - 2.0).abs() < 1e-12;
        assert!([0.0, 1.0, 4.0].iter().all(is_mean));
    }

    #[test]
    fn differences_beyond_chance_are_believed() {
        let uneven = group((0..100).map(|page| if page < 90 { 0.0 } else { 40.0 }));
        // Mean 4, variance 144: shape 16/140. So 0 becomes 4·0.114/4.114, and 40 becomes
        // 4·40.114/4.114.
        assert!((uneven.expected(0.0, &uneven) - 0.1111).abs() < 1e-3);
        assert!((uneven.expected(40.0, &uneven) - 39.0).abs() < 0.01);
    }

    #[test]
    fn a_group_of_one_is_drawn_to_the_average_of_all() {
        let all = group((0..100).map(|_| 2.0));
        assert!((group([0.0]).expected(0.0, &all) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn unseen_groups_expect_little_but_not_zero() {
        let unseen = group([0.0; 50]);
        for members in [1, 20] {
            let part = group(vec![0.0; members]);
            assert!((part.expected(0.0, &unseen) - 0.01).abs() < 1e-12);
        }
    }
}
