//! Surface of the command line: outputs, the JSON Schemas, and the documents about both.
//!
//! `BLESS=1` rewrites the golden `tests/shapes.txt`.

#![forbid(unsafe_code)]

mod documents;
mod markdown;
mod outputs;
mod remedies;
mod schemas;
#[path = "../validation/mod.rs"]
mod validation;

/// Root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
