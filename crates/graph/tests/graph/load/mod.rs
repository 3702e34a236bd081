//! Graphs from files and to files.
//!
//! - `formats`: one small graph, written by hand in every format, is the same graph.
//! - `generated`: files with features drawn at random are right or refused, never wrong.
//! - `kinds`: what people publish is read as its writer meant it, or refused.
//! - `options`: load options, and errors for those without effect.
//! - `hostile`: truncated, damaged or inconsistent files give an error with a position, and take no
//!   memory.
//! - `round`: a saved graph loads as the same graph.
//! - `cache`: effect on the page cache.

mod by_hand;
mod cache;
mod formats;
mod generated;
mod hostile;
mod kinds;
mod options;
mod round;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use hugepilot_graph::{
    Build, Csr, Graph, GraphError, LoadMode, LoadOptions, LoadedGraph, PagePlan, Result,
    ThreadPool, Width, load,
};

/// Each row as a map from neighbour to weight, 0 without weights.
type Rows = Vec<BTreeMap<u64, u64>>;

fn options(directed: bool) -> LoadOptions<'static> {
    let build = Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(2) };
    LoadOptions { load_mode: LoadMode::Cached, directed: Some(directed), ..LoadOptions::new(build) }
}

fn rows<V: Width>(csr: &Csr<V>) -> Rows {
    let row = |v| {
        let weights = csr.weights(v);
        assert!(csr.neighbours(v).is_sorted_by(|a, b| a < b), "row {v}");
        let pairs = csr.neighbours(v).iter().enumerate();
        pairs
            .map(|(i, to)| (to.at() as u64, weights.get(i).map_or(0, |weight| weight.at() as u64)))
            .collect()
    };
    (0..csr.vertices()).map(row).collect()
}

/// Returns the rows of both directions.
fn both<V: Width>(graph: &Graph<V>) -> (Rows, Rows) {
    let (out, into) = (rows(&graph.out), rows(graph.incoming()));
    let mut expected = vec![BTreeMap::new(); out.len()];
    for (from, row) in out.iter().enumerate() {
        for (&to, &weight) in row {
            expected[usize::try_from(to).unwrap()].insert(from as u64, weight);
        }
    }
    assert_eq!(into, expected, "the transpose is none");
    (out, into)
}

/// Directory with files.
struct Files(tempfile::TempDir);

impl Files {
    /// Prefers memory over a disk, whose writes are slow.
    fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn with(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        path
    }
}

fn gzip(contents: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(contents.as_ref()).unwrap();
    encoder.finish().unwrap()
}

/// Loads a file of this name and contents.
fn loaded<V: Width>(
    name: &str,
    contents: impl AsRef<[u8]>,
    options: &LoadOptions<'_>,
) -> Result<LoadedGraph<V>> {
    let files = Files::new();
    let path = files.with(name, contents);
    load(path, options)
}

/// Returns the error, and its fixes, of loading a file.
fn refused(name: &str, contents: impl AsRef<[u8]>, options: &LoadOptions<'_>) -> String {
    match loaded::<u32>(name, contents, options) {
        Ok(loaded) => panic!("{name} was loaded: {:?}", loaded.graph),
        Err(error) => {
            let text = error.to_string();
            let name = Path::new(name).file_name().unwrap().to_string_lossy().into_owned();
            assert!(text.contains(&name) || !text.contains('/'), "{text}");
            described(&error)
        }
    }
}

/// Checks that a file is refused with an error, and its fixes, that have all `words`.
#[track_caller]
fn refuses_with(name: &str, contents: impl AsRef<[u8]>, options: &LoadOptions<'_>, words: &[&str]) {
    has_words(&refused(name, contents, options), words);
}

/// The same for the file of a path.
#[track_caller]
fn rejects(path: impl AsRef<Path>, options: &LoadOptions<'_>, words: &[&str]) {
    has_words(&described(&load::<u32>(path, options).unwrap_err()), words);
}

#[track_caller]
fn has_words(error: &str, words: &[&str]) {
    assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
}

/// Prints an error with its fixes.
fn described(error: &GraphError) -> String {
    let help = error.help();
    help.into_iter().fold(error.to_string(), |text, help| format!("{text}; help: {help}"))
}
