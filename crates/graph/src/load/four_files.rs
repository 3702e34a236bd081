//! Four-files format of the page-size papers (Manocha et al., IISWC'22).
//!
//! The first file holds the counts of vertices and edges as text. The others hold offsets, edges
//! and weights of 4 bytes each; with many edges, offsets and edges have 8 bytes.

use std::path::{Path, PathBuf};

use super::direction::Directedness;
use super::file_blocks::{FileBlocks, whole};
use super::options::LoadOptions;
use super::records::Records;
use super::rows::{self, Layout, Weights};
use super::text::at_line;
use super::{FileGraph, FileReport, sizes};
use crate::error::{Excerpt, LoadFault};
use crate::format::FOUR;
use crate::{Result, Width};

/// Most edges for which offsets and edges have 4 bytes.
pub(crate) const MAX_NARROW_EDGES: u64 = 4_094_967_295;

/// Returns the directory, named by itself or by its first file.
pub(super) fn directory(path: &Path) -> PathBuf {
    if path.is_dir() { path.to_owned() } else { path.parent().unwrap_or(Path::new("")).to_owned() }
}

/// Loads a graph.
///
/// # Errors
/// [`GraphError::Load`](crate::GraphError::Load),
/// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of
/// building.
pub(super) fn load<V: Width>(
    path: &Path,
    options: &LoadOptions<'_>,
    report: &mut FileReport,
) -> Result<FileGraph<V>> {
    let directory = directory(path);
    if path.is_dir() && !directory.join(FOUR[0]).exists() {
        return Err(whole(path, LoadFault::NotFourFiles(FOUR[0])));
    }
    let open =
        |name: &str| FileBlocks::open(&directory.join(name), options.load_mode, options.progress);
    let numbers = open(FOUR[0])?;
    let [vertices, edges] = header(&numbers)?;
    let width = if edges <= MAX_NARROW_EDGES { 4 } else { 8 };
    let [offsets, ends] = [open(FOUR[1])?, open(FOUR[2])?];
    let values = if directory.join(FOUR[3]).exists() { Some(open(FOUR[3])?) } else { None };
    let check_size = |file: &FileBlocks<'_>, count: Option<u64>, width: u64| {
        let expected = count.and_then(|count| count.checked_mul(width));
        if expected == Some(file.len()) {
            return Ok(());
        }
        let fault = LoadFault::SizeMismatch { vertices, edges, expected, found: file.len() };
        Err(whole(file.path(), fault))
    };
    check_size(&offsets, vertices.checked_add(1), width)?;
    check_size(&ends, Some(edges), width)?;
    if let Some(values) = &values {
        check_size(values, Some(edges), 4)?;
    }
    for file in [Some(&numbers), Some(&offsets), Some(&ends), values.as_ref()].into_iter().flatten()
    {
        report.add(file);
    }
    let weights = values.as_ref().filter(|_| !options.ignore_weights);
    let layout = Layout {
        vertices,
        edges,
        offsets: Records::of(&offsets, 0, width as usize),
        first_omitted: false,
        ends: Records::of(&ends, 0, width as usize),
        weights: weights.map(|values| Weights::Separate(Records::of(values, 0, 4))),
        signed: true,
        untyped: false,
        checksums: None,
    };
    let graph = rows::load(&layout, None, Directedness::Arcs, options);
    report.load_mode = offsets.load_mode();
    graph
}

/// Reads the number of vertices and of edges.
fn header(file: &FileBlocks<'_>) -> Result<[u64; 2]> {
    if file.len() > 4096 {
        return Err(whole(file.path(), LoadFault::HeaderTooLong));
    }
    let mut reader = file.reader();
    let text = String::from_utf8_lossy(reader.bytes(0, file.len() as usize)?).into_owned();
    let error = |fault| at_line(file.path(), 1, fault);
    let Some([vertices, edges]) = sizes(&text) else {
        let found = Excerpt::new(text.as_bytes());
        return Err(error(LoadFault::Expected { expected: "VERTICES EDGES", found }));
    };
    if vertices == 0 {
        return Err(error(LoadFault::NoVertices));
    }
    Ok([vertices, edges])
}
