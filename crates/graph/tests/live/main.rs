//! Tests that require a large graph, or a separate process.

mod graph500;
mod peak;
