//! Samples of a simulated process: its heat table, and the visits of its regions by streams.
//!
//! A live sampler distinguishes streams by the steps of an instruction. Simulated accesses have no
//! instruction, so that the pages of a thread decide: a visit belongs to a stream if the stream
//! came to its page from the page before or behind, twice in a row. A stream that makes less than
//! three accesses to a page needs a new translation all the time, and is none, as on a live
//! process.

use std::collections::BTreeMap;

use hugepilot_record::{Heat, HeatConfig, Pattern, RegionHeat};
use hugepilot_units::VirtAddr;

use super::SIZES;
use crate::cost::CostModel;
use crate::runs::{AccessRun, Batch};

/// Streams of a thread that are followed at once.
const STREAMS: usize = 16;
/// Pages in a row after which a stream is known.
const LEAST_STEPS: u32 = 2;
/// Accesses to a page below which a stream steps by half a page or more.
const LEAST_ACCESSES: u32 = 3;

/// Samples of a visit, at most: more would only age the table.
const MOST_SAMPLES: u64 = 64;

/// Place that accesses of a thread reached, page by page.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    page: u64,
    accesses: u32,
    /// Steps in a row to a neighbour, in one direction.
    steps: u32,
    is_up: bool,
}

/// Streams of a thread, the one used last first.
#[derive(Clone, Debug, Default)]
struct Streams(Vec<Stream>);

impl Streams {
    /// Notes a visit of a base page. Returns its pattern.
    fn visit(&mut self, page: u64, accesses: u32) -> Pattern {
        let is_near = |one: &Stream| one.page.abs_diff(page) <= 1;
        let place = self.0.iter().position(is_near);
        let mut stream = place.map_or_else(Stream::default, |place| self.0.remove(place));
        stream.step(page, accesses, place.is_some());
        self.0.truncate(STREAMS - 1);
        self.0.insert(0, stream);
        if stream.steps >= LEAST_STEPS { Pattern::Streamed } else { Pattern::Scattered }
    }
}

impl Stream {
    fn step(&mut self, page: u64, accesses: u32, is_known: bool) {
        if is_known && page == self.page {
            self.accesses = self.accesses.saturating_add(accesses);
            return;
        }
        let is_up = page > self.page;
        let is_dense = is_known && self.accesses >= LEAST_ACCESSES;
        let goes_on = self.steps == 0 || is_up == self.is_up;
        let steps = if is_dense && goes_on { self.steps.saturating_add(1) } else { 0 };
        *self = Self { page, accesses, steps, is_up };
    }
}

/// Visits of a region.
#[derive(Clone, Copy, Debug, Default)]
struct Visits {
    all: u64,
    streamed: u64,
}

/// Sampler of all processes.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    cost: CostModel,
    /// Cycles of a sample.
    period: f64,
    carry: f64,
    /// Number of each region among all addresses and processes.
    numbers: Vec<u64>,
    streams: Vec<Streams>,
    visits: Vec<Visits>,
    heats: BTreeMap<u16, HeatTable>,
}

/// Heat of a process. It is cloned as empty: machines are cloned before they run.
#[derive(Debug)]
struct HeatTable(Heat);

impl Default for HeatTable {
    fn default() -> Self {
        Self(Heat::new(HeatConfig::bounded(SIZES)))
    }
}

impl Clone for HeatTable {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Samples {
    pub(super) fn new(cost: CostModel, period: f64) -> Self {
        let (numbers, streams, visits) = (Vec::new(), Vec::new(), Vec::new());
        Self { cost, period, carry: 0.0, numbers, streams, visits, heats: BTreeMap::new() }
    }

    /// Samples the runs of a batch.
    pub(super) fn run(&mut self, batch: &Batch) {
        self.numbers.extend(batch.regions().iter().map(|region| region.number));
        self.visits.resize(self.numbers.len(), Visits::default());
        for turn in batch.turns() {
            let thread = usize::from(turn.thread);
            if self.streams.len() <= thread {
                self.streams.resize_with(thread + 1, Streams::default);
            }
            turn.runs.iter().for_each(|run| self.visit(thread, run));
        }
    }

