//! Sets of events that the counters of a processor hold at once.

use hugepilot_record::{Cpu, Metric, MetricScope};

use super::design::Design;
use super::resolve::{Groups, Resolved, ResolvedEvent};

impl Resolved {
    /// Splits the events for runs of a program, one for each set. The first set also has what takes
    /// no counter of the cores: events of the kernel and of the system, missing metrics, and the
    /// events that `is_countable` rejects, which then have a cause. `limit`: events of a set at
    /// most, instead of the counters of `cpu`; it counts events of the kernel, too.
    pub fn sets(
        &self,
        cpu: &Cpu,
        is_countable: &dyn Fn(&ResolvedEvent) -> bool,
        limit: Option<usize>,
    ) -> Vec<Self> {
        let takes_counter = |event: &&ResolvedEvent| {
            event.metric.scope == MetricScope::Process
                && (event.metric.group.is_some() || limit.is_some())
                && is_countable(event)
        };
        let (counted, others): (Vec<_>, Vec<_>) = self.events.iter().partition(takes_counter);
        let design = Design::of(cpu);
        let mut sets: Vec<Vec<&ResolvedEvent>> = Vec::new();
        for group in groups(&counted, limit.is_some()) {
            let fits = |set: &&mut Vec<&ResolvedEvent>| match limit {
                Some(limit) => set.len() < limit,
                None => Groups::fit(design, set.iter().chain(&group).map(|event| &event.code)),
            };
            match sets.last_mut().filter(fits) {
                Some(set) => set.extend(group),
                None => sets.push(group),
            }
        }
        let of = |events: &[&ResolvedEvent], missing: &[Metric]| Self {
            events: events.iter().map(|&event| event.clone()).collect(),
            missing: missing.to_vec(),
        };
        let first = sets.first().cloned().unwrap_or_default();
        let mut all = vec![of(&[others, first].concat(), &self.missing)];
        all.extend(sets.iter().skip(1).map(|set| of(set, &[])));
        all
    }
}

/// Returns the events of each group; each event by itself if they are `apart`.
fn groups<'a>(events: &[&'a ResolvedEvent], apart: bool) -> Vec<Vec<&'a ResolvedEvent>> {
    let is_same =
        |a: &&ResolvedEvent, b: &&ResolvedEvent| !apart && a.metric.group == b.metric.group;
    events.chunk_by(is_same).map(<[_]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, resolve};

    fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
        Cpu { vendor: vendor.into(), model_name: String::new(), family, model, hypervisor: false }
    }

    fn resolved(cpu: &Cpu, names: &[&str]) -> Resolved {
        let names: Vec<_> = names.iter().map(|name| parse(cpu, name).unwrap()).collect();
        resolve(cpu, &names)
    }

    fn names(set: &Resolved) -> Vec<&str> {
        set.events.iter().map(|event| event.metric.name.as_str()).collect()
    }

    #[test]
    fn each_set_fits_the_counters_and_each_event_is_in_one() {
        for here in
            [cpu("GenuineIntel", 6, 79), cpu("GenuineIntel", 6, 106), cpu("AuthenticAMD", 25, 17)]
        {
            let all = resolved(&here, &["ipc", "paper", "tlb", "cache", "software", "bandwidth"]);
            let sets = all.sets(&here, &|_| true, None);
            assert!(sets.len() > 1, "{here:?}");
            let mut seen: Vec<_> = sets.iter().flat_map(names).collect();
            let mut wanted = names(&all);
            seen.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(seen, wanted);
            let design = Design::of(&here);
            for set in &sets {
                let of_core = set.events.iter().filter(|event| {
                    event.metric.group.is_some() && event.metric.scope == MetricScope::Process
                });
                assert!(Groups::fit(design, of_core.map(|event| &event.code)), "{:?}", names(set));
            }
            assert_eq!(sets[0].missing, all.missing);
            assert!(names(&sets[0]).contains(&"task_clock"));
            assert!(sets[1..].iter().all(|set| set.missing.is_empty()));
        }
    }

    #[test]
    fn what_fits_or_cannot_be_counted_takes_one_run() {
        let here = cpu("GenuineIntel", 6, 106);
        let few = resolved(&here, &["software", "ipc", "dtlb_load_walks"]);
        assert_eq!(few.sets(&here, &|_| true, None), std::slice::from_ref(&few));
        let many = resolved(&here, &["ipc", "tlb", "cache", "stalls"]);
        assert_eq!(many.sets(&here, &|_| false, None), std::slice::from_ref(&many));
    }

    #[test]
    fn a_limit_holds_for_events_of_the_kernel_too() {
        let here = cpu("Other", 1, 1);
        let all = resolved(&here, &["software", "ipc"]);
        let is_software = |event: &ResolvedEvent| event.code.is_software();
        let sets = all.sets(&here, &is_software, Some(3));
        let lengths: Vec<usize> = sets.iter().map(|set| set.events.len()).collect();
        assert_eq!(lengths, [2 + 3, 3, 1]);
        assert_eq!(names(&sets[0])[..2], ["instructions", "cycles"]);
    }
}
