//! Reports compared with the kernel's counts, and with all bytes read again.

use hugepilot_reports::debloat::DebloatWarning;
use hugepilot_testkit::requires;
use hugepilot_units::{AddrRange, Bytes};

use super::{Bloat, debloat, possible, report};
use crate::look::{contents, total, touched, zero_pages};
use crate::tool::hugepilot;
use crate::workload::sizes;

/// Huge pages of all densities, some twice.
const MIXED: &str = "512,0,300,40,511,16x6,500,256x6,1,490x4,128,487,16x6,384,470,0";

/// Asserts that `a` is `b` within 1 %.
#[track_caller]
fn is_about(what: &str, a: Bytes, b: Bytes) {
    assert!(a.get().abs_diff(b.get()) * 100 <= b.get(), "{what}: {a}, not {b}");
}

#[test]
fn freed_bytes_are_freed_and_no_byte_changes() {
    requires!(possible());
    let mut victim = Bloat::start(&[MIXED]);
    victim.asked("lock 6", "locked");
    let pid = victim.pid();
    let zero: Vec<usize> = zero_pages(pid, victim.memory);
    let open = &zero[..zero.len() - 6];
    let bloat = sizes().base.times(open.iter().sum::<usize>() as u64);
    let before = contents(pid, victim.memory);
    let (rss, huge) = (victim.total("Rss"), victim.total("AnonHugePages"));

    let done = debloat(&[pid], "--min-bloat 0%");
    let report = report(done.exits(0));
    let split = open.iter().filter(|&&pages| pages > 0).count() as u64;
    assert_eq!(report.bloat_bytes, bloat, "{done:?}");
    assert_eq!((report.requested_bytes, report.freed_bytes), (bloat, bloat), "{done:?}");
    assert_eq!(report.huge_pages_split, split, "{done:?}");
    assert_eq!(
        report.huge_pages_before,
        victim.regions() as u64,
        "locked ones are huge, too: {done:?}"
    );
    assert_eq!(report.huge_pages_before - report.huge_pages_after, split, "{done:?}");
    let one = &report.processes[0];
    assert_eq!(one.bloat_bytes_before - one.bloat_bytes_after, one.freed_bytes, "{done:?}");
    assert_eq!(report.skipped.get("mlocked"), Some(&6), "{done:?}");
    assert!(report.failed.is_empty() && report.stopped.is_none(), "{done:?}");

    is_about("memory", rss - victim.total("Rss"), report.freed_bytes);
    is_about(
        "memory by the report",
        Bytes::new(report.rss_drop_bytes.unsigned_abs()),
        report.freed_bytes,
    );
    assert_eq!(huge - victim.total("AnonHugePages"), sizes().huge.times(split));
    let kept: Vec<bool> =
        zero.iter().enumerate().map(|(i, &pages)| pages == 0 || i >= open.len()).collect();
    assert_eq!(victim.map(), kept);
    assert!(contents(pid, victim.memory) == before, "a byte changed");
    is_about("memory once it was read", rss - victim.total("Rss"), report.freed_bytes);
    victim.ends_intact();
}

#[test]
fn the_amount_is_freed_and_less_than_a_huge_page_more() {
    requires!(possible());
    for (order, amount, wanted) in [
        ("exact", "10MiB", Some(Bytes::mib(10))),
        ("hawkeye", "1B", Some(Bytes::new(1))),
        ("emd", "33%", None),
        ("heat --observe 200ms", "21MiB", Some(Bytes::mib(21))),
        ("exact", "1GiB", Some(Bytes::gib(1))),
    ] {
        let victim = Bloat::start(&[MIXED]).quiet();
        let rss = victim.total("Rss");
        let done =
            debloat(&[victim.pid()], &format!("--order {order} --amount {amount} --min-bloat 0%"));
        let report = report(done.exits(0));
        let wanted = wanted.unwrap_or_else(|| Bytes::new(report.bloat_bytes.get() * 33 / 100));
        assert_eq!(report.requested_bytes, wanted, "{done:?}");
        let least = wanted.min(report.bloat_bytes);
        let freed = rss - victim.total("Rss");
        assert!(report.freed_bytes >= least, "{done:?}");
        assert!(report.freed_bytes < least + sizes().huge, "{done:?}");
        assert!(
            freed.get().abs_diff(report.freed_bytes.get()) <= Bytes::kib(256).get(),
            "{freed}: {done:?}"
        );
        let is_shortfall = |warning: &_| matches!(warning, DebloatWarning::Shortfall { .. });
        let came_short = report.warnings.iter().any(is_shortfall);
        assert_eq!(came_short, wanted > report.bloat_bytes, "{done:?}");
        victim.ends_intact();
    }
}

