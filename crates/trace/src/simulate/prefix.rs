//! Policy `prefix`: the first regions of given mappings.
//!
//! If the vertices of a graph are sorted by degree, the hot ones are at the start of the property
//! arrays (IISWC'22, section on selective huge pages), so that no observation is needed.

use hugepilot_sim::{PageClass, Place, Places, TunedMachine, View};
use hugepilot_units::{Amount, PageSizes};

use super::SimPolicy;

/// The policy.
pub(super) struct Prefix {
    names: Vec<String>,
    budget: Option<Amount>,
    /// Regions of the footprint at the last decision.
    known: usize,
}

impl Prefix {
    pub(super) const fn new(names: Vec<String>, budget: Option<Amount>) -> Self {
        Self { names, budget, known: 0 }
    }

    /// Whether the memory in use grew since the last decision.
    pub(super) const fn is_due(&self, regions: usize) -> bool {
        regions != self.known
    }

    /// Promotes, in the order of indices, as much as the budget allows of what is in use.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn promote(&mut self, tuned: &mut TunedMachine, view: &View<'_>) {
        let regions = view.footprint.regions().len();
        self.known = regions;
        let places = view.layout.places(view.footprint);
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
        let most = tuned.config().frames.map_or(most, |frames| frames.min(most));
        for (_, region) in order.into_iter().take(most as usize) {
            if (tuned.acts().len() as u64) < most {
                tuned.set_class(region, PageClass::Huge, view.accesses);
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
