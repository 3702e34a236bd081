//! Runs of a kernel whose accesses are delivered as a trace.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::thread;

use hugepilot_record::trace::TracePiece;
use hugepilot_reports::graph::Trial;

use super::kernels::RunOptions;
use super::{Job, Kernel, PreparedGraph, SourceVertices};
use crate::kernel::Setup;
use crate::recorder::Recorder;
use crate::{Result, Width};

/// Runs of a traced kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracedRuns {
    /// Runs in order. Their times include recording, and waiting for the sink.
    pub runs: Vec<Trial>,
    /// Accesses that the sink received.
    pub accesses: u64,
    /// Whether the sink ended the trace.
    pub is_stopped: bool,
}

impl<V: Width> PreparedGraph<V> {
    /// Runs the trials of `job`, if it has a kernel, and delivers their accesses to `sink` in this
    /// thread. The workers of the kernel are further threads, and wait for a slow sink.
    ///
    /// Each run begins with a phase `run N`, and has a phase for its preparation and each round.
    /// Mappings are delivered before the first access in them; as a kernel allocates its arrays in
    /// each run, they change. If the sink returns `Break`, it receives no more. The run in progress
    /// then continues to its end without recording, and no other run begins.
    ///
    /// With one thread, the trace of a job is the same each time, except for addresses.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn trace(
        &self,
        job: &Job,
        sink: &mut dyn FnMut(TracePiece) -> ControlFlow<()>,
    ) -> Result<TracedRuns> {
        let mut traced = TracedRuns::default();
        let Some(kernel) = &job.kernel else { return Ok(traced) };
        let (recorder, pieces) = Recorder::new(job.pages);
        traced.runs = thread::scope(|scope| {
            let running = scope.spawn(move || self.record(kernel, job, recorder));
            for piece in pieces {
                if let TracePiece::Accesses { accesses, .. } = &piece {
                    traced.accesses += accesses.len() as u64;
                }
                if sink(piece).is_break() {
                    traced.is_stopped = true;
                    break;
                }
            }
            running.join().unwrap_or_else(|panic| resume_unwind(panic))
        })?;
        Ok(traced)
    }

    fn record(&self, kernel: &Kernel, job: &Job, recorder: Recorder) -> Result<Vec<Trial>> {
        let property_pool = self.property_pool.clone();
        let setup = Setup { pages: job.pages, pool: job.pool, tracer: recorder, property_pool };
        let options = RunOptions { verify: false, values: false };
        let (mut sources, mut runs) = (SourceVertices::new(job.source), Vec::new());
        for run in 1..=job.trials.max(1) {
            if setup.tracer.is_stopped() {
                break;
            }
            let source = if kernel.has_source() { Some(sources.next(self)?) } else { None };
            setup.tracer.phase(format_args!("run {run}"));
            let from = source.map(|source| self.relabelled(source));
            let done = kernel.run(self, from, &setup, options)?;
            let source = source.map(|source| self.id(source.at()));
            runs.push(Trial { source, seconds: done.cost.total().as_secs_f64() });
        }
        Ok(runs)
    }
}
