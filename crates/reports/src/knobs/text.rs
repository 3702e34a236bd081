//! Text and JSON of `hugepilot knobs`.

use std::fmt::Write;

use hugepilot_render::json::JsonReport;
use hugepilot_render::table::{Width, table};

use crate::knobs::PrefetchReport;

/// Prints the prefetchers, and the processors with the same state in one row.
pub fn prefetch_text(report: &PrefetchReport, width: Width) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: register {}, 1 disables\n", report.model_name, report.register);
    let mut rows = vec![["PREFETCHER", "BIT", "FETCHES"].map(str::to_owned).to_vec()];
    for known in &report.prefetchers {
        rows.push(vec![known.name.clone(), known.bit.to_string(), known.description.clone()]);
    }
    text.push_str(&table(rows, &[1], width));
    text.push('\n');
    let mut states: Vec<(&str, &[String], Vec<u32>)> = Vec::new();
    for cpu in &report.cpus {
        match states.iter_mut().find(|(value, ..)| *value == cpu.value) {
            Some((.., cpus)) => cpus.push(cpu.cpu),
            None => states.push((&cpu.value, &cpu.enabled, vec![cpu.cpu])),
        }
    }
    let mut rows = vec![["CPUS", "VALUE", "ENABLED"].map(str::to_owned).to_vec()];
    for (value, enabled, cpus) in states {
        let enabled = if enabled.is_empty() { "none".to_owned() } else { enabled.join(", ") };
        rows.push(vec![ranges(&cpus), value.to_owned(), enabled]);
    }
    text.push_str(&table(rows, &[], width));
    text
}

/// Formats ascending numbers as ranges, such as `0-3,8`.
fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let part = |&(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

impl JsonReport for PrefetchReport {}

#[cfg(test)]
mod tests {
    use hugepilot_testkit::assert_golden;

    use super::*;
    use crate::knobs::{CpuPrefetch, Prefetcher, SCHEMA};

    #[test]
    fn processors_with_the_same_state_share_a_row() {
        let prefetcher = |name: &str, bit| Prefetcher {
            name: name.to_owned(),
            bit,
            description: "the next line".to_owned(),
        };
        let cpu = |cpu, value: &str, enabled: &[&str]| CpuPrefetch {
            cpu,
            value: value.to_owned(),
            enabled: enabled.iter().map(|&name| name.to_owned()).collect(),
        };
        let report = PrefetchReport {
            schema: SCHEMA.to_owned(),
            model_name: "A CPU".to_owned(),
            register: "0x1a4".to_owned(),
            prefetchers: vec![prefetcher("l2-stream", 0), prefetcher("l1-next", 2)],
            cpus: vec![
                cpu(0, "0x0", &["l2-stream", "l1-next"]),
                cpu(1, "0x0", &["l2-stream", "l1-next"]),
                cpu(2, "0x5", &[]),
                cpu(3, "0x0", &["l2-stream", "l1-next"]),
            ],
        };
        assert_golden("testdata/knobs.txt", &prefetch_text(&report, Width::UNLIMITED));
    }
}
