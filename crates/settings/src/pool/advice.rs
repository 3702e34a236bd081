//! Why a pool has not the pages it was asked for, and what to do about it: in words, with the text to paste.

use hugepilot_kernel::{KernelError, Root, Unsupported};
use hugepilot_record::Errno;
use hugepilot_record::pool::{Permanent, PoolChange, PoolPages, PoolReport};
use hugepilot_units::Bytes;

use super::PoolRequest;
use crate::LentPool;

const EINTR: Errno = Errno(4);

/// What the use of the pools leaves to be explained.
pub(super) fn of_use(report: &PoolReport) -> Vec<String> {
    let mut warnings = Vec::new();
    let in_use: Bytes =
        report.pools.iter().map(|pool| pool.page_bytes.times(pool.pages.in_use())).sum();
    let seen: Bytes = report.processes.iter().map(|user| user.hugetlb_bytes).sum();
    if in_use > seen {
        warnings.push(format!(
            "{} of pages are in use by no process seen here: files on a mounted hugetlbfs or shared memory segments (ipcs -m) \
             keep theirs, and processes of other containers are not seen",
            in_use - seen
        ));
    }
    let idle =
        report.pools.iter().filter(|pool| pool.pages.free > pool.pages.reserved.unwrap_or(0));
    for pool in idle {
        let unused = pool.page_bytes.times(pool.pages.free - pool.pages.reserved.unwrap_or(0));
        warnings.push(format!(
            "{unused} in pages of {} are set aside and used by nobody; nothing else can use them meanwhile",
            pool.page_bytes
        ));
    }
    warnings
}

/// There are no pages of that size here.
pub(super) fn no_such_size(root: &Root, size: Bytes, sizes: &[String]) -> Unsupported {
    if sizes.is_empty() {
        return Unsupported::because(
            "this kernel has no hugetlb pools: there is no pool under /sys/kernel/mm/hugepages",
        )
        .fixed_by(
            "a kernel with CONFIG_HUGETLBFS, or transparent huge pages (MADV_HUGEPAGE) instead",
        );
    }
    let refusal = Unsupported::because(format!(
        "there are no huge pages of {size} on this machine, only {}",
        sizes.join(", ")
    ));
    let flags = root.read_text("proc/cpuinfo").unwrap_or_default();
    if size == Bytes::gib(1) && flags.contains("flags") && !flags.contains(" pdpe1gb") {
        return refusal.fixed_by(
            "a processor with the flag pdpe1gb; in a virtual machine, a CPU model that shows it (QEMU: -cpu host)",
        );
    }
    refusal.fixed_by(format!("one of --size {}", sizes.join(", ")))
}

/// What would be set now would be undone when that run ends, if it happened to be the count that the run had set.
pub(super) fn is_lent(request: &PoolRequest, lent: LentPool) -> Unsupported {
    let LentPool { pid, before, raised } = lent;
    Unsupported::because(format!(
        "hugepilot (pid {pid}) has the pool of {} pages raised from {before} to {raised} for as long as a program runs",
        request.size
    ))
    .fixed_by("wait until it has ended; if it was killed: sudo hugepilot doctor")
}

/// The command that sets the pool of `request` to `count`.
pub(super) fn command(request: &PoolRequest, count: u64) -> String {
    let node = request.node.map_or_else(String::new, |node| format!(" --node {node}"));
    format!("sudo hugepilot pool set --size {} --count {count}{node}", request.size)
}

/// ` on node 1`
pub(super) fn on_node(node: Option<u32>) -> String {
    node.map_or_else(String::new, |node| format!(" on node {node}"))
}

/// How to have the pool after each boot; `None` for an empty one.
pub(super) fn permanent(request: &PoolRequest, is_default: bool) -> Option<Permanent> {
    let PoolRequest { size, count, node, .. } = *request;
    if count == 0 {
        return None;
    }
    let (file, line) = if is_default && node.is_none() {
        ("/etc/sysctl.d/60-hugepages.conf", format!("vm.nr_hugepages = {count}"))
    } else {
        // The sysctl knows neither other sizes nor nodes.
        let path = hugepilot_kernel::hugetlb::count_file(size, node);
        ("/etc/tmpfiles.d/hugepages.conf", format!("w /{path} - - - - {count}"))
    };
    let of_node = node.map_or_else(String::new, |node| format!("{node}:"));
    let kernel_command_line =
        format!("hugepagesz={} hugepages={of_node}{count}", kernel_size(size));
    Some(Permanent { file: file.to_owned(), line, kernel_command_line })
}