    fn visit(&mut self, thread: usize, run: &AccessRun) {
        let region = run.region() as usize;
        let page = run.base_page(self.numbers[region]);
        let pattern = self.streams[thread].visit(page, run.accesses);
        let visits = &mut self.visits[region];
        visits.all += 1;
        visits.streamed += u64::from(pattern == Pattern::Streamed);
        self.carry += f64::from(run.accesses) * self.cost.access + self.cost.visit;
        let count = (self.carry / self.period).floor();
        self.carry -= count * self.period;
        let process = (self.numbers[region] >> 36) as u16;
        let address = VirtAddr::new((page & ((1 << 45) - 1)) << 12);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        for _ in 0..(count as u64).min(MOST_SAMPLES) {
            self.heats.entry(process).or_default().0.add(address, pattern);
        }
    }

    /// Takes the share of the visits of a region that streams had since the last call.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn take_streamed_share(&mut self, region: usize) -> f64 {
        let visits = self.visits.get_mut(region).map(std::mem::take).unwrap_or_default();
        visits.streamed as f64 / visits.all.max(1) as f64
    }

    /// Returns the heat of a process, with the TLB that holds this many base pages.
    pub(super) fn heat(&self, process: u16, tlb_entries: u32) -> Vec<RegionHeat> {
        self.heats.get(&process).map_or_else(Vec::new, |heat| heat.0.regions(tlb_entries))
    }

    /// Lets old samples of a process fade.
    pub(super) fn fade(&mut self, process: u16) {
        if let Some(heat) = self.heats.get_mut(&process) {
            heat.0.age();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::Footprint;

    /// Share of the visits of region 0 that streams had, and its heat, after accesses to words.
    fn sampled(words: impl Iterator<Item = u64>) -> (f64, RegionHeat) {
        let mut samples = Samples::new(CostModel::default(), 40.0);
        let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
        footprint.add(0, 0, words.map(|word| word * 8), &mut batch);
        samples.run(&batch);
        let share = samples.take_streamed_share(0);
        assert_eq!(samples.take_streamed_share(0), 0.0, "taken");
        (share, samples.heat(0, 1024)[0])
    }

    const PAGE: u64 = 512;
    const REGION: u64 = 512 * PAGE;

    fn random(words: u64) -> impl Iterator<Item = u64> {
        let mut state = 7_u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % words
        })
    }

    #[test]
    fn a_scan_is_a_stream_up_and_down() {
        let (up, heat) = sampled(0..REGION);
        assert!(up > 0.98 && heat.streamed > heat.samples * 9 / 10, "{up} {heat:?}");
        let (down, _) = sampled((0..REGION).rev());
        assert!(down > 0.98, "{down}");
    }

    /// Between two words of the stream, another region is read at random, as a gather does.
    #[test]
    fn a_stream_among_random_accesses_is_found() {
        let others = random(64 * REGION).map(|word| word + REGION);
        let (share, _) = sampled((0..REGION).zip(others).flat_map(|(own, other)| [own, other]));
        assert!(share > 0.9, "{share}");
    }

    #[test]
    fn random_accesses_and_steps_of_a_page_are_no_streams() {
        let (share, heat) = sampled(random(64 * REGION).take(200_000));
        assert!(share < 0.02 && heat.tlb_held == 0, "{share} {heat:?}");
        let (share, heat) = sampled((0..REGION).step_by(PAGE as usize / 2));
        assert_eq!((share, heat.streamed), (0.0, 0));
    }

    /// Two pages have all visits: the TLB holds them.
    #[test]
    fn few_pages_are_held_by_the_tlb() {
        let (share, heat) = sampled((0..600).map(|word| word % 2 * 5 * PAGE));
        assert_eq!((share, heat.tlb_held), (0.0, heat.samples));
    }
}
