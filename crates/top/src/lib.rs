//! All processes at a glance, look by look: memory on huge pages, stalls, predicted gain. Only
//! reads, and stays within a CPU budget.
//!
//! [`Top`] folds looks into a report; it reads the machine through [`ProcessTable`]. Each look
//! lists the processes. Reads of huge pages, which walk page tables, and new samplers wait until
//! the budget of [`crate::budget`] has CPU time for them.

#![forbid(unsafe_code)]

pub mod bloat;
pub mod budget;
pub mod machine;
pub mod status;
mod table;

use std::collections::BTreeMap;

use hugepilot_kernel::{KernelError, access_error};
use hugepilot_policy::{Calibration, PredictionInput, predict};
use hugepilot_record::{AccessError, Answer, Pid, Prediction, SkipReason};
use hugepilot_reports::top::{SCHEMA, TopNote, TopProcess, TopReport, TopWarning};
use hugepilot_reports::tune::{MAX_UNKNOWN, MIN_GAIN, MIN_STALLS};
use hugepilot_units::{Bytes, Nanos};

pub use table::{ListedProcess, NewSamples, ProcessTable, StalledPages};

use budget::{LIMIT, LookBudget, SamplingCandidate, read_order, to_sample};

/// Samples from which a share of stalls is reported.
const MIN_SAMPLES: f64 = 50.0;
/// Time after which a sample counts half.
const HALF_LIFE_SECONDS: f64 = 15.0;
/// Looks after which the huge pages of an idle or unreadable process are read again.
const REREAD_LOOKS: u64 = 30;

/// Memory of large pages that are mapped in part for which there is a warning.
const MUCH_IN_PART: Bytes = Bytes::mib(64);

/// A process and its start time, which distinguishes it from later ones with its pid.
type Key = (Pid, u64);

/// Recent samples, weighted by age.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    samples: f64,
    stalled: f64,
    chased: f64,
    addressed: f64,
    unknown_ratio: f64,
    pages: Option<StalledPages>,
    hot: Bytes,
}

