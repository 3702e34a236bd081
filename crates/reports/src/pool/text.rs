//! Text and JSON of `hugepilot pool`.

mod change;
mod explain;

use std::fmt::Write;

use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{explain_all, lines};
use hugepilot_render::table::{Width, counted, table};
use hugepilot_units::Bytes;
use serde_json::Value;

use crate::pool::{NodePool, Pool, PoolMemory, PoolPages, PoolReport, PoolUser, ZoneBlocks};

pub use change::pool_change_text;
pub use explain::pool_explained;

/// Processes shown.
const SHOWN: usize = 30;

/// Prints each pool, the memory that pools allocate from, and their users.
pub fn pool_text(report: &PoolReport, width: Width) -> String {
    let mut text = pools(&report.pools, width);
    text.push('\n');
    text.push_str(&memory(&report.memory, &page_sizes(&report.pools), width));
    text.push('\n');
    text.push_str(&users(&report.processes, width));
    for mount in &report.mounts {
        let _ = writeln!(text, "hugetlbfs on {} ({})", mount.path, mount.options);
    }
    if report.mounts.is_empty() {
        text.push_str("no hugetlbfs is mounted\n");
    }
    for warning in &report.warnings {
        text.push_str(&lines("note", warning));
    }
    text
}

impl JsonReport for PoolReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
    }
}

fn page_sizes(pools: &[Pool]) -> Vec<Bytes> {
    pools.iter().map(|pool| pool.page_bytes).collect()
}

fn pools(pools: &[Pool], width: Width) -> String {
    if pools.is_empty() {
        return "This kernel has no hugetlb pools.\n".to_owned();
    }
    let header =
        ["SIZE", "NODE", "PAGES", "FREE", "RESERVED", "IN_USE", "SURPLUS", "OVERCOMMIT", "MEMORY"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for pool in pools {
        let size = if pool.is_default {
            format!("{} (default)", pool.page_bytes)
        } else {
            pool.page_bytes.to_string()
        };
        rows.push(row(size, "all".to_owned(), &pool.pages, Some(pool.overcommit), pool.page_bytes));
        if pool.nodes.len() > 1 {
            let of_node = |part: &NodePool| {
                row(String::new(), part.node.to_string(), &part.pages, None, pool.page_bytes)
            };
            rows.extend(pool.nodes.iter().map(of_node));
        }
    }
    table(rows, &[1, 2, 3, 4, 5, 6, 7, 8], width)
}

fn row(
    size: String,
    node: String,
    pages: &PoolPages,
    overcommit: Option<u64>,
    page: Bytes,
) -> Vec<String> {
    let count = |count: Option<u64>| count.map_or_else(unknown, |count| count.to_string());
    vec![
        size,
        node,
        pages.total.to_string(),
        pages.free.to_string(),
        count(pages.reserved),
        pages.in_use().to_string(),
        pages.surplus.to_string(),
        count(overcommit),
        page.times(pages.total).to_string(),
    ]
}

/// Free blocks by size, and free memory in blocks large enough for each of `sizes`.
fn memory(memory: &PoolMemory, sizes: &[Bytes], width: Width) -> String {
    let mut text = format!(
        "memory: {} total, {} available, {} free; free blocks by size:\n",
        memory.total_bytes, memory.available_bytes, memory.free_bytes
    );
    let orders = memory.zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(0);
    let mut header = vec!["NODE".to_owned(), "ZONE".to_owned()];
    header.extend((0..orders).map(|order| memory.block(order).to_string()));
    let mut rows = vec![header];
    rows.extend(memory.zones.iter().map(|zone| blocks(zone, orders)));
    let right: Vec<usize> = (2..orders + 2).collect();
    text.push_str(&table(rows, &right, width));
    for &size in sizes.iter().filter(|&&size| size <= memory.largest_block()) {
        let free = memory.free_in_blocks_of(size);
        let _ = writeln!(text, "free in blocks of at least {size}: {free}");
    }
    text
}

fn blocks(zone: &ZoneBlocks, orders: usize) -> Vec<String> {
    let mut row = vec![zone.node.to_string(), zone.zone.clone()];
    row.extend(zone.free_blocks.iter().map(u64::to_string));
    row.resize(orders + 2, String::new());
    row
}

fn users(users: &[PoolUser], width: Width) -> String {
    if users.is_empty() {
        return "no process uses hugetlb pages\n".to_owned();
    }
    let mut rows =
        vec![["PID", "COMMAND", "HUGETLB", "PRIVATE", "SHARED"].map(str::to_owned).to_vec()];
    let size = |bytes: Option<Bytes>| bytes.map_or_else(unknown, |bytes| bytes.to_string());
    rows.extend(users.iter().take(SHOWN).map(|user| {
        vec![
            user.pid.to_string(),
            user.command.clone(),
            user.hugetlb_bytes.to_string(),
            size(user.private_bytes),
            size(user.shared_bytes),
        ]
    }));
    let mut text = table(rows, &[0, 2, 3, 4], width);
    if users.len() > SHOWN {
        let more = counted((users.len() - SHOWN) as u64, "more process", "more processes");
        let _ = writeln!(text, "and {more} (--json has all)");
    }
    text
}

fn unknown() -> String {
    "-".to_owned()
}
