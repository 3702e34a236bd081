//! Load options.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hugepilot_graph::{Edge, EdgeList, Format, GraphError, Ids, LoadOptions, load, save};
use hugepilot_units::Bytes;

use super::{Files, both, by_hand, loaded, options, refuses_with};

#[test]
fn ids_with_gaps_are_relabelled_and_kept() {
    let text = "18446744073709551615 7\n7 90000000000\n18446744073709551615 90000000000\n";
    let compact = LoadOptions { compact: true, ..options(true) };
    let found = loaded::<u32>("g.el", text, &compact).unwrap();
    assert_eq!(found.ids.listed().unwrap(), [7, 90_000_000_000, u64::MAX]);
    assert_eq!(found.graph.out.neighbours(2), [0, 1]);
    assert_eq!(found.graph.out.neighbours(0), [1]);
    refuses_with("g.el", text, &options(true), &["g.el:1:", "--compact"]);
    refuses_with("g.mtx", by_hand::MTX, &compact, &["--compact is for el"]);
}

#[test]
fn isolated_vertices_exist_if_stated() {
    let stated = |count| LoadOptions { vertices: Some(count), ..options(true) };
    for (name, text, words) in [
        ("g.el", by_hand::EL, "vertex 5 in"),
        ("g.mtx", by_hand::MTX, "--vertices 5"),
        ("g.gr", by_hand::DIMACS, "--vertices 5"),
    ] {
        assert_eq!(loaded::<u32>(name, text, &stated(100)).unwrap().graph.vertices(), 100);
        refuses_with(name, text, &stated(5), &[words]);
    }
    let none = loaded::<u32>("g.el", "# nothing\n", &stated(3)).unwrap();
    assert_eq!(none.graph.vertices(), 3);
    refuses_with("g.el", "# nothing\n", &options(true), &["--vertices"]);
    refuses_with("g.sg", by_hand::gap(false, true), &stated(3), &["--vertices is for el"]);
}

#[test]
fn a_graph_that_does_not_fit_is_rejected_with_the_memory_required() {
    let text = "1 2\n".repeat(100_000);
    let files = [
        ("g.el", text.clone().into_bytes()),
        ("g.sg", by_hand::gap(false, true)),
        ("g.gr", by_hand::DIMACS.into()),
    ];
    for (name, contents) in files {
        let peak = loaded::<u32>(name, &contents, &options(true)).unwrap().peak;
        let enough = LoadOptions { available: Some(peak), ..options(true) };
        assert!(loaded::<u32>(name, &contents, &enough).is_ok(), "{name}");
        let less = LoadOptions { available: Some(peak - Bytes::new(1)), ..options(true) };
        let error = loaded::<u32>(name, &contents, &less).unwrap_err();
        assert!(
            matches!(error, GraphError::InsufficientMemory { needed, .. } if needed <= peak),
            "{name}: {error}"
        );
    }
}

#[test]
fn ids_that_do_not_fit_are_rejected_before_they_are_sorted() {
    let lines = |name: fn(u64) -> String| (0..100_000).map(name).collect::<String>();
    let files = Files::new();
    let list = files.with("g.el", lines(|i| format!("{} {}\n", i * 1_000_003, i * 1_000_003 + 1)));
    files.with("g.v", lines(|i| format!("{}\n", i * 7)));
    let pair = files.with("g.e", "0 7\n");
    for (path, compact) in [(list, true), (pair, false)] {
        let of =
            |available| load::<u32>(&path, &LoadOptions { compact, available, ..options(true) });
        // The build afterwards would fit.
        let peak = of(None).unwrap().peak;
        let error = of(Some(peak)).unwrap_err();
        assert!(
            matches!(error, GraphError::InsufficientMemory { needed, .. } if needed > peak),
            "{error}"
        );
        assert!(of(Some(peak.times(4))).is_ok());
    }
}

#[test]
fn the_memory_of_a_transpose_is_stated_if_the_file_has_none_of_use() {
    let told = |name, contents: Vec<u8>| {
        let all = Mutex::new(Vec::new());
        let building = |_, peak| {
            all.lock().unwrap().push(peak);
            Ok(())
        };
        let of = LoadOptions { building: &building, ..options(true) };
        let loaded = loaded::<u32>(name, contents, &of).unwrap();
        let all = all.into_inner().unwrap();
        assert_eq!(all.last(), Some(&loaded.peak));
        (both(&loaded.graph), all)
    };
    let (plain, ready) = told("g.sg", by_hand::gap(false, true));
    let (same, lacking) = told("g.gr", by_hand::galois(1, false));
    assert!(same == plain && ready.len() == 1 && lacking.len() == 1 && lacking[0] > ready[0]);
    // Swaps the incoming edges of vertex 2.
    let mut file = by_hand::gap(false, true);
    let row = 17 + 56 + 28 + 56 + 3 * 4;
    assert_eq!(file[row..row + 8], [0u32, 5].map(u32::to_le_bytes).concat());
    file[row..row + 8].rotate_left(4);
    let (same, of_no_use) = told("g.sg", file);
    assert!(same == plain && of_no_use == [ready[0], lacking[0]]);
}

