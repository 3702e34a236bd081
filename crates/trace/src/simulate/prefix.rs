//! Policy `prefix`: the first regions of given mappings.
//!
//! If the vertices of a graph are sorted by degree, the hot ones are at the start of the property
//! arrays (IISWC'22, section on selective huge pages), so that no observation is needed.

use hugepilot_sim::{Batch, Machine, PageClass, Place, Places, TunedAct, View};
use hugepilot_units::{Amount, PageSizes};

use super::SimPolicy;

/// Machine under the policy.
pub(super) struct Prefix {
    machine: Machine,
    names: Vec<String>,
    budget: Option<Amount>,
    frames: Option<u64>,
    /// Regions of the footprint at the last decision.
    known: usize,
    acts: Vec<TunedAct>,
}

impl Prefix {
    pub(super) const fn new(
        machine: Machine,
        names: Vec<String>,
        budget: Option<Amount>,
        frames: Option<u64>,
    ) -> Self {
        Self { machine, names, budget, frames, known: 0, acts: Vec::new() }
    }

    pub(super) const fn machine(&self) -> &Machine {
        &self.machine
    }
    pub(super) fn acts(&self) -> &[TunedAct] {
        &self.acts
    }

    pub(super) fn run(&mut self, batch: &Batch) {
        self.machine.run(batch);
    }

    /// Whether the memory in use grew since the last decision.
    pub(super) const fn is_due(&self, regions: usize) -> bool {
        regions != self.known
    }

    /// Promotes, in the order of indices, as much as the budget allows of what is in use.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn tick(&mut self, &View { accesses, footprint, layout, .. }: &View<'_>) {
        let regions = footprint.regions().len();
        self.known = regions;
        let places = layout.places(footprint);
        let mut order: Vec<(u64, u32)> = (0..regions as u32)
            .filter_map(|region| {
                let Place { mapping, index, .. } = places.of(region);
                let name = &places.mappings()[mapping].mapping.name;
                self.names.contains(name).then_some((index, region))
            })
            .collect();
        order.sort_unstable();
        let huge = PageSizes::X86_64.huge;
        let used = huge.times(regions as u64);
        let most = self.budget.map_or(used, |budget| budget.of(used)).get() / huge.get();
        let most = self.frames.map_or(most, |frames| frames.min(most));
        for (_, region) in order.into_iter().take(most as usize) {
            if self.machine.class(region) == PageClass::Base && (self.acts.len() as u64) < most {
                self.machine.set_class(region, PageClass::Huge);
                self.acts.push(TunedAct { accesses, region, promotes: true });
            }
        }
    }
}

/// Returns the `names` that no mapping has, if the policy is one of `policies`.
pub(super) fn not_found(names: &[String], policies: &[SimPolicy], places: &Places) -> Vec<String> {
    let is_simulated = policies.contains(&SimPolicy::Prefix);
    let has = |name: &String| places.mappings().iter().any(|one| one.mapping.name == *name);
    names.iter().filter(|name| is_simulated && !has(name)).cloned().collect()
}