#[test]
fn an_amount_of_zero_splits_nothing() {
    requires!(possible());
    let victim = Bloat::start(&["16x4"]);
    let done = debloat(&[victim.pid()], "--amount 0%");
    assert_eq!(report(done.exits(1)).huge_pages_split, 0);
    assert_eq!(victim.split_regions(), 0);
}

#[test]
fn a_dry_run_changes_nothing_and_predicts_the_result() {
    requires!(possible());
    for order in ["exact", "emd", "hawkeye"] {
        let victim = Bloat::start(&[MIXED, "8"]).quiet();
        let pid = victim.pid();
        let tail = AddrRange::at(victim.memory.end, sizes().huge.times(8));
        let figures =
            || (victim.total("Rss"), victim.total("AnonHugePages"), victim.total("Referenced"));
        let before = figures();
        assert_eq!(touched(pid, tail), 0);

        let amount = format!("--order {order} --amount 55%");
        let foretold = report(debloat(&[pid], &format!("{amount} --dry-run")).exits(0));
        let sample = report(debloat(&[pid], &format!("{amount} --sample 50%")).exits(0));
        let few = report(debloat(&[pid], "--sample 0% --amount 100%").exits(0));
        assert!(
            few.scanned_bytes > Bytes::ZERO
                && few.freed_bytes <= few.bloat_bytes + few.bloat_error_bytes,
            "{few:?}"
        );
        let observed = format!("{amount} --dry-run --observe 300ms");
        report(debloat(&[pid], &observed).exits(0));
        assert_eq!(figures(), before, "a dry run changed something");
        assert_eq!((touched(pid, tail), victim.split_regions()), (0, 0));
        assert!(foretold.dry_run && sample.dry_run);
        assert_eq!(sample.huge_pages_before, foretold.huge_pages_before);
        assert!(sample.scanned_bytes < foretold.scanned_bytes, "{sample:?}");
        let off = sample.bloat_bytes.get().abs_diff(foretold.bloat_bytes.get());
        assert!(off <= sample.bloat_error_bytes.get() * 2, "{sample:?}");
        // The plan is for all huge pages, in steps of those for which each read one stands.
        let step = sizes().huge.get()
            * (sizes().huge.get() * sample.huge_pages_before / sample.scanned_bytes.get() + 1);
        assert!(
            sample.freed_bytes.get().abs_diff(sample.requested_bytes.get()) <= step,
            "{sample:?}"
        );
        assert_eq!(sample.processes[0].bloat_bytes_before, sample.bloat_bytes, "{sample:?}");

        let real = report(debloat(&[pid], &amount).exits(0));
        assert_eq!(real.huge_pages_split, foretold.huge_pages_split, "{order}");
        assert_eq!(real.freed_bytes, foretold.freed_bytes, "{order}");
        assert_eq!(real.bloat_bytes, foretold.bloat_bytes, "{order}");
        assert_eq!(real.huge_pages_after, foretold.huge_pages_after, "{order}");
        assert_eq!(touched(pid, tail), 0, "memory was faulted in");
        victim.ends_intact();
    }
}

#[test]
fn pages_shared_with_a_child_are_split_only_after_its_end() {
    requires!(possible());
    // More than the failed splits after which a process is excluded.
    let mut victim = Bloat::start(&["16x80"]).quiet();
    let pid = victim.pid();
    let child: u32 = victim.asked("fork", "forked")[0].parse().unwrap();
    let used = || total(pid, "Pss") + total(child, "Pss");
    let before = used();
    // Reading it would split and copy it.
    for who in [pid, child] {
        hugepilot(["status", "-p", &who.to_string()]).exits(0);
        assert_eq!(victim.split_regions(), 0);
    }
    for (who, more) in [(pid, ""), (child, ""), (pid, "--dry-run")] {
        let done = debloat(&[who], more);
        let report = report(done.exits(1));
        assert_eq!(report.skipped.get("shared_after_fork"), Some(&80), "{done:?}");
        assert_eq!(
            (report.freed_bytes, report.bloat_bytes),
            (Bytes::ZERO, Bytes::ZERO),
            "{done:?}"
        );
        assert_eq!((report.huge_pages_split, report.huge_pages_after), (0, 80), "{done:?}");
        assert!(report.failed.is_empty(), "it was tried: {done:?}");
    }
    assert!(
        used().get().abs_diff(before.get()) * 50 <= before.get(),
        "{before} before, {} after",
        used()
    );
    assert_eq!(victim.split_regions(), 0);

    victim.asked("reap", "reaped");
    let done = debloat(&[pid], "");
    assert_eq!(report(done.exits(0)).huge_pages_split, 80, "{done:?}");
    assert_eq!(victim.split_regions(), 80);
    victim.ends_intact();
}
