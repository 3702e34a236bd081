//! Statistics of repeated measurements: one definition each, for reports, policies and benchmarks.
//!
//! Functions are pure. They allocate at most one copy of their input.
//!
//! ```
//! use hugepilot_stats::{PairedRatio, Spread, is_significant};
//!
//! let (base, huge) = ([2.0, 2.1, 2.0, 2.2, 2.0], [1.6, 1.7, 1.6, 1.7, 1.6]);
//! assert_eq!(Spread::of(&base).unwrap().median, 2.0);
//! let speedup = PairedRatio::of(base.into_iter().zip(huge)).unwrap();
//! assert_eq!((speedup.rounds, speedup.faster_rounds), (5, 5));
//! assert!(is_significant(speedup.faster_rounds, speedup.rounds));
//! ```

#![forbid(unsafe_code)]

mod change_points;
mod distribution;
mod fairness;
mod interval;
mod neighbours;
mod paired;
mod rounds;
mod sequence;
mod shrinkage;
mod sign_test;
mod split_mix;
mod spread;

pub use change_points::change_points;
pub use distribution::{Burstiness, Distribution};
pub use fairness::{Fairness, fairness, slowdowns};
pub use interval::share_margin;
pub use neighbours::NeighbourShrinkage;
pub use paired::{PairedRatio, Ratios};
pub use rounds::{Orders, Rounds, in_order};
pub use sequence::{rate_exceeds, sequence_margin};
pub use shrinkage::CountGroup;
pub use sign_test::{LEVEL, MIN_ROUNDS, is_significant, required_wins};
pub use split_mix::{SplitMix64, mix};
pub use spread::{Spread, lower_median, median, sorted};
