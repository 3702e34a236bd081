//! Random numbers of simulations, repeatable by seed.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts the sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number uniform in [0, 1).
    #[allow(clippy::cast_precision_loss)]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a standard normal number (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns a Poisson number with this mean (Knuth's product of uniform numbers).
    pub fn poisson(&mut self, mean: f64) -> u32 {
        // The product of a large mean underflows; sums of Poisson numbers are Poisson numbers.
        if mean > 100.0 {
            return self.poisson(100.0) + self.poisson(mean - 100.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::cast_precision_loss)]
    fn means_and_variances_are_those_of_the_distributions() {
        let mut rng = Rng::new(1);
        let mut moments = |draw: &mut dyn FnMut(&mut Rng) -> f64| {
            let drawn: Vec<f64> = (0..20_000).map(|_| draw(&mut rng)).collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            let squares: f64 = drawn.iter().map(|number| (number - mean).powi(2)).sum();
            (mean, squares / drawn.len() as f64)
        };
        let close = |(mean, variance): (f64, f64), expected: (f64, f64)| {
            let error = (expected.1 / 20_000.0).sqrt();
            assert!((mean - expected.0).abs() < 4.0 * error, "mean {mean}, not {}", expected.0);
            assert!((variance / expected.1 - 1.0).abs() < 0.06, "variance {variance}");
        };
        close(moments(&mut |rng| rng.unit()), (0.5, 1.0 / 12.0));
        close(moments(&mut |rng| rng.normal()), (0.0, 1.0));
        for mean in [0.3, 20.0, 350.0] {
            close(moments(&mut |rng| f64::from(rng.poisson(mean))), (mean, mean));
        }
    }
}
