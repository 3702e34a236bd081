//! Why a tune had no trial.

use hugepilot_record::tune::NoTrial;

use super::percent;
use crate::sentence::Sentence;
use crate::table::counted;

impl Sentence for NoTrial {
    fn text(&self) -> String {
        match self {
            Self::NoClock => "the samples count page walks, not time, because the CPU clock could \
                              not be sampled beside them"
                .to_owned(),
            Self::PointerChases { ratio } => format!(
                "{} of the stalls are pointer chases, whose sampled address is that of the next \
                 access",
                percent(*ratio)
            ),
            Self::FewPairs { pairs, required, limited } => {
                let within = if *limited { " within the limits" } else { "" };
                let pairs = counted(*pairs, "pair", "pairs");
                format!("{pairs} of hot regions{within}; a trial requires {required}")
            }
            Self::FewStalls { ratio, required_ratio } => format!(
                "{} of the samples are stalls on memory that can be promoted; a trial requires {}",
                percent(*ratio),
                percent(*required_ratio)
            ),
            Self::NonePromoted { pairs } => {
                format!("none of the {pairs} promotions of the trial succeeded")
            }
            Self::PairsChanged { pairs, left } => format!(
                "{left} of {pairs} pairs were left to compare, since the program freed memory, or \
                 the kernel or another program promoted or split regions"
            ),
            Self::DominantPair { ratio } => format!(
                "one pair of regions has {} of the samples of all pairs, so chance would decide",
                percent(*ratio)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_only_where_they_excluded_pairs() {
        let text = |required, limited| NoTrial::FewPairs { pairs: 7, required, limited }.text();
        assert_eq!(text(20, false), "7 pairs of hot regions; a trial requires 20");
        assert_eq!(text(64, true), "7 pairs of hot regions within the limits; a trial requires 64");
    }
}