impl Sums {
    fn fade(&mut self, time: Nanos) {
        let kept = 0.5_f64.powf(time.as_seconds() / HALF_LIFE_SECONDS);
        for sum in [&mut self.samples, &mut self.stalled, &mut self.chased, &mut self.addressed] {
            *sum *= kept;
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn add(&mut self, new: NewSamples) {
        self.samples += new.samples as f64;
        self.stalled += new.stalled as f64;
        self.chased += new.chased as f64;
        self.addressed += new.addressed as f64;
        self.unknown_ratio = new.unknown_ratio;
        self.pages = new.pages.or(self.pages);
        self.hot = new.hot.max(self.hot);
    }

    fn stall_ratio(&self) -> Option<f64> {
        (self.samples >= MIN_SAMPLES).then(|| (self.stalled / self.samples).clamp(0.0, 1.0))
    }

    /// Whether huge pages would help, and what blocks them; `None` without enough samples.
    fn answer(&self, predicted: Option<Prediction>) -> Option<(Answer, Option<SkipReason>)> {
        let stalls = self.stall_ratio()?;
        let pages = match self.pages {
            _ if self.unknown_ratio > MAX_UNKNOWN => return Some((Answer::CannotTell, None)),
            None if stalls >= MIN_STALLS => return Some((Answer::CannotTell, None)),
            pages => pages.unwrap_or_default(),
        };
        let blocked = stalls * pages.blocked_ratio;
        Some(match predicted {
            _ if blocked >= MIN_STALLS && pages.blocked_ratio > pages.base_ratio => {
                (Answer::Blocked, pages.blocked_by)
            }
            _ if stalls * pages.base_ratio < MIN_STALLS => (Answer::NoGain, None),
            Some(predicted) if predicted.median >= MIN_GAIN => (Answer::Gain, None),
            Some(_) => (Answer::NoGain, None),
            None => (Answer::CannotTell, None),
        })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn predicted(&self, calibration: &Calibration) -> Option<Prediction> {
        let input = PredictionInput {
            heat_ratio: self.stall_ratio()? * self.pages?.base_ratio,
            samples: self.samples as u64,
            hot: self.hot,
            chased_ratio: self.chased / self.addressed.max(1.0),
        };
        predict(input, calibration)
    }
}

/// Known facts about a process.
#[derive(Debug, Default)]
struct Known {
    user: (Option<u32>, Option<String>),
    listed: Option<(Nanos, Nanos)>,
    cpu_ratio: Option<f64>,
    huge: Option<Bytes>,
    denied: Option<AccessError>,
    /// Look and CPU time of the last read of huge pages.
    read: Option<(u64, Nanos)>,
    zero_filled: Option<Bytes>,
    sums: Sums,
    is_sampled: bool,
    refused: Option<String>,
}

impl Known {
    /// Whether its huge pages should be read in this look: it ran since, or long ago.
    fn is_due(&self, look: u64, cpu: Nanos) -> bool {
        self.read.is_none_or(|(read, then)| {
            look - read >= REREAD_LOOKS || (cpu > then && self.denied.is_none())
        })
    }
}

/// Series of looks, and their findings so far.
pub struct Top<T> {
    table: T,
    calibration: Calibration,
    budget: LookBudget,
    began: (Nanos, Nanos),
    last: Option<Nanos>,
    looks: u64,
    known: BTreeMap<Key, Known>,
    /// Processes of which the last look took samples.
    sampled: u64,
}

impl<T: ProcessTable> Top<T> {
    /// Begins, without a look.
    pub fn new(table: T, interval: Nanos, calibration: Calibration) -> Self {
        let began = (table.now(), Nanos::ZERO);
        let budget = LookBudget::new(interval, began.0, table.cpu_time());
        let known = BTreeMap::new();
        Self { table, calibration, budget, began, last: None, looks: 0, known, sampled: 0 }
    }

    /// Returns the machine.
    pub const fn table(&self) -> &T {
        &self.table
    }
    /// Returns the machine, to drain its samplers.
    pub const fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }
    /// Returns the interval that the user wants.
    pub const fn interval(&self) -> Nanos {
        self.budget.interval()
    }
    /// Changes the interval between looks; the budget may make it longer.
    pub const fn set_interval(&mut self, interval: Nanos) {
        self.budget.set_interval(interval);
    }

    /// Sets the zero-filled bytes that a count on request found.
    pub fn set_zero_filled(&mut self, pid: Pid, bytes: Option<Bytes>) {
        let of_pid = (pid, 0)..=(pid, u64::MAX);
        self.known.range_mut(of_pid).for_each(|(_, known)| known.zero_filled = bytes);
    }

    /// Cancels the debt of CPU time, for work that the user requested.
    pub fn forgive(&mut self) {
        let (now, cpu) = (self.table.now(), self.table.cpu_time());
        self.budget.pause(now, cpu, Nanos::ZERO);
        self.budget.forgive();
    }

    /// Grants the largest savings of CPU time, for a command that looks for a few seconds only.
    pub fn refill(&mut self) {
        let (now, cpu) = (self.table.now(), self.table.cpu_time());
        self.budget.pause(now, cpu, Nanos::ZERO);
        self.budget.refill();
    }

    /// Looks once, and returns the report and the pause until the next look.
    ///
    /// # Errors
    /// If `/proc` cannot be listed.
    pub fn look(&mut self) -> Result<(TopReport, Nanos), KernelError> {
        let (now, cpu_before) = (self.table.now(), self.table.cpu_time());
        let listed = self.table.list()?;
        self.looks += 1;
        self.update(&listed, now);
        let list_cost = self.table.cpu_time() - cpu_before;
        self.sample(&listed, now);
        self.read(&listed);
        let interval = self.last.map_or(Nanos::ZERO, |last| now - last);
        self.last = Some(now);
        let report = self.report(listed, interval);
        let pause = self.budget.pause(self.table.now(), self.table.cpu_time(), list_cost);
        Ok((report, pause))
    }

    /// Notes the CPU use of all processes, and forgets those that ended.
    fn update(&mut self, listed: &[ListedProcess], now: Nanos) {
        let mut before = std::mem::take(&mut self.known);
        for process in listed {
            let key = (process.id.pid, process.id.start_ticks);
            let mut known = before.remove(&key).unwrap_or_else(|| Known {
                user: self.table.user(process.id.pid),
                ..Known::default()
            });
            if let Some((then, cpu)) = known.listed {
                known.cpu_ratio = Some((process.cpu - cpu).ratio_of(now - then));
            }
            known.listed = Some((now, process.cpu));
            self.known.insert(key, known);
        }
        for ((pid, _), known) in before {
            if known.is_sampled {
                self.table.stop_sampling(pid);
            }
        }
    }

    /// Takes the samples, and samples the busiest processes from now on.
    fn sample(&mut self, listed: &[ListedProcess], now: Nanos) {
        let time = self.last.map_or(Nanos::ZERO, |last| now - last);
        let huge_page = self.table.huge_page();
        let mut candidates = Vec::new();
        self.sampled = 0;
        for process in listed {
            let Some(known) = self.known.get_mut(&key(process)) else { continue };
            known.sums.fade(time);
            if known.is_sampled
                && let Some(new) = self.table.take_samples(process.id.pid)
            {
                known.sums.add(new);
                self.sampled += 1;
            }
            if process.resident >= huge_page && known.denied.is_none() && known.refused.is_none() {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let candidate = SamplingCandidate {
                    cpu_ratio: known.cpu_ratio.unwrap_or(0.0),
                    samples: known.sums.samples as u64,
                    is_sampled: known.is_sampled,
                };
                candidates.push((process, candidate));
            }
        }
        self.budget.work(now, self.table.cpu_time());
        let plain: Vec<_> = candidates.iter().map(|&(_, candidate)| candidate).collect();
        let mut chosen = to_sample(&plain);
        if self.budget.must_stop_samplers() {
            chosen.clear();
        }
        for (index, (process, candidate)) in candidates.iter().enumerate() {
            let Some(known) = self.known.get_mut(&key(process)) else { continue };
            let wanted = chosen.contains(&index);
            if candidate.is_sampled && !wanted {
                self.table.stop_sampling(process.id.pid);
                known.is_sampled = false;
            } else if wanted && !candidate.is_sampled && self.budget.may_start_sampler() {
                match self.table.start_sampling(&process.id) {
                    Ok(()) => known.is_sampled = true,
                    Err(error) => known.refused = Some(error),
                }
                self.budget.work(self.table.now(), self.table.cpu_time());
            }
        }
    }

    /// Reads the huge pages of as many processes as the budget allows.
    fn read(&mut self, listed: &[ListedProcess]) {
        let (look, huge_page) = (self.looks, self.table.huge_page());
        let due = |process: &&ListedProcess| {
            let known = self.known.get(&key(process));
            process.resident >= huge_page && known.is_some_and(|k| k.is_due(look, process.cpu))
        };
        let due: Vec<&ListedProcess> = listed.iter().filter(due).collect();
        let age = |process: &&ListedProcess| {
            let read = self.known.get(&key(process)).and_then(|known| known.read);
            (read.map(|(read, _)| look - read), process.resident.get())
        };
        let order = read_order(&due.iter().map(age).collect::<Vec<_>>());
        let begun = self.table.cpu_time();
        let work = self.budget.work(self.table.now(), begun);
        for index in order {
            if self.table.cpu_time() - begun > work {
                break;
            }
            let process = due[index];
            let huge = self.table.huge(&process.id);
            let Some(known) = self.known.get_mut(&key(process)) else { continue };
            known.read = Some((look, process.cpu));
            match huge {
                Ok(huge) => (known.huge, known.denied) = (Some(huge), None),
                Err(error) if error.is_gone() => {}
                Err(error) => (known.huge, known.denied) = (None, Some(access_error(&error))),
            }
        }
    }

    fn report(&self, listed: Vec<ListedProcess>, interval: Nanos) -> TopReport {
        let own_cpu = self.table.cpu_time();
        let denied = self.known.values().filter_map(|known| known.denied.as_ref());
        let mut warnings = Vec::new();
        if let Some(first) = denied.clone().next().cloned() {
            let processes = denied.count() as u64;
            warnings.push(TopWarning::NoPermission { processes, first });
        }
        if listed.is_empty() {
            warnings.push(TopWarning::NoneLeft);
        }
        if self.calibration.0.is_empty() {
            warnings.push(TopWarning::NoCalibration);
        }
        let in_part = self.table.mapped_in_part().filter(|&bytes| bytes >= MUCH_IN_PART);
        warnings.extend(in_part.map(|bytes| TopWarning::MappedInPart { bytes }));
        TopReport {
            schema: SCHEMA.to_owned(),
            interval_seconds: interval.as_seconds(),
            own_cpu_ratio: (own_cpu - self.began.1).ratio_of(self.table.now() - self.began.0),
            cpu_budget_ratio: LIMIT,
            own_cpu_seconds: own_cpu.as_seconds(),
            sampled_processes: self.sampled,
            sampling_rate_hz: self.table.rate_hz(),
            processes: listed.into_iter().map(|process| self.process(process)).collect(),
            warnings,
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn process(&self, listed: ListedProcess) -> TopProcess {
        let nothing = Known::default();
        let known = self.known.get(&key(&listed)).unwrap_or(&nothing);
        let is_small = listed.resident < self.table.huge_page();
        // Less memory than a huge page has none, so that no permission is needed.
        let huge = if is_small { Some(Bytes::ZERO) } else { known.huge };
        let predicted = known.sums.predicted(&self.calibration);
        let (answer, blocked_by) = known.sums.answer(predicted).unzip();
        TopProcess {
            pid: listed.id.pid,
            user_id: known.user.0,
            user: known.user.1.clone(),
            command: listed.id.command,
            cpu_ratio: known.cpu_ratio,
            resident_bytes: listed.resident,
            thp_bytes: huge,
            // The sum of all threads' counters may lag behind the page tables.
            thp_ratio: huge.map(|huge| huge.ratio_of(listed.resident).min(1.0)),
            zero_filled_bytes: known.zero_filled,
            samples: known.sums.samples as u64,
            stall_ratio: known.sums.stall_ratio(),
            predicted_speedup: predicted,
            answer,
            blocked_by: blocked_by.flatten(),
            note: note(known, is_small),
        }
    }
}

fn key(process: &ListedProcess) -> Key {
    (process.id.pid, process.id.start_ticks)
}

/// The first reason why something is unknown; `None` if the share of stalls is known.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn note(known: &Known, is_small: bool) -> Option<TopNote> {
    let is_idle = known.cpu_ratio.is_some_and(|ratio| ratio < crate::budget::MIN_CPU);
    match known {
        _ if is_small => Some(TopNote::TooSmall),
        Known { denied: Some(_), .. } => Some(TopNote::NoPermission),
        Known { huge: None, .. } => Some(TopNote::NotRead),
        Known { refused: Some(error), .. } => Some(TopNote::NotSampled { error: error.clone() }),
        _ if known.sums.samples >= MIN_SAMPLES => None,
        Known { cpu_ratio: None, .. } => Some(TopNote::NotMeasured),
        _ if is_idle => Some(TopNote::Idle),
        Known { is_sampled: true, .. } => {
            Some(TopNote::FewSamples { samples: known.sums.samples as u64 })
        }
        _ => Some(TopNote::Waiting),
    }
}

#[cfg(test)]
mod tests;
