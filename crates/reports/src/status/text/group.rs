//! Text of `status` on several processes: their sums, with memory in common once.

use std::cmp::Reverse;
use std::fmt::Write;

use hugepilot_record::{KernelCode, MappingKind};
use hugepilot_render::sentence::{Sentence, warning_lines};
use hugepilot_render::table::{Width, counted, process_count, table};
use hugepilot_units::{Bytes, PageSizes};

use super::skip::large_pages;
use super::{SMALL, reasons};
use crate::obstacle::obstacles;
use crate::status::{GroupProcess, StatusGroup};

/// Processes and segments that the text shows.
const SHOWN: usize = 12;

/// The sums of the processes, a line for the largest ones, the shared segments, and the reasons.
pub fn group_text(group: &StatusGroup, width: Width) -> String {
    let count = process_count(group.processes.len() as u64);
    let (all, totals) = (group.proportional_bytes(), group.totals());
    let mut text = format!(
        "{count}: {all} resident by Pss, in which shared pages count once; {} on huge pages, {} \
         eligible\n\n",
        totals.huge_bytes, totals.eligible_bytes
    );
    text.push_str(&processes(group, width));
    text.push_str(&segments(group, width));
    text.push_str(&all_reasons(group));
    text.extend(large_pages(group.processes.iter().map(|one| one.large_page_bytes)));
    text.push_str(&stranded(group));
    text.extend(postgres(group));
    text.push_str("mappings of a process: hugepilot status -p PID\n");
    text + &obstacles(&group.obstacles) + &warning_lines(&group.warnings)
}

fn processes(group: &StatusGroup, width: Width) -> String {
    let header = [
        "PID",
        "COMMAND",
        "ANSWER",
        "PSS",
        "RSS",
        "THP",
        "ELIGIBLE",
        "ZERO_FILLED",
        "WHY_NOT_HUGE",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut sorted: Vec<&GroupProcess> = group.processes.iter().collect();
    sorted.sort_by_key(|process| Reverse(process.proportional_bytes));
    let rest = sorted.split_off(sorted.len().min(SHOWN));
    rows.extend(sorted.into_iter().map(process_row));
    if !rest.is_empty() {
        let more = counted(rest.len() as u64, "smaller process", "smaller processes");
        let pss: Bytes = rest.iter().map(|process| process.proportional_bytes).sum();
        let mut row = vec!["\u{2026}".to_owned(), more, String::new(), pss.to_string()];
        row.resize(header.len(), String::new());
        rows.push(row);
    }
    table(rows, &[0, 3, 4, 5, 6, 7], width)
}

fn process_row(process: &GroupProcess) -> Vec<String> {
    let sizes = &process.sizes;
    let mut row = vec![
        process.target.pid.to_string(),
        process.target.command.clone(),
        process.answer.to_string(),
    ];
    let bytes =
        [process.proportional_bytes, sizes.resident_bytes, sizes.huge_bytes, sizes.eligible_bytes];
    row.extend(bytes.map(|bytes| bytes.to_string()));
    row.push(sizes.zero_filled_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()));
    row.push(reasons(&sizes.kernel_reason_bytes));
    row
}

/// The segments of shared memory that several of the processes map.
fn segments(group: &StatusGroup, width: Width) -> String {
    let shared = group.segments().into_iter().filter(|one| {
        let is_memory = matches!(one.kind, MappingKind::SharedMemory | MappingKind::Hugetlb);
        is_memory && one.proportional_bytes >= SMALL
    });
    let mut rows =
        vec![["SEGMENT", "SIZE", "RESIDENT", "HUGE", "PROCESSES"].map(str::to_owned).to_vec()];
    rows.extend(shared.take(SHOWN).map(|one| {
        vec![
            one.name.clone(),
            one.sizes.size_bytes.to_string(),
            one.resident_bytes().to_string(),
            one.sizes.huge_bytes.to_string(),
            one.processes.to_string(),
        ]
    }));
    match rows.len() {
        1 => String::new(),
        _ => format!("\nshared memory, each segment once:\n{}", table(rows, &[1, 2, 3, 4], width)),
    }
}

