//! Tests of the library as C and C++ programs use it: installed, found by pkg-config or CMake,
//! compiled against and linked.
//!
//! Each test prints what it lacks and then skips itself.

#![forbid(unsafe_code)]

mod built; // an installed library, compilers, and running what they made
mod examples; // the examples, in C by pkg-config and in C++ by CMake
mod header; // the header against the library
mod programs; // test programs in C and C++, by each compiler, under sanitizers
mod readme; // the program of the guide
