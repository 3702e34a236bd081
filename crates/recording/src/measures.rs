//! Measures of a track: the metrics of the recording as rates and states, and ratios of them.

use hugepilot_events::{Certainty, Design, EventReading, formula};
use hugepilot_record::{Metric, MetricKind, MetricScope};
use hugepilot_render::model::Unit;

use super::multiplexing::percent;
use super::timeline::metrics;
use super::track::Track;
use crate::Head;

/// A measure over the slices of a track.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measure {
    /// Name, with its unit at the end.
    pub(crate) name: String,
    /// Unit.
    pub(crate) unit: Unit,
    /// Value of each slice, NaN where none was measured; empty if it is missing.
    pub(crate) values: Vec<f64>,
    /// Why there are no values.
    pub(crate) missing: Option<String>,
    /// Share of the time in which its metrics were counted, the smallest of them; 1 without events.
    pub(crate) counted: f64,
}

impl Measure {
    /// The name for a plot, with the share of the time if the values may be far off.
    pub(crate) fn label(&self) -> String {
        if self.counted < EventReading::FEW {
            return format!("{} (counted {} of the time)", self.name, percent(self.counted));
        }
        self.name.clone()
    }

    /// Whether it is 0 in every slice, so that a plot would show nothing.
    pub(crate) fn is_zero(&self) -> bool {
        let mut values = self.values.iter().filter(|value| value.is_finite()).peekable();
        values.peek().is_some() && values.all(|value| *value == 0.0)
    }
}

/// A ratio of two metrics. Each has several names, because processors count different events.
struct Derived {
    name: &'static str,
    unit: Unit,
    numerators: &'static [&'static str],
    denominators: &'static [&'static str],
    factor: f64,
}

const fn derived(
    name: &'static str,
    unit: Unit,
    numerators: &'static [&'static str],
    denominators: &'static [&'static str],
    factor: f64,
) -> Derived {
    Derived { name, unit, numerators, denominators, factor }
}

const INSTRUCTIONS: &[&str] = &["instructions"];
const WALKS: &[&str] = &["dtlb_walks", "dtlb_load_walks"];
const DTLB_MISSES: &[&str] = &["dtlb_misses", "dtlb_load_misses"];

/// Ratios beside those of [`formula`]: of memory, and per instruction.
const DERIVED: [Derived; 4] = [
    derived("thp_of_rss_ratio", Unit::Ratio, &["thp"], &["rss"], 1.0),
    derived("dtlb_misses_per_1000_instructions", Unit::Number, DTLB_MISSES, INSTRUCTIONS, 1e3),
    derived("dtlb_walks_per_1000_instructions", Unit::Number, WALKS, INSTRUCTIONS, 1e3),
    derived(
        "llc_misses_per_1000_instructions",
        Unit::Number,
        &["llc_load_misses"],
        INSTRUCTIONS,
        1e3,
    ),
];

/// Measures of a track whose columns are the metrics of `scope`.
pub(crate) fn measures(head: &Head, scope: MetricScope, track: &Track) -> Vec<Measure> {
    let plain = metrics(head, scope).enumerate();
    let mut all: Vec<Measure> =
        plain.map(|(at, metric)| plain_measure(metric, track, at)).collect();
    // Formulas have the names of the metrics of processes.
    let names: Vec<(&str, &Metric)> =
        metrics(head, scope).map(|one| (base_name(one), one)).collect();
    // Ratios of which the recording has neither metric are not of interest in this scope.
    let ratios = DERIVED.iter().filter_map(|derived| ratio(derived, &names, track));
    all.extend(ratios);
    all.extend(formulas(head, &names, track));
    all
}

/// Name of a metric of a process, or of the same one of a thread.
fn base_name(metric: &Metric) -> &str {
    let of_thread = metric.name.strip_prefix("thread_");
    of_thread.filter(|_| metric.scope == MetricScope::Thread).unwrap_or(&metric.name)
}

/// Metrics by their names in formulas.
type Named<'a> = [(&'a str, &'a Metric)];

/// Ratios of [`formula`] that some slice has.
fn formulas(head: &Head, metrics: &Named<'_>, track: &Track) -> Vec<Measure> {
    let design = Design::of(&head.machine.cpu);
    let mut found: Vec<Measure> = Vec::new();
    for at in 0..track.slots().len() {
        let column = |name: &str| metrics.iter().position(|(of, _)| *of == name);
        let value =
            |name: &str| Some(track.column(column(name)?)[at]).filter(|value| value.is_finite());
        // Metrics have slices of different lengths.
        let seconds = |name: &str| Some(track.span(column(name)?, at));
        for derived in formula::derived(design, &seconds, &value) {
            let known = found.iter().position(|measure| measure.name == derived.name);
            let place = known.unwrap_or_else(|| {
                found.push(Measure {
                    name: derived.name.to_owned(),
                    unit: unit_of(derived.name),
                    values: vec![f64::NAN; track.slots().len()],
                    missing: None,
                    counted: counted(derived.formula, metrics, track),
                });
                found.len() - 1
            });
            found[place].values[at] = derived.value;
        }
    }
    found
}

