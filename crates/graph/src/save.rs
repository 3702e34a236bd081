//! Graphs to files.
//!
//! A file gets its name once it is complete and synced to disk. A failure before leaves no new
//! file, and an old one unchanged. The written data is dropped from the page cache.

mod binary;
mod lines;
mod native;
mod text;

use std::io::ErrorKind;
use std::path::Path;

use hugepilot_kernel::file::NewFile;
use hugepilot_units::Bytes;

pub(crate) use self::lines::pairs;
pub use self::lines::save_map;
use crate::error::{Access, SaveFault};
use crate::format::FOUR;
use crate::{Format, Graph, GraphError, Ids, Result, Width};

/// Writes a graph, and returns the bytes written. Keeps an existing file unless `replace`. `ids`
/// are the vertex IDs of the input ([`LoadedGraph::ids`](crate::LoadedGraph::ids)): edge lists are
/// written with them, the native format stores them, and all other formats number vertices
/// consecutively. Edge lists lose the vertices after the last one with an edge.
///
/// # Errors
/// [`GraphError::Io`] of kind `AlreadyExists` for a file that is kept, also if it appeared during
/// the write; [`GraphError::Unweighted`] for a format of weighted graphs; [`GraphError::Save`] if
/// the format cannot store the graph.
pub fn save<V: Width>(
    path: impl AsRef<Path>,
    replace: bool,
    format: Format,
    graph: &Graph<V>,
    ids: &Ids,
) -> Result<Bytes> {
    let path = path.as_ref();
    let weighted = graph.out.is_weighted();
    if matches!(format, Format::WeightedEdgeList | Format::WeightedGap | Format::Dimacs)
        && !weighted
        && graph.edges() > 0
    {
        return Err(GraphError::Unweighted);
    }
    if format == Format::FourFiles {
        return four_files(path, replace, graph);
    }
    let mut out = NewFile::create(path, replace)?;
    let file = &mut out;
    match format {
        Format::EdgeList => text::edge_list(file, graph, ids, false)?,
        Format::WeightedEdgeList => text::edge_list(file, graph, ids, true)?,
        Format::MatrixMarket => text::matrix(file, graph)?,
        Format::Dimacs => text::dimacs(file, graph)?,
        Format::Metis => text::metis(file, graph)?,
        Format::Gap => binary::gap(file, graph, false)?,
        Format::WeightedGap => binary::gap(file, graph, true)?,
        Format::Galois => binary::galois(file, graph, 4)?,
        Format::Galois64 => binary::galois(file, graph, 8)?,
        Format::Native => native::write(file, graph, ids)?,
        Format::Ldbc | Format::FourFiles => {
            return Err(GraphError::save(path, SaveFault::ReadOnlyFormat(format)));
        }
    }
    Ok(out.finish()?)
}

/// Tests whether a file, or a directory for [`Format::FourFiles`], can be created: creates an
/// unnamed one and discards it.
///
/// # Errors
/// [`GraphError::Io`].
pub fn try_save(path: impl AsRef<Path>, format: Format) -> Result<()> {
    let path = path.as_ref();
    let inside = format == Format::FourFiles && path.is_dir();
    NewFile::create(&if inside { path.join(FOUR[0]) } else { path.to_owned() }, false)?;
    Ok(())
}

/// Writes four files into a directory, which it creates.
fn four_files<V: Width>(path: &Path, replace: bool, graph: &Graph<V>) -> Result<Bytes> {
    let is_new = match std::fs::create_dir(path) {
        Err(error) if replace && error.kind() == ErrorKind::AlreadyExists => false,
        Err(source) => return Err(GraphError::io(Access::Write, path, source)),
        Ok(()) => true,
    };
    let written = write_four(path, graph);
    if is_new && written.is_err() {
        // Fails unless the directory is empty.
        let _ = std::fs::remove_dir(path);
    }
    written
}

/// Writes four files into an existing directory.
fn write_four<V: Width>(path: &Path, graph: &Graph<V>) -> Result<Bytes> {
    let [numbers, offsets, ends, weights] = FOUR.map(|name| path.join(name));
    let remove = |file: &Path| match std::fs::remove_file(file) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(GraphError::io(Access::Write, file, source))
        }
        _ => Ok(()),
    };
    let one = |path: &Path, write: &dyn Fn(&mut NewFile) -> Result<()>| -> Result<NewFile> {
        let mut out = NewFile::create(path, true)?;
        write(&mut out)?;
        out.sync()?;
        Ok(out)
    };
    let [vertices, edges] = [graph.vertices(), graph.out.edges()].map(|count| count as u64);
    let width = binary::width_of_four(path, vertices, edges)?;
    let mut all = vec![
        one(&offsets, &|out| binary::numbers(out, &graph.out.offsets, width))?,
        one(&ends, &|out| binary::numbers(out, &graph.out.edges, width))?,
    ];
    if graph.out.is_weighted() {
        all.push(one(&weights, &|out| binary::signed(out, &graph.out.weights))?);
    }
    all.push(one(&numbers, &|out| text::numbers(out, &[vertices, edges]))?);
    // Old files stay until all new ones are on disk. The first file is removed first and written
    // last: a directory without it is not a graph.
    remove(&numbers)?;
    if !graph.out.is_weighted() {
        remove(&weights)?;
    }
    all.into_iter().try_fold(Bytes::ZERO, |bytes, out| Ok(bytes + out.finish()?))
}
