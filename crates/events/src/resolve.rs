//! Events of requested sets, metrics and events on one processor, in groups.

use hugepilot_record::{Cpu, Metric, MetricKind, MetricScope, Unit};

use super::code::EventCode;
use super::design::{Design, Vendor};
use super::generic;
use super::metrics::MetricDefinition;
use super::name::{SetOrEvent, devices};
use super::native::{Native, description, native};

/// Event to count, with the metric that it gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedEvent {
    /// The metric. Events with the same [`Metric::group`] are counted at the same time; an event
    /// without a group is never multiplexed.
    pub metric: Metric,
    /// Code of the event.
    pub code: EventCode,
}

/// Events of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Events, each once, in the order of the request.
    pub events: Vec<ResolvedEvent>,
    /// Metrics that this processor cannot count, with the cause.
    pub missing: Vec<Metric>,
}

/// Returns the events of `names` on `cpu`. A metric of several sets is counted once.
pub fn resolve(cpu: &Cpu, names: &[SetOrEvent]) -> Resolved {
    let design = Design::of(cpu);
    let mut resolved = Resolved::default();
    let mut groups = Groups::new(design);
    for name in names {
        groups.close();
        match name {
            SetOrEvent::Set(set) => {
                for metric in set.metrics.iter().filter_map(|name| MetricDefinition::named(name)) {
                    resolved.add(metric_of(design, metric), &mut groups);
                }
            }
            SetOrEvent::Metric(metric) => resolved.add(metric_of(design, metric), &mut groups),
            SetOrEvent::Event(event) => {
                let is_system = event.code.is_system_wide();
                let metric = Metric {
                    name: metric_name(&event.name),
                    unit: Unit::Count,
                    kind: MetricKind::Counter,
                    scope: if is_system { MetricScope::System } else { MetricScope::Process },
                    source: format!("{} ({}), {}", event.name, event.code, event.source),
                    description: format!("Event {}.", event.name),
                    group: None,
                    missing: None,
                };
                let event = ResolvedEvent { metric, code: event.code.clone() };
                resolved.add(Ok(event), &mut groups);
            }
        }
    }
    resolved
}

impl Resolved {
    fn add(&mut self, event: Result<ResolvedEvent, Metric>, groups: &mut Groups) {
        let name = event.as_ref().map_or_else(|metric| &metric.name, |event| &event.metric.name);
        let known = self.events.iter().map(|event| &event.metric);
        if known.chain(&self.missing).any(|metric| metric.name == *name) {
            return;
        }
        match event {
            Ok(mut event) => {
                event.metric.group = groups.place(&event.code);
                self.events.push(event);
            }
            Err(metric) => self.missing.push(metric),
        }
    }

    /// Returns all metrics: those of the events, then the missing ones.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.events.iter().map(|event| &event.metric).chain(&self.missing)
    }
}

/// Returns the name of an event's metric: lower case, with words joined by `_`.
fn metric_name(event: &str) -> String {
    let words = event.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_ascii_lowercase()
}

/// Returns the event of a metric, or the metric with the cause why there is none.
pub(super) fn metric_of(
    design: Option<Design>,
    definition: &MetricDefinition,
) -> Result<ResolvedEvent, Metric> {
    let described = description(definition.name, design).unwrap_or(definition.description);
    let metric = |source: String, missing: Option<String>| Metric {
        name: definition.name.to_owned(),
        unit: definition.unit,
        kind: MetricKind::Counter,
        scope: definition.scope,
        source,
        description: described.to_owned(),
        group: None,
        missing,
    };
    let here = design.map_or("processor not in hugepilot's tables", Design::name);
    let event = match native(definition.name, design) {
        Native::Event(event) => event,
        Native::Lacks(cause) => {
            return Err(metric("no event".to_owned(), Some(format!("{here}: {cause}"))));
        }
    };
    let (code, source) = match design.and_then(|design| design.event(event)) {
        Some(listed) => (listed.code(), design.map_or("", Design::source)),
        None if event.contains('/') => match devices(event) {
            Ok(code) => (code, "uncore lists of intel/perfmon, AMD's PPR"),
            Err(error) => return Err(metric(event.to_owned(), Some(error.to_string()))),
        },
        None => match generic::code(event) {
            Some(code) => (code, "perf-list(1)"),
            None => {
                let cause = format!("{here}: its list has no {event}");
                return Err(metric(event.to_owned(), Some(cause)));
            }
        },
    };
    let source = if event.contains('/') {
        format!("{event}, {source}")
    } else {
        format!("{event} ({code}), {source}")
    };
    Ok(ResolvedEvent { metric: metric(source, None), code })
}

/// Placement of events into groups that fit the counters.
pub(super) struct Groups {
    design: Option<Design>,
    /// Group being filled.
    open: u32,
    next: u32,
    /// General counters in use by it.
    used: usize,
    /// Whether an event uses the only counter that can count it.
    third_used: bool,
}

impl Groups {
    const fn new(design: Option<Design>) -> Self {
        Self { design, open: 0, next: 0, used: 0, third_used: false }
    }

    /// Whether all these events fit the counters at once.
    pub(super) fn fit<'a>(
        design: Option<Design>,
        codes: impl Iterator<Item = &'a EventCode>,
    ) -> bool {
        let mut groups = Self::new(design);
        codes.for_each(|code| _ = groups.place(code));
        groups.open == 0
    }

    /// Starts another group with the next event.
    fn close(&mut self) {
        self.open = self.next;
        self.used = 0;
        self.third_used = false;
    }

    /// Returns the group of an event; `None` for events of the kernel.
    fn place(&mut self, code: &EventCode) -> Option<u32> {
        if code.is_software() {
            return None;
        }
        // A unit schedules its own counters.
        if let EventCode::Devices(_) = code {
            self.close();
            let group = self.open;
            self.next = group + 1;
            self.close();
            return Some(group);
        }
        // Processors without a table: two counters, beside instructions and cycles.
        let limit = self.design.map_or(2, Design::group_counters);
        let cost = usize::from(!self.is_fixed(code));
        let third = self.needs_third(code);
        if self.used + cost > limit || third && self.third_used {
            self.close();
        }
        self.used += cost;
        self.third_used |= third;
        self.next = self.open + 1;
        Some(self.open)
    }

    /// Whether the event has a counter of its own: instructions and cycles on Intel, cycles on ARM.
    fn is_fixed(&self, code: &EventCode) -> bool {
        let EventCode::Fixed { kind: super::code::HARDWARE, config, .. } = code else {
            return false;
        };
        match self.design.map(Design::vendor) {
            None | Some(Vendor::Intel) => *config <= 1,
            Some(Vendor::Amd) => false,
            Some(Vendor::Arm) => *config == 0,
        }
    }

    /// Whether only the third counter (number 2) counts the event: `L1D_PEND_MISS.PENDING*` and
    /// `CYCLE_ACTIVITY.*_L1D_*` from Ivy Bridge to Broadwell (intel/perfmon, field `Counter`).
    fn needs_third(&self, code: &EventCode) -> bool {
        let EventCode::Fixed { kind: super::code::RAW, config, .. } = code else { return false };
        self.design.is_some_and(|design| design <= Design::Broadwell)
            && matches!(config & 0xffff, 0x0148 | 0x0ca3 | 0x08a3)
    }
}