/// Share of the time in which the metrics of a formula were counted, the smallest of them.
fn counted(formula: &str, metrics: &Named<'_>, track: &Track) -> f64 {
    let words = formula.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let used = words.filter_map(|word| metrics.iter().find(|(name, _)| *name == word));
    used.map(|(_, metric)| track.groups.counted(metric)).fold(1.0, f64::min)
}

/// Unit by the end of a ratio's name.
fn unit_of(name: &str) -> Unit {
    match name {
        name if name.ends_with("_bytes_per_second") => Unit::BytesPerSecond,
        name if name.ends_with("_ratio") => Unit::Ratio,
        _ => Unit::Number,
    }
}

/// A metric as a rate, or as a state.
fn plain_measure(metric: &Metric, track: &Track, column: usize) -> Measure {
    use hugepilot_record::Unit as Raw;
    let is_counter = metric.kind == MetricKind::Counter;
    let (unit, factor) = match (metric.unit, is_counter) {
        (Raw::Count | Raw::Cycles, true) => (Unit::PerSecond, 1.0),
        (Raw::Count | Raw::Cycles, false) => (Unit::Count, 1.0),
        (Raw::Bytes, true) => (Unit::BytesPerSecond, 1.0),
        (Raw::Bytes, false) => (Unit::Bytes, 1.0),
        // Nanoseconds in a second are a share, such as that of a CPU.
        (Raw::Nanoseconds, true) => (Unit::Ratio, 1e-9),
        (Raw::Nanoseconds, false) => (Unit::Seconds, 1e-9),
        (Raw::Ratio, true) => (Unit::Number, 1.0),
        (Raw::Ratio, false) => (Unit::Ratio, 1.0),
    };
    let per_slice = |(value, length): (&f64, f64)| match is_counter {
        true if length > 0.0 => value * factor / length,
        true => f64::NAN,
        false => value * factor,
    };
    let lengths = (0..track.slots().len()).map(|at| track.span(column, at));
    let values: Vec<f64> = track.column(column).iter().zip(lengths).map(per_slice).collect();
    let cause = || match track.groups.certainty(metric) {
        Certainty::Missing => "never counted: other events had the counters".to_owned(),
        _ => "no slice has a value".to_owned(),
    };
    let missing = metric.missing.clone().or_else(|| is_empty(&values).then(cause));
    let values = if missing.is_some() { Vec::new() } else { values };
    let counted = track.groups.counted(metric);
    Measure { name: with_unit(&metric.name, unit), unit, values, missing, counted }
}

/// Name of a measure: its metric, with the unit in which it is shown at the end.
fn with_unit(metric: &str, unit: Unit) -> String {
    let stem = ["_ns", "_nanoseconds", "_bytes", "_ratio"]
        .iter()
        .find_map(|end| metric.strip_suffix(end).filter(|stem| !stem.is_empty()))
        .unwrap_or(metric);
    match unit.suffix() {
        "" => stem.to_owned(),
        suffix => format!("{stem}_{suffix}"),
    }
}

fn is_empty(values: &[f64]) -> bool {
    !values.iter().any(|value| value.is_finite())
}

fn no_values(values: &[f64]) -> Option<String> {
    is_empty(values).then(|| "no slice has a value".to_owned())
}

/// A ratio, if the recording has one of its metrics.
fn ratio(derived: &Derived, named: &Named<'_>, track: &Track) -> Option<Measure> {
    let metrics: Vec<&Metric> = named.iter().map(|(_, metric)| *metric).collect();
    let find = |names: &[&str]| {
        let place = |name: &&str| named.iter().position(|(of, _)| of == name);
        let present = |name: &&str| place(name).filter(|&at| metrics[at].missing.is_none());
        names.iter().find_map(present).or_else(|| names.iter().find_map(place))
    };
    let (top, bottom) = (find(derived.numerators), find(derived.denominators));
    let cause = |at: Option<usize>, names: &[&str]| match at {
        None => Some(format!("the recording has no metric {}", names[0])),
        Some(at) => metrics[at].missing.clone(),
    };
    if top.is_none() && bottom.is_none() {
        return None;
    }
    let missing = cause(top, derived.numerators).or_else(|| cause(bottom, derived.denominators));
    let mut measure = Measure {
        name: derived.name.to_owned(),
        unit: derived.unit,
        values: Vec::new(),
        missing,
        counted: 1.0,
    };
    let (Some(top), Some(bottom), None) = (top, bottom, &measure.missing) else {
        return Some(measure);
    };
    let shares = [top, bottom].map(|at| track.groups.counted(metrics[at]));
    measure.counted = shares[0].min(shares[1]);
    // A state is read in some slices only.
    let column = |at: usize| match metrics[at].kind {
        MetricKind::Gauge => held(track.column(at)),
        MetricKind::Counter => track.column(at).to_vec(),
    };
    let pairs = column(top).into_iter().zip(column(bottom));
    let value = |(top, bottom): (f64, f64)| {
        if bottom > 0.0 { derived.factor * top / bottom } else { f64::NAN }
    };
    let values: Vec<f64> = pairs.map(value).collect();
    measure.missing = no_values(&values);
    measure.values = if measure.missing.is_some() { Vec::new() } else { values };
    Some(measure)
}

