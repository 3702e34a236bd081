//! Text of the report of `hugepilot doctor`.

mod risk;

use std::fmt::Write as _;

use hugepilot_record::ThpSize;
use hugepilot_render::JsonReport;
use hugepilot_render::sentence::{Sentence, explain, explain_all};
use serde_json::Value;
use tabled::builder::Builder;
use tabled::settings::{Padding, Style};

use crate::doctor::{CgroupReport, CpuReport, DoctorReport, Probe};

impl JsonReport for DoctorReport {
    const EXPLAINS: bool = true;
    fn explain(&self, json: &mut Value) {
        for (index, probe) in self.probes.iter().enumerate() {
            explain(json, &format!("/probes/{index}"), probe);
            explain_all(json, &format!("/probes/{index}/details"), &probe.details);
        }
        explain_all(json, "/risks", &self.risks);
    }
}

/// Returns the report as text: the probes, the help for failures, and the settings.
pub fn doctor_text(report: &DoctorReport) -> String {
    let mut text = format!("Linux {}\n{}\n\n", report.kernel_release, cpu_line(&report.cpu));
    text += &probes(report);
    let fixes = fixes(report);
    if !fixes.is_empty() {
        text += "\nWhat to do\n";
        text += &fixes;
    }
    text += &without_promotion(report);
    text += &thp_off(report);
    text += &risk::risks(report);
    text += "\nSettings\n";
    text += &settings(report);
    let verdict = if report.can_tune() {
        "Live processes can be tuned here."
    } else {
        "Live processes cannot be tuned here: that takes promote and one sampler."
    };
    let _ = write!(text, "\n{verdict}\n");
    text
}

fn cpu_line(report: &CpuReport) -> String {
    let CpuReport { cpu, tlb } = report;
    let name = if cpu.model_name.is_empty() { &cpu.vendor } else { &cpu.model_name };
    let machine = if cpu.hypervisor { ", virtual machine" } else { "" };
    let assumed = if tlb.assumed { " (assumed)" } else { "" };
    format!(
        "{name} ({} family {} model {:#x}{machine})\nData TLB: {} entries, second level {} for \
         4KiB pages, {} for 2MiB{assumed}\n          {}",
        cpu.vendor,
        cpu.family,
        cpu.model,
        tlb.l1d_4k_entries,
        tlb.l2_4k_entries,
        tlb.l2_2m_entries,
        tlb.source
    )
}

fn probes(report: &DoctorReport) -> String {
    let mut rows = Vec::new();
    for probe in &report.probes {
        let answer = if probe.supported { "yes" } else { "no" };
        rows.push([answer.to_owned(), probe.name.clone(), probe.text()]);
        let mut detail = |text| rows.push([String::new(), String::new(), text]);
        probe.details.iter().map(Sentence::text).for_each(&mut detail);
        if probe.is_optional() && !probe.supported {
            detail("not needed by tune".to_owned());
        }
    }
    table(rows)
}

/// Returns each help once, with the probes that it is for.
fn fixes(report: &DoctorReport) -> String {
    let mut fixes: Vec<(String, Vec<&str>)> = Vec::new();
    for probe in report.probes.iter().filter(|probe| !probe.supported) {
        for help in probe.help() {
            match fixes.iter_mut().find(|(known, _)| *known == help) {
                Some((_, names)) => names.push(&probe.name),
                None => fixes.push((help, vec![&probe.name])),
            }
        }
    }
    let lines = fixes.iter().map(|(help, names)| format!("  {}:\n    {help}\n", names.join(", ")));
    lines.collect()
}

/// Names the commands that work where promotion does not, such as for a user without capabilities.
fn without_promotion(report: &DoctorReport) -> String {
    if report.supports(Probe::PROMOTE) {
        return String::new();
    }
    let sampler =
        report.supports(Probe::SAMPLER_CPU_CLOCK) || report.supports(Probe::SAMPLER_HARDWARE);
    let pagemap = report.supports(Probe::PAGEMAP_SCAN);
    let mut rows = vec![["  run, compare", "programs that you start, without --pool"]];
    if pagemap {
        rows.push(["  status", "your own processes"]);
    }
    if pagemap && sampler {
        rows.push(["  tune --dry-run", "your own processes: plan and predicted speedup"]);
    }
    format!("\nWorks without more permissions\n{}", table(rows))
}

