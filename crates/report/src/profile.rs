//! Stalls by code in the formats of other tools.

mod firefox;
mod folded;
mod pprof;

pub use firefox::{firefox, firefox_note};
pub use folded::folded;
pub use pprof::pprof;
