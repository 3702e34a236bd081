//! Measures a live process: which addresses it waits for, and how hot that makes each 2 MiB region.

#![forbid(unsafe_code)]

pub mod code;
