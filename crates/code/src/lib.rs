//! Data addresses of samples, recomputed from instructions and registers.
//!
//! A timer sample arrives between two instructions: its IP is the instruction *after* the one that
//! stalled on memory, and its registers are the results of the stalled instruction. [`analyse`]
//! finds that instruction and, once per IP, how its address follows from the sampled registers.
//! [`Recipe::address`] then computes it for every sample without decoding or allocation.
//! [`ElfCode`] finds the functions of a file, because x86 code can be decoded only forward from a
//! known boundary.
//!
//! Unknown addresses are not guessed: the recipe has a [`NoAddress`] instead, and the sample has no
//! address. Only reading ELF files makes system calls.

#![forbid(unsafe_code)]

mod access;
mod analyse;
mod effects;
mod elf;
mod emulate;
mod expression;
mod frameless;
mod functions;
mod listing;
mod next;
mod regs;
mod rewind;
mod stride;
mod vote;

pub use analyse::{NoAddress, Recipe, analyse};
pub use elf::{CodeError, ElfCode};
pub use frameless::is_frameless;
pub use listing::Boundary;
pub use regs::Regs;
pub use stride::Stride;