#[test]
fn progress_goes_up_to_the_end() {
    let (files, most) = (Files::new(), AtomicU64::new(0));
    let path = files.with("g.el", "1 2\n".repeat(100_000));
    let progress = |done, total| {
        assert!(done <= total);
        most.fetch_max(done, Relaxed);
    };
    load::<u32>(&path, &LoadOptions { progress: &progress, ..options(true) }).unwrap();
    assert_eq!(most.into_inner(), 400_000);
}

#[test]
fn a_file_that_states_directions_keeps_them() {
    let of = |name: &str, contents: &[u8], keep_directions: bool| {
        let options =
            LoadOptions { directed: (!keep_directions).then_some(false), ..options(false) };
        loaded::<u32>(name, contents, &options).unwrap().graph.is_directed()
    };
    assert!(of("g.sg", &by_hand::gap(false, true), true));
    assert!(!of("g.sg", &by_hand::gap(false, true), false));
    assert!(!of("g.sg", &by_hand::gap(false, false), true));
    assert!(!of("g.el", by_hand::EL.as_bytes(), true));
}

#[test]
fn narrow_widths_are_distinguished_from_faults() {
    let error = |text: &str| loaded::<u32>("g.wel", text, &options(true)).unwrap_err();
    for text in ["0 4294967295 1\n", "0 1 4294967295\n"] {
        assert!(error(text).is_too_narrow(), "{}", error(text));
    }
    for text in ["0 x 1\n", "0 1 0\n", "0 4000000000 1\n"] {
        assert!(!error(text).is_too_narrow(), "{}", error(text));
    }
    // Largest 32-bit number in a 64-bit file.
    let edges = vec![Edge { from: 0, to: 1, weight: u32::MAX.into() }];
    let list = EdgeList { vertices: 2, edges, weighted: true };
    let (graph, files) = (options(true).build.graph::<u64>(&list).unwrap(), Files::new());
    let path = files.path("g.hpg");
    save(&path, true, Format::Native, &graph, &Ids::default()).unwrap();
    let error = load::<u32>(&path, &options(true)).unwrap_err();
    assert!(error.is_too_narrow(), "{error}");
    let wide = load::<u64>(&path, &options(true)).unwrap();
    assert_eq!(wide.graph.out.weights(0), [u64::from(u32::MAX)]);
}

#[test]
fn a_named_format_overrides_detection() {
    let named = |format| LoadOptions { format: Some(format), ..options(true) };
    let loaded_ = loaded::<u32>("g.txt", by_hand::WEL, &named(Format::EdgeList)).unwrap();
    assert!(!loaded_.graph.out.is_weighted() && loaded_.graph.edges() == 7);
    refuses_with("g.txt", by_hand::EL, &named(Format::Metis), &["g.txt:1:"]);
    refuses_with("g.dat", "hello\nworld\n", &options(true), &["--format"]);
    let sg = loaded::<u32>("g.txt", by_hand::gap(true, false), &options(true)).unwrap();
    assert_eq!(both(&sg.graph).0.len(), 6);
}

#[test]
fn weights_are_positive_integers_or_scaled() {
    for (weight, says) in [
        ("0.5", "--scale-weights FACTOR"),
        ("0", "above 0"),
        ("-1", "above 0"),
        ("NaN", "above 0"),
        ("", "columns vary"),
    ] {
        let text = format!("0 1 3\n1 2 {weight}\n");
        refuses_with("g.wel", text, &options(true), &["g.wel:2:", says]);
    }
    let scaled = LoadOptions { scale_weights: Some(100.0), ..options(true) };
    let graph = loaded::<u32>("g.wel", "0 1 0.5\n1 2 1e-1\n", &scaled).unwrap().graph;
    assert_eq!((graph.out.weights(0), graph.out.weights(1)), (&[50][..], &[10][..]));
    refuses_with("g.wel", "0 1 0.001\n", &scaled, &["rounded to 0"]);
    let scale = LoadOptions { scale_weights: Some(f64::NAN), ..options(true) };
    refuses_with("g.wel", "0 1 2\n", &scale, &["--scale-weights"]);
    for (name, text) in [
        ("g.el", by_hand::EL),
        ("g.csv", by_hand::CSV),
        ("g.mtx", by_hand::MTX),
        ("g.graph", by_hand::METIS),
    ] {
        let words = format!("{name}: no weights for --scale-weights");
        refuses_with(name, text, &scaled, &[&words]);
    }
}
