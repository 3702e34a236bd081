//! Warnings, metrics, method and machine of a recording.

use hugepilot_render::model::{Cell, Notice, Report, Section, Table, Unit};
use hugepilot_render::table::counted;

use super::unseen;
use crate::multiplexing::counted_metrics;
use crate::text::{are_missing, much_unseen};
use crate::timeline::Timeline;
use crate::{End, Head, RecordedMachine, causes, help_of};

/// Observations that limit the report.
pub(super) fn warnings(timeline: &Timeline) -> Section {
    let mut section = Section::new("Warnings", "");
    if let Some(cause) = &timeline.head.sampler_missing {
        let note = Notice::note(format!("no stall samples over time: {cause}"));
        section.blocks.push(note.into());
    }
    let mut warn = |text: String| section.blocks.push(Notice::warning(text).into());
    timeline.warnings.iter().for_each(|warning| warn(warning.clone()));
    unseen(timeline).and_then(much_unseen).into_iter().for_each(&mut warn);
    if timeline.end.is_none() && !timeline.is_journal {
        warn("the recording has no end: it was cut, or hugepilot was killed".to_owned());
    }
    let mut ignored = timeline.ignored + timeline.rounds.ignored;
    for process in &timeline.processes {
        ignored += process.areas.ignored();
        let samples = process.heat.ignored() + process.code.ignored;
        if samples > 0 {
            let (samples, title) = (counted(samples, "sample", "samples"), process.title());
            warn(format!("the report omits {samples} of {title}, beyond its limits"));
        }
        let merged = process.track.merged();
        if merged > 1 {
            let title = process.title();
            warn(format!("the report merges every {merged} slices of {title} into one"));
        }
    }
    if ignored > 0 {
        let ignored = counted(ignored, "line", "lines");
        warn(format!("the report omits {ignored}, beyond its limits"));
    }
    section
}

/// Adds the metrics, the method and the machine.
pub(super) fn add(timeline: &Timeline, name: &str, report: &mut Report) {
    report.add(metrics(timeline));
    report.add(method(timeline, name));
}

fn metrics(timeline: &Timeline) -> Section {
    let columns = ["metric", "scope", "unit", "source", "meaning", "missing because"];
    let mut table = Table::new("Metrics of the recording", columns);
    for metric in &timeline.head.metrics {
        let scope = format!("{:?}", metric.scope).to_lowercase();
        table.row(vec![
            metric.name.clone().into(),
            scope.into(),
            metric.unit.to_string().into(),
            metric.source.clone().into(),
            metric.description.clone().into(),
            metric.missing.clone().unwrap_or_default().into(),
        ]);
    }
    let mut section = Section::new("Metrics", "");
    if !table.rows.is_empty() {
        section.blocks.push(counted_metrics(timeline, table).into());
    }
    section.blocks.extend(missing(timeline).map(Into::into));
    section
}

/// A note for each cause why metrics are missing.
fn missing(timeline: &Timeline) -> impl Iterator<Item = Notice> {
    let metrics = timeline.head.metrics.iter();
    let missing = metrics.filter_map(|metric| Some((&*metric.name, metric.missing.as_deref()?)));
    causes(missing).into_iter().map(|(cause, count)| {
        let note = Notice::note(format!("{count} {}: {cause}", are_missing(count)));
        match help_of(cause) {
            Some(help) => note.help(help),
            None => note,
        }
    })
}

fn method(timeline: &Timeline, name: &str) -> Section {
    let head = &timeline.head;
    let mut table = Table::new("Recording and machine", ["fact", "value"]);
    let mut fact = |name: &str, value: Cell| table.row(vec![name.into(), value]);
    fact("file", name.into());
    if timeline.is_journal {
        let text = "A journal has the rounds of a command, without metrics. Its times are since \
                    the first observation. Heat is stall samples of a region at scattered \
                    accesses.";
        pages(&head.machine, &mut fact);
        return Section::new("Method", text).with(table);
    }
    if *head == Head::default() {
        return Section::new("Method and machine", "").with(table);
    }
    fact("command", head.command.join(" ").into());
    fact("hugepilot", head.version.clone().into());
    fact("started", Cell::of(Some(head.started_unix_seconds), Unit::UnixSeconds, ""));
    if !head.metrics.is_empty() {
        fact("slice", Cell::seconds(head.every.as_seconds()));
        let sampler = head.sampler.clone().or_else(|| head.sampler_missing.clone());
        fact("sampler", sampler.unwrap_or_default().into());
    }
    of_machine(&head.machine, &mut fact);
    if let Some(end) = &timeline.end {
        // A command with rounds has its samples there, and its result has their provenance.
        if !head.metrics.is_empty() && timeline.rounds.rows.is_empty() {
            fact("program ended with", end.exit.clone().unwrap_or_else(|| "–".to_owned()).into());
            samples(end, &mut fact);
        }
        if let Some(span) = &end.span {
            fact("part of the run", span.clone().into());
        }
        let own = end.own_cpu.as_seconds();
        fact("CPU time of hugepilot", Cell::seconds(own));
    }
    if head.metrics.is_empty() {
        let text = "Heat is stall samples of a region at scattered accesses.";
        return Section::new("Method and machine", text).with(table);
    }
    let text = "A slice has the increase of each counter and the state of each gauge at its end. \
                Heat is stall samples of a region at scattered accesses. Percentiles, \
                distributions and medians are over slices, not over time within a slice. \
                Change points are found by optimal partitioning (Jackson et al., 2005).";
    Section::new("Method and machine", text).with(table)
}

fn of_machine(machine: &RecordedMachine, fact: &mut dyn FnMut(&str, Cell)) {
    let cpu = &machine.cpu;
    let name = if cpu.model_name.is_empty() { &cpu.vendor } else { &cpu.model_name };
    let name = format!("{name}, {} family {} model {}", cpu.vendor, cpu.family, cpu.model);
    fact("CPU", name.into());
    fact("CPUs online", machine.cpus.to_string().into());
    let is_virtual = if cpu.hypervisor { "yes" } else { "no" };
    fact("virtual machine", is_virtual.into());
    fact("memory", bytes(machine.memory_bytes));
    fact("kernel", machine.kernel.clone().into());
    fact("transparent_hugepage/enabled", machine.thp.clone().into());
    pages(machine, fact);
    if let Some(tlb) = &machine.tlb {
        fact("base pages in the data TLB", format!("{}; {}", tlb.base_pages, tlb.source).into());
    }
}

fn pages(machine: &RecordedMachine, fact: &mut dyn FnMut(&str, Cell)) {
    fact("base page", bytes(machine.base_page_bytes));
    fact("huge page", bytes(machine.huge_page_bytes));
}

fn bytes(value: u64) -> Cell {
    Cell::of(Some(value as f64), Unit::Bytes, "")
}

/// Samples by provenance.
fn samples(end: &End, fact: &mut dyn FnMut(&str, Cell)) {
    let total = end.samples.total() as f64;
    let share = |part: u64| (total > 0.0).then(|| part as f64 / total);
    fact("samples", Cell::of(Some(total), Unit::Count, ""));
    for (name, part) in [
        ("samples, exact address", end.samples.exact),
        ("samples, recomputed address", end.samples.recomputed),
        ("samples, next address", end.samples.next),
        ("samples without address", end.samples.none),
    ] {
        fact(name, Cell::of(share(part), Unit::Ratio, "no samples"));
    }
}
