//! Trials: what huge pages gain in a running program, measured between halves chosen by a coin.
//!
//! Candidates with similar heat form pairs. A seeded coin promotes one region of each pair. Samples
//! of both arms before and after, in the same windows, give the ratio of stall time on huge pages
//! to that on base pages. Drift of the machine and phases of the program affect both arms alike and
//! cancel.
//!
//! The coin is essential. The hottest half compared with the rest has a "gain" of 2 to 4 times with
//! nothing promoted: regression to the mean.
//!
//! Two biases remain. Stalls of huge pages may end in the shadow of those on base pages (overlap),
//! which overstates the gain; walks of the control arm become cheaper, too (spill-over), which
//! understates it. So a trial gives a bracket and a verdict, not a number.

mod assign;
mod estimate;
mod gain;

pub use assign::{Pair, assign};
pub use estimate::{Estimate, PairCounts};
pub use gain::{StallShares, TrialRules, speedup};
