//! Goldens of the micro-benchmarks.

use hugepilot_testkit::assert_golden;
use hugepilot_units::Bytes;

use super::*;
use crate::lab::{
    GUPS_SCHEMA, KnownTlb, LabWarning, NotAvailable, PCHASE_SCHEMA, PageKind, PchasePoint,
    STREAM_SCHEMA, StreamKernel, TLB_SWEEP_SCHEMA, TlbLevel, TlbPoint,
};

fn about(pages: PageKind, huge: u64) -> LabMemory {
    LabMemory {
        pages,
        footprint_bytes: Bytes::gib(1),
        huge_bytes: Some(Bytes::mib(huge)),
        cache_bytes: Some(Bytes::mib(480)),
    }
}

fn spread(median: f64) -> Spread {
    Spread { median, min: median * 0.9, max: median * 1.2 }
}

fn pchase() -> PchaseReport {
    let memory = about(PageKind::Thp, 768);
    let mut warnings = memory.warnings();
    let (bytes, cache_bytes) = (Bytes::gib(1), Bytes::mib(480));
    warnings.push(LabWarning::InCache { bytes, required_bytes: Bytes::mib(1920), cache_bytes });
    warnings.push(LabWarning::ManyThreads { threads: 4, processors: 2 });
    let point = |threads, chains, ns| PchasePoint {
        threads,
        chains,
        latency_ns: spread(ns),
        bytes_per_second: spread(f64::from(threads * chains) * 64e9 / ns),
    };
    PchaseReport {
        schema: PCHASE_SCHEMA.to_owned(),
        memory,
        seed: 1,
        line_bytes: 64,
        rounds: 3,
        points: vec![point(1, 1, 96.4), point(1, 8, 110.0), point(4, 8, 240.0)],
        warnings,
    }
}

fn stream() -> StreamReport {
    let kernel = |name: &str, words: u64, seconds| StreamKernel {
        kernel: name.to_owned(),
        counted_bytes: Bytes::gib(1).times(words),
        best_bytes_per_second: 1.2e10,
        seconds: spread(seconds),
    };
    StreamReport {
        schema: STREAM_SCHEMA.to_owned(),
        memory: LabMemory { footprint_bytes: Bytes::gib(3), ..about(PageKind::Base, 0) },
        array_bytes: Bytes::gib(1),
        threads: 2,
        rounds: 10,
        kernels: vec![kernel("copy", 2, 0.18), kernel("triad", 3, 0.27)],
        warnings: vec![LabWarning::PagesUnknown],
    }
}

fn gups() -> GupsReport {
    GupsReport {
        schema: GUPS_SCHEMA.to_owned(),
        memory: about(PageKind::Hugetlb2M, 1024),
        words: 1 << 27,
        threads: 2,
        updates: 1 << 29,
        seconds: 12.5,
        updates_per_second: 42_949_672.96,
        wrong_words: 17,
        passed: true,
        warnings: Vec::new(),
    }
}

fn sweep() -> TlbSweepReport {
    let point = |page_count, translation_ns: f64| TlbPoint {
        page_count,
        latency_ns: translation_ns + 1.5,
        packed_latency_ns: 1.5,
        translation_ns,
    };
    let level = |holds: Option<u64>, exceeded: Option<u64>, ns: f64| TlbLevel {
        holds_pages: holds,
        exceeded_pages: exceeded,
        translation_ns: ns,
        translation_cycles: Some(ns * 3.0),
    };
    let base = TlbCurve {
        pages: PageKind::Base,
        page_bytes: Bytes::kib(4),
        points: vec![point(64, -0.1), point(96, 0.0), point(128, 2.5), point(2048, 12.0)],
        levels: vec![level(Some(96), Some(128), 0.0), level(None, None, 7.25)],
        unavailable: None,
    };
    let gigabyte = TlbCurve {
        pages: PageKind::Hugetlb1G,
        page_bytes: Bytes::gib(1),
        points: Vec::new(),
        levels: Vec::new(),
        unavailable: Some(NotAvailable {
            cause: "the pool of 1GiB pages is empty".to_owned(),
            help: vec!["sudo hugepilot pool set --size 1GiB --count 8".to_owned()],
        }),
    };
    let known = KnownTlb {
        l1d_4k_entries: 96,
        l2_4k_entries: 2048,
        l2_2m_entries: 1024,
        source: "a manual".to_owned(),
        assumed: false,
    };
    TlbSweepReport {
        schema: TLB_SWEEP_SCHEMA.to_owned(),
        clock_ghz: Some(3.0),
        known: Some(known),
        seed: 1,
        curves: vec![base, gigabyte],
    }
}

#[test]
fn the_texts_have_every_number_with_its_unit() {
    let width = Width::UNLIMITED;
    let texts = [
        pchase_text(&pchase(), width),
        stream_text(&stream(), width),
        gups_text(&gups()),
        tlb_sweep_text(&sweep(), width),
    ];
    assert_golden("testdata/lab.txt", &texts.join("\n----\n"));
}
