//! Start of the recorder, with its sampler and counters.

use hugepilot_kernel::perf::traffic::memory_traffic;
use hugepilot_kernel::{Process, Root, Target, cpu, memory};
use hugepilot_profiler::recorder::{
    EventCounters, MetricSource, Recorder, RecorderOptions, Stalls, SystemCounters,
};
use hugepilot_profiler::{Sampling, choose_with};

use super::{MAX_PROCESSES, RecordOptions};
use crate::LaunchError;

/// Attaches to running processes.
pub(super) fn running(
    processes: Vec<Process>,
    options: &RecordOptions,
) -> Result<Recorder, LaunchError> {
    let root = Root::live();
    let sizes = memory::page_sizes(&root)?;
    let with_children = processes.len() == 1;
    let (stalls, warnings) = stalls(&processes, options, with_children);
    let settings = RecorderOptions {
        every: options.every,
        with_children,
        max_processes: MAX_PROCESSES,
        rate_hz: options.rate_hz.unwrap_or(0),
        callers: options.callers,
    };
    let sources: Vec<Box<dyn MetricSource>> =
        vec![Box::new(EventCounters::new(options.events.clone()))];
    let mut recorder = Recorder::new(&root, sizes, settings, stalls, sources);
    let traffic = memory_traffic(&root, &cpu::read(&root).unwrap_or_default());
    recorder.count_system(SystemCounters::open(&root, options.events.clone(), traffic));
    for process in processes {
        recorder.watch(process);
    }
    for warning in warnings {
        recorder.warn(warning);
    }
    Ok(recorder)
}

/// Starts the sampler. Returns warnings about processes that are not sampled.
fn stalls(
    processes: &[Process],
    options: &RecordOptions,
    with_children: bool,
) -> (Stalls, Vec<String>) {
    let Some(rate_hz) = options.rate_hz else {
        return (Stalls::Missing("disabled by --no-stalls".to_owned()), Vec::new());
    };
    let sampling = Sampling { rate_hz, with_children, callers: options.callers };
    let all: Vec<&Process> = processes.iter().collect();
    let (chosen, mut attached) = match choose_with(&all, sampling) {
        Ok(chosen) => chosen,
        Err(error) => return (Stalls::Missing(error.to_string()), Vec::new()),
    };
    if let [Err(error)] = &attached[..] {
        return (Stalls::Missing(error.to_string()), Vec::new());
    }
    let failed = processes.iter().zip(attached.drain(..)).filter_map(|(process, attached)| {
        let error = attached.err()?;
        Some(format!("process {} is not sampled: {error}", process.id().pid))
    });
    (Stalls::Sampled(chosen), failed.collect())
}
