//! Stalls by code in the formats of other tools.

mod folded;
mod pprof;

pub use folded::folded;
pub use pprof::pprof;