/// The reasons of kernel and `tune`, each once, with the memory of all processes.
fn all_reasons(group: &StatusGroup) -> String {
    let mut text = String::new();
    let mut entry = |label: &str, code: String, bytes: Bytes, sentence: &dyn Sentence| {
        if bytes < SMALL {
            return;
        }
        let _ = writeln!(text, "{label} {code} {bytes}: {}", sentence.text());
        sentence.help().iter().for_each(|help| _ = writeln!(text, "  help: {help}"));
    };
    for (reason, bytes) in group.kernel_reasons() {
        entry("not huge:", KernelCode::to_string(&reason.code()), bytes, reason);
    }
    for (reason, bytes) in group.skips() {
        entry("not eligible:", reason.to_string(), bytes, &reason);
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// The line about memory that large pages hold and no process maps.
fn stranded(group: &StatusGroup) -> String {
    let of = |process: &GroupProcess| process.stranded_bytes.filter(|bytes| !bytes.is_zero());
    let holders: Vec<(&GroupProcess, Bytes)> =
        group.processes.iter().filter_map(|process| Some((process, of(process)?))).collect();
    if holders.is_empty() {
        return String::new();
    }
    let all: Bytes = holders.iter().map(|(_, bytes)| *bytes).sum();
    let pids: Vec<_> = holders.iter().map(|(one, _)| format!("-p {}", one.target.pid)).collect();
    format!(
        "held by large pages and not mapped: {all}\nhelp: free it, at no cost to the programs: \
         sudo hugepilot debloat {}\n",
        pids.join(" ")
    )
}

/// The size of the pool that the shared memory of PostgreSQL needs.
fn postgres(group: &StatusGroup) -> Option<String> {
    let segments = group.segments();
    let segments = segments.iter().map(|one| (one.kind, &*one.name, one.sizes.size_bytes));
    let mut commands = group.processes.iter().map(|one| &*one.target.command);
    commands.any(is_postgres).then(|| pool_help(segments)).flatten()
}

/// Whether a process with this name is of PostgreSQL.
pub(super) fn is_postgres(command: &str) -> bool {
    command.starts_with("postgres")
}

/// Help that has the size of the pool for the buffers of PostgreSQL: the largest of these mappings
/// or segments that is shared memory without a name.
pub(super) fn pool_help<'a>(
    all: impl Iterator<Item = (MappingKind, &'a str, Bytes)>,
) -> Option<String> {
    let is_buffers = |(kind, name, size): (MappingKind, &str, Bytes)| {
        let is_unnamed = kind == MappingKind::SharedMemory && name.starts_with("/dev/zero");
        is_unnamed.then_some(size)
    };
    let size = all.filter_map(is_buffers).max()?;
    let pages = size.get().div_ceil(PageSizes::X86_64.huge.get());
    Some(format!(
        "help: put the buffers of PostgreSQL on a hugetlb pool: sudo hugepilot pool set --size \
         2MiB --count {pages}, then huge_pages=on in postgresql.conf, then restart\n"
    ))
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::super::tests::report;
    use super::*;

    fn group() -> StatusGroup {
        let mut group = StatusGroup::default();
        for number in 0..SHOWN as u64 + 3 {
            let mut one =
                report(&[(Bytes::mib(10 + number), Bytes::mib(2)), (Bytes::mib(90), Bytes::ZERO)]);
            one.target.pid = Pid(i32::try_from(number).unwrap());
            one.target.command = "postgres".to_owned();
            let shared = &mut one.mappings[1];
            (shared.kind, shared.inode) = (MappingKind::SharedMemory, 7);
            shared.name = "/dev/zero (deleted)".to_owned();
            shared.proportional_bytes = Bytes::mib(6);
            group.add(&one);
        }
        group
    }

    #[test]
    fn many_processes_are_one_report_with_a_segment_once() {
        let mut group = group();
        let text = group_text(&group, Width::UNLIMITED);
        let all = (10..25).sum::<u64>() + 15 * 6;
        let first = format!("15 processes: {all}MiB resident by Pss");
        assert!(text.starts_with(&first), "{text}");
        assert!(text.lines().count() < 30, "{text}");
        assert!(text.contains("3 smaller processes"), "{text}");
        let segment: Vec<&str> = text
            .lines()
            .find(|line| line.starts_with("/dev/zero"))
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(segment[2..], ["4MiB", "90MiB", "0B", "15"], "{text}");
        assert!(text.contains("pool set --size 2MiB --count 2, then huge_pages=on"), "{text}");
        assert!(!text.contains("held by large pages"), "{text}");
        group.processes[3].stranded_bytes = Some(Bytes::mib(9));
        let text = group_text(&group, Width::UNLIMITED);
        assert!(text.contains("not mapped: 9MiB\nhelp: free it"), "{text}");
    }
}
