//! Meaning of files: vertex IDs, directions, columns and large distances.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use hugepilot_reports::graph::{GraphWarning, KernelResult};

use super::Files;

/// A path from 1 to 4. Formats that count from 1 keep their IDs, also in other files.
#[test]
fn ids_that_count_from_1_stay_as_they_are() {
    let files = Files::new();
    files.with(
        "g.mtx",
        "%%MatrixMarket matrix coordinate integer general\n4 4 3\n1 2 5\n2 3 7\n3 4 1\n",
    );
    files.with("g.gr", "c x\np sp 4 3\na 1 2 5\na 2 3 7\na 3 4 1\n");
    files.with("g.graph", "4 3 1\n2 5\n1 5 3 7\n2 7 4 1\n3 1\n");
    for name in ["g.mtx", "g.gr", "g.graph"] {
        let directed = name != "g.graph";
        let far = |far: [&str; 4]| (1..).zip(far.map(str::to_owned)).collect::<BTreeMap<_, _>>();
        let expected =
            far(if directed { ["Infinity", "0", "7", "8"] } else { ["5", "0", "7", "8"] });
        let sssp = |file: &str| files.values(&format!("run sssp @{file} --source 2"));
        assert_eq!(sssp(name), expected, "{name}");
        assert_eq!(files.values(&format!("run cc @{name}")), far(["1"; 4]), "{name}");
        for line in ["run bfs @N --source 0", "run bfs @N --source 5"] {
            files.graph(&line.replace('N', name)).exits(2).says(&["cannot find vertex"]);
        }
        for to in ["a.hpg", "a.wel", "a.mtx", "a.gr"] {
            let is_lost = directed && to == "a.wel";
            let lost = GraphWarning::DirectionsDropped { format: "wel".to_owned() };
            let expected_warnings = if is_lost { vec![lost] } else { Vec::new() };
            let report = files.report(&format!("convert @{name} @{to} --force"));
            assert_eq!(report.warnings, expected_warnings, "{to}");
            let flag = if is_lost { " --directed" } else { "" };
            assert_eq!(sssp(&format!("{to}{flag}")), expected, "{name} {to}");
        }
        let report = files.report(&format!("convert @{name} @a.wsg --force"));
        let shifted = GraphWarning::IdsShifted {
            format: "wsg".to_owned(),
            input_first_id: 1,
            output_first_id: 0,
        };
        assert_eq!((report.warnings, report.written.unwrap().map), (vec![shifted], None));
        let map = files.report(&format!("reorder @{name} @b.gr --reorder rcm --force")).written;
        let map = fs::read_to_string(map.unwrap().map.unwrap()).unwrap();
        let ids = |column: usize| -> BTreeSet<&str> {
            map.lines().map(|line| line.split(' ').nth(column).unwrap()).collect()
        };
        assert!([0, 1].map(ids).iter().all(|ids| ids.iter().copied().eq(["1", "2", "3", "4"])));
    }
    let report = files.report("run tc @g.mtx");
    let cause = report.file.unwrap().direction_cause;
    assert_eq!((report.graph.directed, &cause[..]), (false, "kernel"));
    files.graph("run tc @g.mtx --directed").exits(2).says(&["directed"]);
    assert!(files.graph("run cc @g.mtx").exits(0).out().contains("edge directions ignored"));
}

/// 11 vertices at distances of up to 2·10¹⁰: they exceed 32 bits.
#[test]
fn distances_beyond_32_bits_are_exact() {
    let files = Files::new();
    let chain: String = (0..10).map(|i| format!("{i} {} 2000000000\n", i + 1)).collect();
    files.with("g.wel", chain);
    for kernel in ["sssp", "sssp --algo bellman-ford", "sssp --delta 1000000007"] {
        let report = files.report(&format!("run {kernel} @g.wel --source 0 --verify"));
        let expected = Some(KernelResult::Sssp {
            reached: 11,
            distance_sum: 110_000_000_000,
            distance_max: 20_000_000_000,
        });
        assert_eq!((report.result, report.verified), (expected, Some(true)));
        assert_eq!(report.width_bits, 64);
    }
    files.graph("run sssp @g.wel --source 0 --width 32").exits(2).says(&["32 bits", "--width 64"]);
}

/// The line on stderr, and the same facts in JSON.
#[test]
fn a_load_states_how_it_read_the_file() {
    let files = Files::new();
    files.with("g.csv", "weight,source,target,x\n7,1,2,0\n8,2,1,0\n9,3,3,0\n1,3,1,0\n");
    let line = "note: @g.csv: wel: columns weight,source,target,-; undirected (the file states no \
                directions: --directed keeps them); weighted; IDs from 1; 1 duplicate merged; 1 \
                self-loop dropped";
    let line = line.replace('@', &format!("{}/", files.0.path().display()));
    files.graph("info @g.csv").exits(0).says(&[&line]);
    let report = files.report("info @g.csv");
    let file = report.file.unwrap();
    assert_eq!(file.columns, ["weight", "source", "target", "-"]);
    assert_eq!((file.first_id, &file.direction_cause[..]), (Some(1), "unstated"));
    files.with("g.txt", "3 2\n0 1\n0 2\n");
    files.graph("info @g.txt").exits(2).says(&["g.txt:1:", "--skip-lines 1", "--skip-lines 0"]);
    assert_eq!(files.report("info @g.txt --skip-lines 1").graph.edges, 2);
    let zeros = "info @g.csv --columns -,source,target,weight --skip-lines 1";
    files.graph(zeros).exits(2).says(&["g.csv:2: weight \"0\""]);
}
