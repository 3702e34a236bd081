//! Causes of a shortfall, and commands that help.

use hugepilot_kernel::{KernelError, Root};
use hugepilot_record::{Errno, PoolUnsupported};
use hugepilot_reports::pool::{
    Permanent, PoolChange, PoolNote, PoolPages, PoolReport, PoolShortfall, PoolWarning,
};
use hugepilot_units::Bytes;

use super::PoolRequest;
use crate::LentPool;

const EINTR: Errno = Errno(4);

/// Facts about the use of the pools that the counts do not explain.
pub(super) fn warnings(report: &PoolReport) -> Vec<PoolWarning> {
    let mut warnings = Vec::new();
    let in_use: Bytes =
        report.pools.iter().map(|pool| pool.page_bytes.times(pool.pages.in_use())).sum();
    let visible: Bytes = report.processes.iter().map(|user| user.hugetlb_bytes).sum();
    if in_use > visible {
        warnings.push(PoolWarning::UnknownUser { bytes: in_use - visible });
    }
    for pool in &report.pools {
        let unused = pool.pages.free.saturating_sub(pool.pages.reserved.unwrap_or(0));
        if unused > 0 {
            let page_bytes = pool.page_bytes;
            warnings.push(PoolWarning::Unused { page_bytes, bytes: page_bytes.times(unused) });
        }
    }
    warnings
}

/// The error for a page size that this machine does not have.
pub(super) fn no_such_size(root: &Root, size: Bytes, sizes: Vec<Bytes>) -> PoolUnsupported {
    if sizes.is_empty() {
        return PoolUnsupported::NoPools;
    }
    let flags = root.read_text("proc/cpuinfo").unwrap_or_default();
    let lacks_pdpe1gb =
        size == Bytes::gib(1) && flags.contains("flags") && !flags.contains(" pdpe1gb");
    PoolUnsupported::NoSuchSize { size_bytes: size, sizes_bytes: sizes, lacks_pdpe1gb }
}

/// The error while a run has raised the pool: at its end it would undo the change.
pub(super) fn raised_by_run(request: &PoolRequest, lent: LentPool) -> PoolUnsupported {
    let LentPool { pid, before, raised } = lent;
    PoolUnsupported::RaisedByRun { pid, size_bytes: request.size, before, raised }
}

/// The command that sets the pool of `request` to `count`.
pub(super) fn command(request: &PoolRequest, count: u64) -> String {
    let node = request.node.map_or_else(String::new, |node| format!(" --node {node}"));
    format!("sudo hugepilot pool set --size {} --count {count}{node}", request.size)
}

/// Configuration that sets the pool at each boot; `None` for a count of 0.
pub(super) fn permanent(request: &PoolRequest, is_default: bool) -> Option<Permanent> {
    let PoolRequest { size, count, node, .. } = *request;
    if count == 0 {
        return None;
    }
    let (file, line) = if is_default && node.is_none() {
        ("/etc/sysctl.d/60-hugepages.conf", format!("vm.nr_hugepages = {count}"))
    } else {
        // The sysctl does not know other sizes or nodes.
        let path = hugepilot_kernel::hugetlb::count_file(size, node);
        ("/etc/tmpfiles.d/hugepages.conf", format!("w /{path} - - - - {count}"))
    };
    let of_node = node.map_or_else(String::new, |node| format!("{node}:"));
    let kernel_command_line =
        format!("hugepagesz={} hugepages={of_node}{count}", kernel_size(size));
    Some(Permanent { file: file.to_owned(), line, kernel_command_line })
}

/// Formats a size for the kernel command line: `2M`, `1G`.
fn kernel_size(size: Bytes) -> String {
    let units = [(30, 'G'), (20, 'M'), (10, 'K')];
    let fits = |&(shift, _): &(u32, char)| size.get() != 0 && size.get().trailing_zeros() >= shift;
    units.into_iter().find(fits).map_or_else(
        || size.get().to_string(),
        |(shift, unit)| format!("{}{unit}", size.get() >> shift),
    )
}

