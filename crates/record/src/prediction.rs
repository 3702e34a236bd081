//! Predicted speedup.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Estimated speedup: 1.25 means 25 % more work in the same time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// Lower bound.
    pub low: f64,
    /// Best estimate.
    pub median: f64,
    /// Upper bound.
    pub high: f64,
}
