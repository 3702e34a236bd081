//! Effect of loading on the page cache.

use hugepilot_graph::{EdgeList, Format, Graph, GraphError, LoadMode, LoadOptions, load, save};
use hugepilot_testkit::{cached, need, requires};

use super::{Files, options, rejects};

/// Writes a graph of some MiB to a disk: `/tmp` may be a tmpfs.
fn on_disk(files: &Files, format: Format) -> std::path::PathBuf {
    let graph: Graph<u32> = options(true)
        .build
        .graph(&EdgeList::new(100_000, (0..600_000).map(|i| (i % 99_991, i * 31 % 99_989))))
        .unwrap();
    let path = files.path(&format!("g.{format}"));
    save(&path, true, format, &graph, &hugepilot_graph::Ids::default()).unwrap();
    path
}

fn disk() -> Files {
    Files(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
}

#[test]
fn direct_and_drop_leave_nothing_and_cached_leaves_all() {
    requires!(need::program("fincore"));
    let files = disk();
    for format in [Format::EdgeList, Format::Native, Format::Gap] {
        let path = on_disk(&files, format);
        let len = std::fs::metadata(&path).unwrap().len();
        assert!(cached(&path) <= len / 100, "saving left {} of {len}", cached(&path));
        for load_mode in [LoadMode::Direct, LoadMode::Drop, LoadMode::Cached, LoadMode::Direct] {
            let loaded = load::<u32>(&path, &LoadOptions { load_mode, ..options(true) }).unwrap();
            let left = cached(&path);
            if loaded.load_mode == LoadMode::Cached {
                assert!(left >= len, "{format}: {left} of {len} by {load_mode}");
            } else {
                assert!(left <= len / 100, "{format}: {left} of {len} by {load_mode}");
            }
        }
    }
}

#[test]
fn all_load_modes_give_one_graph() {
    let files = disk();
    for format in
        [Format::EdgeList, Format::Native, Format::Gap, Format::Galois64, Format::FourFiles]
    {
        let path = on_disk(&files, format);
        let of = |load_mode| {
            load::<u32>(&path, &LoadOptions { load_mode, ..options(true) }).unwrap().graph
        };
        let expected = of(LoadMode::Cached);
        for load_mode in [LoadMode::Direct, LoadMode::Drop] {
            let graph = of(load_mode);
            for v in 0..graph.vertices() {
                assert_eq!(
                    graph.out.neighbours(v),
                    expected.out.neighbours(v),
                    "{format}, {load_mode}"
                );
                assert_eq!(
                    graph.incoming().neighbours(v),
                    expected.incoming().neighbours(v),
                    "{format}, {load_mode}"
                );
            }
        }
    }
}

#[test]
fn a_tmpfs_is_required_for_its_load_mode() {
    let tmpfs = LoadOptions { load_mode: LoadMode::Tmpfs, ..options(true) };
    let files = disk();
    let error = load::<u32>(files.with("g.el", "0 1\n"), &tmpfs).unwrap_err();
    assert!(matches!(error, GraphError::Load { .. }), "{error}");
    let Ok(shared) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = shared.path().join("g.el");
    std::fs::write(&path, "0 1\n").unwrap();
    assert_eq!(load::<u32>(&path, &tmpfs).unwrap().load_mode, LoadMode::Tmpfs);
    // A tmpfs supports `O_DIRECT` on new kernels only.
    let direct = LoadOptions { load_mode: LoadMode::Direct, ..options(true) };
    assert_eq!(load::<u32>(&path, &direct).unwrap().graph.edges(), 1);
}

#[test]
fn devices_and_missing_files_are_rejected() {
    rejects("/dev/null", &options(true), &["/dev/null: a device, not a regular file"]);
    rejects("/nowhere.el", &options(true), &["/nowhere.el: No such file"]);
}
