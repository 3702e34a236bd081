//! Facts of a finished session. Its reports follow from these alone.

use hugepilot_record::{AccessError, Obstacle, Pid};
use hugepilot_reports::tune::{
    Activity, FoundMetric, LoadReading, NoMetric, PlannedEvent, SamplerReport, TargetInfo,
    TuneWarning,
};
use hugepilot_units::{Bytes, Nanos};

use super::TuneOptions;
use super::no_verdict::Sampled;
use crate::act_totals::ActTotals;
use crate::fold::Fold;

/// Facts of a finished session; nothing in them is judged.
#[derive(Debug, Default)]
pub struct Finished {
    /// Options, with the goal that decided the rounds.
    pub(super) options: TuneOptions,
    pub(super) begun: Nanos,
    pub(super) is_interrupted: bool,
    /// Whether each sample represents the same time.
    pub(super) samples_time: bool,
    pub(super) progress_doubts: Vec<TuneWarning>,
    /// Readings of the load; `None` if it was not read.
    pub(super) load: Option<Vec<LoadReading>>,
    /// Size of a huge page.
    pub(super) huge: Bytes,
    pub(super) targets: Vec<TargetFacts>,
}

/// Facts about a target, noted while the session runs.
#[derive(Debug, Default)]
pub(super) struct TargetFacts {
    /// The process that was named.
    pub(super) named: TargetInfo,
    /// Whether the processes that it started are part of it, as those of a single target are.
    pub(super) with_children: bool,
    /// Whether it had not started its program when the session began.
    pub(super) launched: bool,
    /// Whether it waited for children before it was sampled, which may have been forks.
    pub(super) may_fork: bool,
    /// Cause why it could not be read, before or after its first round.
    pub(super) unreadable: Option<AccessError>,
    /// Resident memory and memory on huge pages of a running process when it was first read.
    pub(super) first: Option<(Bytes, Bytes)>,
    /// Obstacles, as last read.
    pub(super) obstacles: Vec<Obstacle>,
    pub(super) fold: Fold,
    /// Program whose part it is.
    pub(super) program: Option<Program>,
    /// Counters before the first act.
    pub(super) before: Activity,
    /// Samples and counters after the last act.
    pub(super) after: Option<Activity>,
    /// Due events of a schedule, in a dry run.
    pub(super) planned: Vec<PlannedEvent>,
    /// Cgroup with a memory limit that is invisible from here.
    pub(super) hidden_limit: Option<String>,
    /// Facts at the end; `None` if it was excluded before it was sampled.
    pub(super) end: Option<TargetEnd>,
}

/// Facts about a sampled target that are read at the end of the session.
#[derive(Debug, Default)]
pub(super) struct TargetEnd {
    pub(super) sampler: SamplerReport,
    pub(super) sampled: Sampled,
    /// Share of the process of the report in all samples.
    pub(super) share: f64,
    pub(super) forks: u64,
    /// Memory on huge pages; `None` if it could not be read, or if none is mapped any more.
    pub(super) huge: Option<Bytes>,
    /// Values of the metric before the first act and after the last one, or the cause why none was
    /// found; `None` if none was looked for.
    pub(super) metric: Option<Result<FoundMetric, NoMetric>>,
}

/// Program of which several processes were decided about, each of which is a target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Program {
    /// Its resident memory at the last round of the target: the budget is a share of it.
    pub(super) resident: Bytes,
    /// First and last act in any of its processes.
    pub(super) acts: (Option<Nanos>, Option<Nanos>),
    /// Process whose report states the performance, if that is another one.
    pub(super) measured_in: Option<Pid>,
}

impl TargetFacts {
    /// Notes in the `parts` of a program what is known of it as a whole. `has_metric`: whether its
    /// performance is measured.
    pub(super) fn note_program(parts: &mut [&mut Self], acts: &ActTotals, has_metric: bool) {
        let first = parts.first().map(|part| part.named.pid).filter(|_| has_metric);
        for (index, part) in parts.iter_mut().enumerate() {
            let resident = part.program.unwrap_or_default().resident;
            let measured_in = first.filter(|_| index > 0);
            part.program = Some(Program { resident, acts: (acts.first, acts.last), measured_in });
        }
    }

    /// First and last act that count for the performance.
    pub(super) fn act_times(&self) -> (Option<Nanos>, Option<Nanos>) {
        let own = self.fold.acts();
        self.program.map_or((own.first, own.last), |program| program.acts)
    }

    /// Whether it was running when the session began, and is not part of a divided program, whose
    /// workers end while the tune goes on.
    pub(super) const fn was_given(&self) -> bool {
        !self.launched && self.program.is_none()
    }

    /// Whether nothing is known of it for lack of access.
    pub(super) fn is_excluded(&self) -> bool {
        self.unreadable.is_some() && self.fold.shown.is_none()
    }

    /// Resident memory at the last plan, otherwise when it was first read.
    pub(super) fn footprint(&self) -> Option<Bytes> {
        let first = self.first.map(|(resident, _)| resident);
        self.fold.shown().map(|shown| shown.resident).or(first)
    }
}