/// Notes a write that the kernel rejected.
pub(super) fn note_write_error(change: &mut PoolChange, error: &KernelError) {
    let (page_bytes, boot_parameters) = (change.page_bytes, boot_parameters(change));
    match error.errno() {
        Some(Errno::EINVAL) => {
            change.causes.push(PoolShortfall::BootOnly { page_bytes, boot_parameters });
        }
        Some(EINTR) => change.interrupted = true,
        _ => change.causes.push(PoolShortfall::WriteFailed { error: error.to_string() }),
    }
}

fn boot_parameters(change: &PoolChange) -> Option<String> {
    Some(change.permanent.as_ref()?.kernel_command_line.clone())
}

/// Cause of a difference between the requested count and `after`.
pub(super) fn shortfall(change: &PoolChange, after: &PoolPages) -> Option<PoolShortfall> {
    let (requested, page_bytes) = (change.requested, change.page_bytes);
    let persistent = after.persistent();
    let surplus_pages = after.surplus.saturating_sub(change.before.surplus);
    if persistent < requested {
        return Some(match change.interrupted {
            true => PoolShortfall::Interrupted,
            false => lack_of_memory(change, page_bytes.times(requested - persistent)),
        });
    }
    if persistent > requested {
        let extra_pages = persistent - requested;
        return Some(PoolShortfall::ChangedMeanwhile { extra_pages });
    }
    let shrinks = requested < change.before.persistent();
    let held_pages = after.held();
    (shrinks && surplus_pages > 0).then_some(PoolShortfall::PagesHeld {
        page_bytes,
        surplus_pages,
        held_pages,
    })
}

/// Cause of missing pages, from the memory that is left.
fn lack_of_memory(change: &PoolChange, missing_bytes: Bytes) -> PoolShortfall {
    let (page_bytes, memory, node) = (change.page_bytes, &change.memory, change.node);
    let boot_parameters = boot_parameters(change);
    let (free_bytes, available_bytes) = (memory.free_bytes, memory.available_bytes);
    if page_bytes > memory.largest_block() {
        let largest_block_bytes = memory.largest_block();
        return PoolShortfall::NotContiguous {
            page_bytes,
            free_bytes,
            largest_block_bytes,
            node,
            boot_parameters,
        };
    }
    if available_bytes < missing_bytes {
        let total_bytes = memory.total_bytes;
        return PoolShortfall::MemoryInUse {
            missing_bytes,
            available_bytes,
            total_bytes,
            node,
            boot_parameters,
        };
    }
    PoolShortfall::Fragmented {
        page_bytes,
        free_bytes,
        free_block_bytes: memory.free_in_blocks_of(page_bytes),
        node,
        compacted: change.compacted,
        boot_parameters,
    }
}

/// Limits of a dry run.
pub(super) fn forecast(change: &PoolChange) -> Vec<PoolNote> {
    let (before, page_bytes, memory) = (&change.before, change.page_bytes, &change.memory);
    let mut notes = Vec::new();
    let pages = before.held().saturating_sub(change.requested);
    if change.requested < before.persistent() && pages > 0 {
        notes.push(PoolNote::PagesHeld { pages });
    }
    let growth_bytes = page_bytes.times(change.requested.saturating_sub(before.total));
    if growth_bytes == Bytes::ZERO {
        return notes;
    }
    let free_block_bytes = memory.free_in_blocks_of(page_bytes);
    let largest_block_bytes = memory.largest_block();
    if page_bytes > largest_block_bytes {
        notes.push(PoolNote::ContiguityUnknown { growth_bytes, page_bytes, largest_block_bytes });
    } else if free_block_bytes < growth_bytes {
        notes.push(PoolNote::ReclaimNeeded { growth_bytes, page_bytes, free_block_bytes });
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_the_kernel_reads_them() {
        let sizes = [Bytes::kib(64), Bytes::mib(2), Bytes::mib(512), Bytes::gib(1), Bytes::gib(16)];
        assert_eq!(sizes.map(kernel_size), ["64K", "2M", "512M", "1G", "16G"]);
    }
}
