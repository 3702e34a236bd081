//! What takes a large graph, or a process of its own.

mod graph500;
mod peak;
