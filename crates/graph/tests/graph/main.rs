//! The library from outside: one program, because each program that uses the generic kernels
//! compiles them again.

mod alloc_order;
mod build;
mod jobs;
mod kernels;
mod larger;
mod ldbc;
mod load;
mod trace;
