//! Measurement of a live process: the addresses on which it stalls, and the heat of each region.
//!
//! [`choose`] attaches the best sampler to a process, [`choose_all`] to several; [`Observation`]
//! collects the samples per process, [`take_census`] counts zero-filled base pages of huge pages.

#![forbid(unsafe_code)]

pub mod calibrate;
mod census;
mod codemap;
mod cost;
mod fetches;
mod forks;
mod hardware;
mod lazily_freed;
mod load;
mod observe;
mod process_census;
mod process_memory;
mod progress;
mod reach;
pub mod recorder;
mod source;
mod stall;
mod stored;
mod streams;
mod tally;
mod work_rate;

pub use census::{Scanner, ZeroFilled, zero_filled};
pub use cost::sample_cost;
pub use lazily_freed::region_pages;
pub use load::LoadReader;
pub use observe::{Observation, ProcessView};
pub use process_census::{ProcessCensus, large_pages, take_census};
pub use process_memory::{MAX_REGIONS, read_memory, read_regions, read_sampled};
pub use progress::ProgressReader;
pub use reach::{TlbReach, tlb_size};
pub use source::{
    AddressSource, AttachResults, SamplerChoice, Sampling, UnavailableCause, UnavailableSampler,
    check_sampling, choose, choose_all, choose_with, clock_all, clock_beside,
};
pub use stored::directory as stored_directory;
pub use work_rate::WorkReader;
