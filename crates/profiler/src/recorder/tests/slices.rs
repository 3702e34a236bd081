//! Contents of the slices of a recording.

use hugepilot_recording::CodeSlice;
use hugepilot_testkit::requires;

use super::*;

#[test]
fn what_was_before_the_begin_does_not_count() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    put_stat(folder.path(), Stat { faults: 500, ..STAT });
    NOW.set(Nanos::seconds(20));
    recorder.begin();
    let head = recorder.head(Vec::new(), 1.0);
    assert_eq!(head.started, Nanos::seconds(20));
    put_stat(folder.path(), Stat { faults: 503, ..STAT });
    NOW.set(Nanos::millis(20_100));
    let lines = recorder.slice();
    let found = value(&head, &slices(&lines), "minor_faults");
    assert_eq!(found, Some((3.0, Nanos::millis(100))));
}

#[test]
fn huge_pages_in_total_are_read_between_two_reads_of_the_mappings() {
    NOW.set(Nanos::seconds(10));
    let root = Root::live();
    let own = || Process::open(&root, Pid(std::process::id().cast_signed())).unwrap();
    requires!(own().huge_sums());
    let mut recorder =
        Recorder::with_clock(&root, PageSizes::X86_64, OPTIONS, missing(), Vec::new(), CLOCKS);
    assert!(recorder.watch(own()));
    let head = recorder.head(Vec::new(), 1.0);
    let names: Vec<&str> = metrics_of(&head, MetricScope::Process);
    let column = |name| names.iter().position(|one| *one == name).unwrap();
    let mut reads = [0; 2];
    for slice in 1..=9 {
        NOW.set(Nanos::millis(10_000 + 100 * slice));
        let lines = recorder.slice();
        let of_process = slices(&lines).into_iter().filter(|one| one.pid.is_some());
        for one in of_process.filter(|one| one.tid.is_none()) {
            reads[0] += usize::from(one.values[column("thp")].is_some());
            reads[1] += usize::from(one.values[column("swapped")].is_some());
        }
    }
    assert_eq!(reads, [9 + 1, 1], "the mappings have the total, too");
}

const ANON: &str = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n";
const FILE: &str = "7f0000000000-7f0000400000 r--p 00000000 08:01 77 /bin/solve\n";

/// A recorder of process 7 with these samples: time in milliseconds and instruction.
fn with_samples(folder: &tempfile::TempDir, samples: &[(u64, u64)]) -> Recorder {
    let of = |&(millis, ip): &(u64, u64)| {
        let (time, ip) = (Nanos::millis(millis), VirtAddr::new(ip));
        (Sample { time, ip, ..sample(7, Some(0x7f00_0020_0000)) }, Vec::new())
    };
    let source = Box::new(Scripted(samples.iter().map(of).collect(), 0));
    let chosen = SamplerChoice { source, samples_time: true, unavailable: Vec::new() };
    recorder(folder, Stalls::Sampled(chosen))
}

/// End of each line by code, in milliseconds, and its samples.
fn code_lines(lines: &[Line]) -> Vec<(u64, u64)> {
    let code = lines.iter().filter_map(|line| match line {
        Line::Code(code) => Some(code),
        _ => None,
    });
    let samples = |code: &CodeSlice| code.stalls.iter().map(|stall| stall.samples).sum();
    code.map(|code| (code.time.get() / 1_000_000, samples(code))).collect()
}

#[test]
fn a_phase_ends_a_slice_of_code_where_it_begins() {
    let folder = tree();
    put(folder.path(), "proc/7/maps", ANON);
    let mut recorder = with_samples(&folder, &[(10_010, 1), (10_040, 1), (10_060, 1)]);
    recorder.sample(Nanos::ZERO);
    NOW.set(Nanos::millis(10_100));
    recorder.begin_phase(Nanos::millis(10_050));
    assert_eq!(code_lines(&recorder.finish(None)), [(10_050, 2), (10_100, 1)]);
}

#[test]
fn many_instructions_make_a_longer_slice_of_code() {
    let folder = tree();
    put(folder.path(), "proc/7/maps", ANON);
    let samples: Vec<_> = (0..300).map(|at| (10_000, 0x1000 + at)).collect();
    let mut recorder = with_samples(&folder, &samples);
    recorder.sample(Nanos::ZERO);
    for tenth in 101..=130 {
        NOW.set(Nanos::millis(100 * tenth));
        assert!(code_lines(&recorder.slice()).is_empty(), "no symbols are read");
    }
    let ends = code_lines(&recorder.finish(None));
    assert_eq!(ends, [(10_600, 300)], "at 512 frames per second");
}

#[test]
fn a_sample_has_the_mapping_of_its_time() {
    let folder = tree();
    put(folder.path(), "proc/7/maps", ANON);
    let mut recorder = with_samples(&folder, &[(10_000, 1), (10_050, 1)]);
    recorder.sample(Nanos::ZERO);
    put(folder.path(), "proc/7/maps", FILE);
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.finish(None);
    let mut names: Vec<_> = stalls(&lines).iter().map(|one| one.mapping.as_deref()).collect();
    names.sort_unstable();
    assert_eq!(names, [Some("[anon]"), Some("[unknown mapping]")]);
}

#[test]
fn a_mapping_is_named_in_the_first_slice_with_samples_in_it() {
    let folder = tree();
    let maps = |more: &str| put(folder.path(), "proc/7/maps", &format!("{FILE}{more}"));
    maps("");
    let mut recorder = with_samples(&folder, &[]);
    let mut named = |tenth: u64, address: u64| {
        let sample = (sample(7, Some(address)), Vec::new());
        if let Stalls::Sampled(chosen) = &mut recorder.stalls {
            chosen.source = Box::new(Scripted(vec![sample], 0));
        }
        NOW.set(Nanos::millis(100 * tenth - 50));
        recorder.sample(Nanos::ZERO);
        NOW.set(Nanos::millis(100 * tenth));
        let lines = recorder.slice();
        let heat = lines.iter().find_map(|line| match line {
            Line::Heat(heat) => Some(heat),
            _ => None,
        });
        let names = heat.unwrap().mappings.iter();
        names.map(|mapping| mapping.1.clone()).collect::<Vec<_>>()
    };
    assert_eq!(named(101, 0x7f00_0020_0000), ["/bin/solve"]);
    assert!(named(102, 0x7f00_0030_0000).is_empty(), "it is known");
    maps("7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \n");
    assert_eq!(named(103, 0x7f00_0050_0000), ["[anon]"]);
    assert!(named(104, 0x7fff_0000_0000).is_empty(), "it is in no mapping");
    // A process that ended has no mappings.
    put(folder.path(), "proc/7/maps", "");
    assert!(named(105, 0x7f00_0050_0000).is_empty());
}