/// Values, with the one before where there is none. After the last one nothing is known: a process
/// that ends frees memory.
fn held(values: &[f64]) -> Vec<f64> {
    let mut before = f64::NAN;
    let known = values.iter().rposition(|value| value.is_finite()).map_or(0, |last| last + 1);
    let mut held = values.to_vec();
    for value in &mut held[..known] {
        before = if value.is_finite() { *value } else { before };
        *value = before;
    }
    held
}

/// Measures of stall samples: the share of scattered accesses, and of samples with an address.
pub(crate) fn stall_measures(stalls: &Track, sampler_missing: Option<&str>) -> Vec<Measure> {
    let share = |name: &str, column: usize| {
        let pairs = stalls.column(column).iter().zip(stalls.column(0));
        let values: Vec<f64> =
            pairs.map(|(part, all)| if *all > 0.0 { part / all } else { f64::NAN }).collect();
        let missing = match sampler_missing {
            Some(cause) if values.is_empty() => Some(cause.to_owned()),
            _ => no_values(&values),
        };
        let values = if missing.is_some() { Vec::new() } else { values };
        Measure { name: name.to_owned(), unit: Unit::Ratio, values, missing, counted: 1.0 }
    };
    vec![share("stall_ratio", 2), share("addressed_samples_ratio", 1)]
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Unit as Raw;

    use super::super::track::Slot;
    use super::*;

    fn metric(name: &str, kind: MetricKind) -> Metric {
        Metric {
            name: name.to_owned(),
            unit: Raw::Bytes,
            kind,
            scope: MetricScope::Process,
            source: String::new(),
            description: String::new(),
            group: None,
            missing: None,
        }
    }

    /// The recorder writes huge bytes in lines of their own, less often than resident memory.
    #[test]
    fn a_ratio_of_states_holds_both_between_their_reads() {
        let kinds = vec![MetricKind::Gauge; 2];
        let metrics = [metric("rss", MetricKind::Gauge), metric("thp", MetricKind::Gauge)];
        let mut track = Track::new(kinds);
        for (end, rss, thp) in [
            (0.1, Some(8.0), None),
            (0.2, None, Some(2.0)),
            (0.3, Some(16.0), None),
            (0.4, None, Some(12.0)),
            (0.5, Some(1.0), None),
        ] {
            track.push(Slot { end, length: 0.1 }, &[rss, thp]);
        }
        let all: Vec<_> = metrics.iter().map(|one| (&*one.name, one)).collect();
        let values = ratio(&DERIVED[0], &all, &track).unwrap().values;
        assert!(values[0].is_nan());
        assert_eq!(values[1..4], [0.25, 0.125, 0.75]);
        assert!(values[4].is_nan(), "memory is freed after the last read");
    }

    #[test]
    fn bandwidth_is_over_the_time_that_its_event_covers() {
        let metrics = [
            metric("user_time", MetricKind::Counter),
            Metric { unit: Raw::Count, ..metric("dram_fills", MetricKind::Counter) },
        ];
        let mut track = Track::new(vec![MetricKind::Counter; 2]);
        for end in [0.1, 0.2, 0.3] {
            // The process ended in the last slice: the kernel still has its events.
            let user = (end < 0.25).then_some(1.0);
            track.push(Slot { end, length: 0.1 }, &[user, Some(1e6)]);
        }
        let merged = track.resliced(0.3);
        let spans = [merged.span(0, 0), merged.span(1, 0)].map(|span| (span * 10.0).round());
        assert_eq!((merged.slots().len(), spans), (1, [2.0, 3.0]));
        let all: Vec<_> = metrics.iter().map(|one| (&*one.name, one)).collect();
        let found = formulas(&Head::default(), &all, &merged);
        let [fills] = &found[..] else { panic!("{found:?}") };
        assert_eq!(fills.name, "dram_fill_bytes_per_second");
        assert!((fills.values[0] / 640e6 - 1.0).abs() < 1e-9, "{fills:?}");
    }
}
