//! Fairness of slowdowns among several programs.

/// How evenly programs were slowed down (Craeynest et al.; EMD, section 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fairness {
    /// Mean slowdown μ; 1 means none.
    pub mean_slowdown: f64,
    /// Standard deviation σ over these programs (of the population, not of a sample).
    pub deviation: f64,
    /// 1 − σ/μ. 1 if all slowdowns are equal; below 0 if σ exceeds μ, which takes three programs.
    pub fairness_ratio: f64,
}

/// Slowdown of each program: its time for fixed work during reclaim over its time without.
///
/// `None` if the lists differ in length or a time is not positive and finite.
pub fn slowdowns(baseline_seconds: &[f64], debloat_seconds: &[f64]) -> Option<Vec<f64>> {
    let times = baseline_seconds.iter().zip(debloat_seconds);
    let slowdown =
        |(&baseline, &debloat)| (is_time(baseline) && is_time(debloat)).then(|| debloat / baseline);
    (baseline_seconds.len() == debloat_seconds.len()).then(|| times.map(slowdown).collect())?
}

/// Fairness of `slowdowns`; `None` if there are none or one is not positive and finite.
#[allow(clippy::cast_precision_loss)]
pub fn fairness(slowdowns: &[f64]) -> Option<Fairness> {
    if slowdowns.is_empty() || !slowdowns.iter().all(|&slowdown| is_time(slowdown)) {
        return None;
    }
    let count = slowdowns.len() as f64;
    let mean_slowdown = slowdowns.iter().sum::<f64>() / count;
    let squares = slowdowns.iter().map(|slowdown| (slowdown - mean_slowdown).powi(2));
    let deviation = (squares.sum::<f64>() / count).sqrt();
    Some(Fairness { mean_slowdown, deviation, fairness_ratio: 1.0 - deviation / mean_slowdown })
}

fn is_time(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-6
    }

    #[test]
    fn two_of_four_slowed_down_are_not_fair() {
        // EMD, section 5.3.2, at 40 %. By hand: μ = 4.51/4; the deviations .1325, .1225, −.1275,
        // −.1275 have the squares .01755625, .01500625, .01625625, .01625625, with mean .01626875.
        let fair = fairness(&[1.26, 1.25, 1.0, 1.0]).unwrap();
        assert!(close(fair.mean_slowdown, 1.1275));
        assert!(close(fair.deviation, 0.127_549_020));
        assert!(close(fair.fairness_ratio, 0.886_874_483));
    }

    #[test]
    fn equal_slowdowns_are_fair_however_large() {
        for slowdown in [1.0, 1.25, 4.0] {
            assert!(close(fairness(&[slowdown; 4]).unwrap().fairness_ratio, 1.0));
        }
        assert!(close(fairness(&[3.0]).unwrap().fairness_ratio, 1.0));
    }

    #[test]
    fn the_deviation_is_that_of_all_programs_not_of_a_sample() {
        // By hand: μ = 2, σ = 1; a sample's would be √2.
        let fair = fairness(&[1.0, 3.0]).unwrap();
        assert!(close(fair.deviation, 1.0) && close(fair.fairness_ratio, 0.5));
    }

    #[test]
    fn slowdowns_are_times_over_baseline_times() {
        assert_eq!(slowdowns(&[10.0, 4.0], &[12.5, 4.0]), Some(vec![1.25, 1.0]));
        assert_eq!(slowdowns(&[10.0], &[12.5, 4.0]), None);
        assert_eq!(slowdowns(&[0.0], &[1.0]), None);
        assert_eq!(slowdowns(&[1.0], &[f64::NAN]), None);
    }

    #[test]
    fn without_slowdowns_there_is_no_fairness() {
        assert_eq!(fairness(&[]), None);
        assert_eq!(fairness(&[1.0, f64::INFINITY]), None);
    }
}
