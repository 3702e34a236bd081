//! List of sets, metrics and events of a processor.

use hugepilot_record::{Cpu, Metric};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::Design;
use super::metrics::{METRICS, SETS};
use super::resolve::{ResolvedEvent, metric_of};

/// Value of [`EventList::schema`].
pub const SCHEMA: &str = "hugepilot.events/1";

/// Sets, metrics and events of a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventList {
    /// [`SCHEMA`].
    pub schema: String,
    /// The processor.
    pub cpu: Cpu,
    /// Design of its cores; null if hugepilot has no list of its events.
    pub design: Option<String>,
    /// Where the list is from; null without a list.
    pub source: Option<String>,
    /// Sets of metrics.
    pub sets: Vec<EventSet>,
    /// Metrics.
    pub metrics: Vec<ListedMetric>,
    /// Names of all events of the list, which `--events` takes beside perf's names and raw codes.
    pub events: Vec<String>,
    /// Names of the events of the memory controllers, which count the whole system; of servers of
    /// Intel.
    pub memory_events: Vec<String>,
}

/// Set of metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventSet {
    /// Name.
    pub name: String,
    /// Explanation, in a sentence.
    pub description: String,
    /// Names of its metrics.
    pub metrics: Vec<String>,
    /// Metrics of it that can be counted here.
    pub available: usize,
}

/// Metric with its event on the processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedMetric {
    /// Name.
    pub name: String,
    /// Explanation, in a sentence.
    pub description: String,
    /// Name in Table I of Eisenman et al. 2016; null if it is not there.
    pub paper: Option<String>,
    /// Event with its code and the source of both; null if the processor has none.
    pub event: Option<String>,
    /// Whether only the whole system is counted.
    pub system_wide: bool,
    /// Why it cannot be counted here; null if it can.
    pub unavailable: Option<String>,
}

/// Returns the list of `cpu`. `probe` opens an event and returns why it cannot be counted here;
/// `None` if it can.
pub fn list(cpu: &Cpu, mut probe: impl FnMut(&ResolvedEvent) -> Option<String>) -> EventList {
    let design = Design::of(cpu);
    let metrics: Vec<ListedMetric> = METRICS
        .iter()
        .map(|definition| {
            let listed = |event, system_wide, description, unavailable| ListedMetric {
                name: definition.name.to_owned(),
                description,
                paper: Some(definition.paper).filter(|name| !name.is_empty()).map(str::to_owned),
                event,
                system_wide,
                unavailable,
            };
            match metric_of(design, definition) {
                Ok(event) => {
                    let unavailable = probe(&event);
                    let is_system = event.code.is_system_wide();
                    let Metric { source, description, .. } = event.metric;
                    listed(Some(source), is_system, description, unavailable)
                }
                Err(metric) => listed(None, false, metric.description, metric.missing),
            }
        })
        .collect();
    let available = |name: &&&str| {
        metrics.iter().any(|metric| metric.name == **name && metric.unavailable.is_none())
    };
    let sets = SETS.iter().map(|set| EventSet {
        name: set.name.to_owned(),
        description: set.description.to_owned(),
        metrics: set.metrics.iter().map(|&name| name.to_owned()).collect(),
        available: set.metrics.iter().filter(available).count(),
    });
    EventList {
        schema: SCHEMA.to_owned(),
        cpu: cpu.clone(),
        design: design.map(|design| design.name().to_owned()),
        source: design.map(|design| design.source().to_owned()),
        sets: sets.collect(),
        events: design.into_iter().flat_map(Design::events).map(|e| e.name.to_owned()).collect(),
        memory_events: design
            .into_iter()
            .flat_map(Design::memory_events)
            .map(|event| event.name.to_owned())
            .collect(),
        metrics,
    }
}
