//! Tests of the engine in a simulated world.