/// As the kernel command line has sizes: `2M`, `1G`.
fn kernel_size(size: Bytes) -> String {
    let units = [(30, 'G'), (20, 'M'), (10, 'K')];
    let fits = |&(shift, _): &(u32, char)| size.get() != 0 && size.get().trailing_zeros() >= shift;
    units.into_iter().find(fits).map_or_else(
        || size.get().to_string(),
        |(shift, unit)| format!("{}{unit}", size.get() >> shift),
    )
}

/// A write that the kernel refused.
pub(super) fn of_write(change: &mut PoolChange, error: &KernelError) {
    match error.errno() {
        Some(Errno::EINVAL) => {
            let size = change.page_bytes;
            change.why.push(format!(
                "this kernel makes pages of {size} only at boot, not while it runs (EINVAL)"
            ));
            change.fixes.extend(at_boot(change));
        }
        Some(EINTR) => change.interrupted = true,
        _ => change.why.push(error.to_string()),
    }
}

fn at_boot(change: &PoolChange) -> Option<String> {
    let words = &change.permanent.as_ref()?.kernel_command_line;
    Some(format!(
        "reserve them at boot, when memory is in one piece, on the kernel command line: {words}"
    ))
}

/// What a look afterwards shows: pages that are missing, or that stay although they were to go.
pub(super) fn of_result(change: &mut PoolChange, after: &PoolPages) {
    let (asked, size) = (change.requested, change.page_bytes);
    let got = after.persistent();
    if got < asked {
        if change.interrupted {
            change.why.push(
                "a signal came: the kernel stopped, and what it had got by then is kept".to_owned(),
            );
        } else {
            short(change, asked - got);
        }
    } else if got > asked {
        change.why.push(format!(
            "the kernel kept {} pages more than asked for: somebody else may have set the pool meanwhile",
            got - asked
        ));
    } else if asked < change.before.persistent() && after.surplus > change.before.surplus {
        let kept = after.surplus - change.before.surplus;
        let held = after.held();
        change.why.push(format!(
            "{kept} pages of {size} are in use or reserved ({held} in all), so they stay as surplus: each goes back to the \
             system once its program frees it, by itself"
        ));
        change
            .fixes
            .push("end the programs that use them: hugepilot pool show names them".to_owned());
    }
}

/// Why the kernel found fewer pages, from the memory it had left.
fn short(change: &mut PoolChange, missing: u64) {
    let (size, memory, place) = (change.page_bytes, &change.memory, on_node(change.node));
    let need = size.times(missing);
    let boot = at_boot(change);
    let free = memory.free_bytes;
    if size > memory.largest_block() {
        change.why.push(format!(
            "pages of {size} need as much memory in one aligned piece, with nothing in it that cannot be moved; while a system \
             runs that is rare, and the kernel found no more{place} ({free} are free, in blocks of at most {})",
            memory.largest_block()
        ));
        change.fixes.extend(boot);
        return;
    }
    let large = memory.free_in_blocks_of(size);
    if memory.available_bytes < need {
        change.why.push(format!(
            "memory is in use: {need} are missing, and {} of {} are available{place}",
            memory.available_bytes, memory.total_bytes
        ));
        change.fixes.push("end programs that use much memory, and try again".to_owned());
    } else {
        change.why.push(format!(
            "memory is fragmented: {free} are free{place}, but only {large} of it in blocks of {size} and more, and the kernel \
             could not join the rest, because pages in between cannot be moved"
        ));
        if !change.compacted {
            change.fixes.push(
                "compact memory first, which may take seconds: the same command with --compact"
                    .to_owned(),
            );
        }
    }
    change.fixes.extend(boot);
}

/// What a dry run can know of it.
pub(super) fn forecast(change: &PoolChange) -> Vec<String> {
    let (before, size, memory) = (&change.before, change.page_bytes, &change.memory);
    let mut told = Vec::new();
    let stay = before.held().saturating_sub(change.requested);
    if change.requested < before.persistent() && stay > 0 {
        told.push(format!(
            "{stay} pages are in use or reserved and would stay as surplus until their programs free them"
        ));
    }
    let growth = size.times(change.requested.saturating_sub(before.total));
    if growth == Bytes::ZERO {
        return told;
    }
    let at_once = memory.free_in_blocks_of(size);
    if size > memory.largest_block() {
        told.push(format!(
            "whether {growth} can be had in pieces of {size} only a try shows: the kernel counts blocks of up to {}",
            memory.largest_block()
        ));
    } else if at_once < growth {
        told.push(format!(
            "{at_once} are free in blocks of {size} and more; for the rest of {growth} the kernel must move or drop pages, and \
             may fail"
        ));
    }
    told
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
