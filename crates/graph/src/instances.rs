//! Instances of generic code, compiled once in this crate for both widths.
//!
//! Below `opt-level` 2, the compiler shares the instances of a crate with its dependents. Without
//! this module, each test would compile all kernels and loaders itself. Release builds do not share
//! instances.

use std::ops::ControlFlow;
use std::path::Path;

use hugepilot_record::graph::Trial;
use hugepilot_record::trace::TracePiece;

use crate::run::{Job, JobResult, PreparedGraph, TracedRuns};
use crate::{
    Build, EdgeList, Format, Graph, Grid, Kronecker, LoadOptions, LoadedGraph, Result, Uniform,
    Width, load, save,
};

/// Names the instances. Never called.
#[doc(hidden)]
pub fn instances() -> [usize; 2] {
    [of::<u32>(), of::<u64>()]
}

fn of<V: Width>() -> usize {
    type BuildFn<V, S> = fn(&Build, &S) -> Result<Graph<V>>;
    let read: fn(&Path, &LoadOptions<'_>) -> Result<LoadedGraph<V>> =
        |path, options| load(path, options);
    let write: fn(&Path, Format, &Graph<V>) -> Result<_> =
        |path, format, graph| save(path, true, format, graph, None);
    let prepare: fn(&Job, Graph<V>) -> Result<PreparedGraph<V>> =
        |job, graph| job.prepare(graph, Default::default(), None);
    let run: fn(PreparedGraph<V>, &Job) -> Result<JobResult> =
        |prepared, job| prepared.run(job, |_: &Trial| {});
    type Sink<'a> = &'a mut dyn FnMut(TracePiece) -> ControlFlow<()>;
    let trace: fn(&PreparedGraph<V>, &Job, Sink<'_>) -> Result<TracedRuns> =
        |prepared, job, sink| prepared.trace(job, sink);
    let kronecker: BuildFn<V, Kronecker> = |build, source| build.graph(source);
    let uniform: BuildFn<V, Uniform> = |build, source| build.graph(source);
    let grid: BuildFn<V, Grid> = |build, source| build.graph(source);
    let list: BuildFn<V, EdgeList> = |build, source| build.graph(source);
    let all = [kronecker as usize, uniform as usize, grid as usize, list as usize];
    all.into_iter().fold(
        read as usize ^ write as usize ^ prepare as usize ^ run as usize ^ trace as usize,
        |a, b| a ^ b,
    )
}
