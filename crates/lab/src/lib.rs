//! Experiments on huge pages, and the weather that they need: memory that is short, fragmented or
//! full of files.

#![forbid(unsafe_code)]

pub mod experiment;