/// Explains `transparent_hugepage/enabled` set to `never`: what works, what does not, and the
/// command that changes it.
fn thp_off(report: &DoctorReport) -> String {
    if !report.thp.get("enabled").is_some_and(|setting| setting.contains("[never]")) {
        return String::new();
    }
    let rows = vec![
        ["  works", "MADV_COLLAPSE, which `tune` uses: it ignores this setting"],
        ["  off", "huge pages at page faults, and khugepaged"],
        ["  change", "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"],
    ];
    format!("\nTHP is set to never\n{}", table(rows))
}

fn settings(report: &DoctorReport) -> String {
    let number = |value: Option<i32>| {
        value.map_or_else(|| "not there".to_owned(), |value| value.to_string())
    };
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |name: &str, value: String| rows.push([format!("  {name}"), value]);
    row("pages", format!("{} and {}", report.base_page_bytes, report.huge_page_bytes));
    if report.thp.is_empty() {
        row("thp", "not in this kernel".to_owned());
    }
    for (name, value) in &report.thp {
        row(&format!("thp/{name}"), value.clone());
    }
    for ThpSize { page_bytes, enabled, .. } in &report.thp_sizes {
        let name = format!("thp/hugepages-{}kB/enabled", page_bytes.get() >> 10);
        enabled.iter().for_each(|word| row(&name, word.to_string()));
    }
    row(
        "cgroup",
        report.cgroup.as_ref().map_or_else(|| "none accounts memory".to_owned(), cgroup_line),
    );
    row("psi", if report.psi { "yes" } else { "no" }.to_owned());
    row("capabilities", capabilities(&report.capabilities));
    row("seccomp", seccomp(report.seccomp_mode));
    row("no_new_privs", if report.no_new_privs { "yes" } else { "no" }.to_owned());
    row("kernel.perf_event_paranoid", number(report.perf_event_paranoid));
    row("kernel.yama.ptrace_scope", number(report.yama_ptrace_scope));
    table(rows)
}

fn cgroup_line(cgroup: &CgroupReport) -> String {
    let limit = match (cgroup.limit_bytes, cgroup.left_bytes) {
        (Some(limit), Some(left)) => format!("limit {limit}, {left} left"),
        _ if !cgroup.visible => {
            "whose limits are not visible here: run on the host, or mount its hierarchy".to_owned()
        }
        _ => "no limit".to_owned(),
    };
    format!("v{} {}, {limit}", cgroup.version, cgroup.path)
}

/// Names the capabilities that hugepilot uses, and counts the others.
fn capabilities(held: &[String]) -> String {
    let useful =
        ["cap_sys_nice", "cap_perfmon", "cap_dac_read_search", "cap_sys_ptrace", "cap_sys_admin"];
    let mut shown: Vec<&str> =
        useful.into_iter().filter(|name| held.iter().any(|cap| cap == name)).collect();
    let others = held.len() - shown.len();
    let others = format!("{others} more");
    if held.len() > shown.len() {
        shown.push(&others);
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

fn seccomp(mode: u32) -> String {
    match mode {
        0 => "none".to_owned(),
        1 => "strict".to_owned(),
        2 => "a filter of system calls".to_owned(),
        other => format!("mode {other}"),
    }
}

/// Returns columns of equal width, two blanks apart, without blanks at the end of a line.
fn table<const COLUMNS: usize, Cell: Into<String>>(rows: Vec<[Cell; COLUMNS]>) -> String {
    let mut builder = Builder::default();
    for row in rows {
        builder.push_record(row.map(Into::into));
    }
    let mut table = builder.build();
    let table = table.with(Style::empty()).with(Padding::new(0, 2, 0, 0)).to_string();
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests;
