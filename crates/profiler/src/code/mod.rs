//! From an instruction pointer to the address that was waited for.
//!
//! A timer sample arrives between two instructions: its IP is the instruction *after* the one that was waiting for
//! memory, and its registers are those the waiting instruction left behind. [`analyse`] finds that instruction and
//! works out, once per IP, how its address follows from the sampled registers; [`Recipe::address`] then does so
//! for every sample without decoding or allocating again. [`ElfCode`] says where the functions of a file begin,
//! because x86 code can only be read forward from a known boundary.
//!
//! What cannot be known is not guessed: the recipe says [`NoAddress`] instead, and the sample has no address.
//! Nothing here makes a system call but to read ELF files.

mod access;
mod analyse;
mod effects;
mod elf;
mod emulate;
mod expression;
mod functions;
mod listing;
mod next;
mod regs;
mod rewind;
mod stride;
mod vote;

pub use analyse::{NoAddress, Recipe, analyse};
pub use elf::{CodeError, ElfCode};
pub use listing::Boundary;
pub use regs::Regs;
pub use stride::Stride;
