//! Reports of recordings, through the crate's public functions.

mod back_ends;
mod both;
mod browser;
mod census;
mod commands;
mod example;
mod goldens;
mod hostile;
mod phases;
mod plots;
mod pmu;
mod scripted;
