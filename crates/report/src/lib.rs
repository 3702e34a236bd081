//! Text and JSON out of records: pure, so a recording made elsewhere prints the same.

#![forbid(unsafe_code)]

mod doctor;

pub use doctor::doctor_text;
