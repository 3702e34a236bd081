//! Text and JSON of the events that a processor can count.

use std::fmt::Write;

use hugepilot_render::json::JsonReport;
use hugepilot_render::table::{Width, table};

use crate::{EventList, ListedMetric};

impl JsonReport for EventList {}

/// Prints the sets, then the metrics with their events, then how to name other events.
pub fn events_text(list: &EventList, width: Width) -> String {
    let mut text = processor(list);
    let header = ["SET", "AVAILABLE", "DESCRIPTION"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(list.sets.iter().map(|set| {
        let available = format!("{}/{}", set.available, set.metrics.len());
        vec![set.name.clone(), available, set.description.clone()]
    }));
    let _ = write!(text, "\n{}", table(rows, &[1], width));
    let (here, missing): (Vec<_>, Vec<_>) =
        list.metrics.iter().partition(|metric| metric.unavailable.is_none());
    text.push_str(&metrics("EVENT", &here, width, |metric| metric.event.clone()));
    text.push_str(&metrics("UNAVAILABLE", &missing, width, |metric| metric.unavailable.clone()));
    text.push_str(&other_names(list));
    text
}

fn processor(list: &EventList) -> String {
    let cpu = &list.cpu;
    let name = printable(&cpu.model_name);
    let name = if name.is_empty() { printable(&cpu.vendor) } else { name };
    let mut text = format!("{name}, family {}, model {}: ", cpu.family, cpu.model);
    match (&list.design, &list.source) {
        (Some(design), Some(source)) => {
            let _ = writeln!(text, "{design}, {} events, {source}", list.events.len());
        }
        _ => text.push_str("hugepilot has no list of its events, so it uses generic ones\n"),
    }
    text
}

/// Table of metrics with one fact each; empty without metrics.
fn metrics(
    fact: &str,
    metrics: &[&ListedMetric],
    width: Width,
    of: impl Fn(&ListedMetric) -> Option<String>,
) -> String {
    if metrics.is_empty() {
        return String::new();
    }
    let mut rows = vec![vec!["METRIC".to_owned(), fact.to_owned(), "DESCRIPTION".to_owned()]];
    rows.extend(metrics.iter().map(|metric| {
        let fact = of(metric).unwrap_or_else(|| "-".to_owned());
        vec![metric.name.clone(), printable(&fact), metric.description.clone()]
    }));
    format!("\n{}", table(rows, &[], width))
}

fn other_names(list: &EventList) -> String {
    let example = list.events.iter().find(|name| name.contains("WALK_ACTIVE"));
    let example = example.or(list.events.first()).map_or("", String::as_str);
    let mut text = String::from("\nother events: names of perf (dTLB-load-misses)");
    if !example.is_empty() {
        let _ = write!(text, ", of the processor ({example})");
    }
    text + ", raw codes (r1008), units (cpu/event=0x08,umask=0x10/)\n"
}

/// Control characters of a processor's name, which a hypervisor sets, are dropped.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Cpu;
    use hugepilot_render::json::json;

    use super::*;
    use crate::list;

    fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
        let model_name = "CPU \u{1b}[31m9".to_owned();
        Cpu { vendor: vendor.into(), model_name, family, model, hypervisor: true }
    }

    #[test]
    fn sets_metrics_and_causes_are_printed() {
        let list = list(&cpu("GenuineIntel", 6, 85), |event| {
            event.code.is_system_wide().then(|| "no such event here (ENOENT)".to_owned())
        });
        let text = events_text(&list, Width::UNLIMITED);
        assert!(text.starts_with("CPU [31m9, family 6, model 85: Skylake, 320 events, intel/perf"));
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(line("ipc ").contains("2/2"));
        assert!(line("bandwidth ").contains("0/3"));
        assert!(line("dtlb_load_walk_active ").contains("DTLB_LOAD_MISSES.WALK_ACTIVE (r1001008)"));
        assert!(line("dram_reads ").contains("no such event here (ENOENT)"));
        assert!(line("stalls_rob ").contains("Skylake: removed with Skylake"));
        assert!(text.ends_with(
            "other events: names of perf (dTLB-load-misses), of the processor \
             (DTLB_LOAD_MISSES.WALK_ACTIVE), raw codes (r1008), units \
             (cpu/event=0x08,umask=0x10/)\n"
        ));
        let json = json(&list);
        assert!(json.contains("\"schema\": \"hugepilot.events/1\"") && !json.contains('\u{1b}'));
    }

    #[test]
    fn an_unknown_processor_has_generic_events() {
        let list = list(&cpu("GenuineIntel", 6, 151), |_| None);
        let text = events_text(&list, Width::UNLIMITED);
        assert!(text.contains("model 151: hugepilot has no list of its events"));
        assert!(text.contains("dTLB-load-misses (type=3,config=0x10003)"), "{text}");
    }
}
