//! Graphs into files.
//!
//! A file gets its name when it is whole and on the disk: whoever is killed or refused before leaves none, and the old one if there
//! was one. What was written is dropped from the page cache.

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
use crate::format::FOUR;
use crate::{Format, Graph, GraphError, Result, Width};

/// Writes a graph, and gives how many bytes that took. What is there already stays, unless it is to be replaced. `ids` are the
/// numbers that its vertices had where it came from ([`LoadedGraph::ids`](crate::LoadedGraph::ids)): lists of edges are written with them,
/// our own format keeps them, and in all others vertices are counted from the first. Vertices after the last that has an edge are
/// lost in lists of edges.
///
/// # Errors
/// [`GraphError::Io`], of the kind `AlreadyExists` for what stays, also if it came while the graph was written;
/// [`GraphError::Unweighted`] for a format of weighted graphs; [`GraphError::Format`] for a graph that the format has no place for.
pub fn save<V: Width>(
    path: impl AsRef<Path>,
    replace: bool,
    format: Format,
    graph: &Graph<V>,
    ids: Option<&[u64]>,
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
    let out_ = &mut out;
    match format {
        Format::EdgeList => text::edge_list(out_, graph, ids, false)?,
        Format::WeightedEdgeList => text::edge_list(out_, graph, ids, true)?,
        Format::MatrixMarket => text::matrix(out_, graph)?,
        Format::Dimacs => text::dimacs(out_, graph)?,
        Format::Metis => text::metis(out_, graph)?,
        Format::Gap => binary::gap(out_, graph, false)?,
        Format::WeightedGap => binary::gap(out_, graph, true)?,
        Format::Galois => binary::galois(out_, graph, 4)?,
        Format::Galois64 => binary::galois(out_, graph, 8)?,
        Format::Native => native::write(out_, graph, ids)?,
        Format::Ldbc | Format::FourFiles => {
            return Err(no_place(path, "ldbc is read only; el and wel are lists of edges, too"));
        }
    }
    Ok(out.finish()?)
}

/// Tries whether a file can be written there, or for [`Format::FourFiles`] a directory: makes one without a name, and lets it go.
///
/// # Errors
/// [`GraphError::Io`].
pub fn try_save(path: impl AsRef<Path>, format: Format) -> Result<()> {
    let path = path.as_ref();
    let inside = format == Format::FourFiles && path.is_dir();
    NewFile::create(&if inside { path.join(FOUR[0]) } else { path.to_owned() }, false)?;
    Ok(())
}

/// Into a directory, which is made.
fn four_files<V: Width>(path: &Path, replace: bool, graph: &Graph<V>) -> Result<Bytes> {
    let made = match std::fs::create_dir(path) {
        Err(error) if replace && error.kind() == ErrorKind::AlreadyExists => false,
        Err(source) => return Err(GraphError::Io { path: path.display().to_string(), source }),
        Ok(()) => true,
    };
    let written = inside(path, graph);
    if made && written.is_err() {
        // Only if nothing is in it.
        let _ = std::fs::remove_dir(path);
    }
    written
}

fn inside<V: Width>(path: &Path, graph: &Graph<V>) -> Result<Bytes> {
    let [numbers, offsets, ends, weights] = FOUR.map(|name| path.join(name));
    let stale = |file: &Path| match std::fs::remove_file(file) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(GraphError::Io { path: file.display().to_string(), source })
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
    // What is there stays until all are on the disk. The first file goes first and comes last: a directory without it is none.
    stale(&numbers)?;
    if !graph.out.is_weighted() {
        stale(&weights)?;
    }
    all.into_iter().try_fold(Bytes::ZERO, |bytes, out| Ok(bytes + out.finish()?))
}

/// A format that has no place for a graph.
fn no_place(path: &Path, what: impl Into<String>) -> GraphError {
    GraphError::Format { place: path.display().to_string(), what: what.into() }
}
