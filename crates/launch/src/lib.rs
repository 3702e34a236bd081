//! Programs that hugepilot starts: on chosen pages ([`run`]), in several page modes ([`compare`]),
//! tuned from start to end ([`tune`]), as the demonstration ([`demo`]), or with other prefetchers
//! ([`run_with_prefetchers`]).
//!
//! `effect`, `reach`, `worth` and `forked` judge finished runs; they are pure.

#![forbid(unsafe_code)]

pub mod baseline;
pub mod compare;
pub mod demo;
mod effect;
mod error;
mod forked;
mod prefetch;
pub mod program;
mod reach;
pub mod record;
pub mod run;
pub mod tune;
mod worth;

pub use effect::{Holder, Obstacles, PromotionObstacle, Promotions, effect};
pub use error::LaunchError;
pub use forked::pool_warning;
pub use prefetch::run_with_prefetchers;
pub use reach::reach_warning;
pub use worth::{confirming_rounds, to_confirm, verdict};
