//! Graphs into files.
//!
//! A file gets its name when it is whole and on the disk: whoever is killed before leaves none, and the old one if there was one.
//! What was written is dropped from the page cache.

mod binary;
mod lines;
mod native;
mod out;
mod text;

use std::path::Path;

use hugepilot_units::Bytes;

pub(crate) use self::lines::pairs;
pub use self::lines::save_map;
use self::out::Out;
use crate::format::FOUR;
use crate::{Format, Graph, GraphError, Result, Width};

/// Writes a graph, and gives how many bytes that took. `ids` are the numbers that its vertices had where it came from
/// ([`Loaded::ids`](crate::Loaded::ids)): lists of edges are written with them, our own format keeps them, and in all others
/// vertices are counted from the first. Vertices after the last that has an edge are lost in lists of edges.
///
/// # Errors
/// [`GraphError::Io`]; [`GraphError::Unweighted`] for a format of weighted graphs; [`GraphError::Format`] for a graph that the
/// format has no place for.
pub fn save<V: Width>(
    path: impl AsRef<Path>,
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
        return four_files(path, graph);
    }
    let mut out = Out::create(path)?;
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
    out.finish()
}

/// The first file comes last: a directory without it is none of these.
fn four_files<V: Width>(path: &Path, graph: &Graph<V>) -> Result<Bytes> {
    let io = |source| GraphError::Io { path: path.display().to_string(), source };
    std::fs::create_dir_all(path).map_err(io)?;
    let [numbers, offsets, ends, weights] = FOUR.map(|name| path.join(name));
    let stale = |file: &Path| match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(error)),
        _ => Ok(()),
    };
    stale(&numbers)?;
    let mut bytes = Bytes::ZERO;
    let mut one = |path: &Path, write: &dyn Fn(&mut Out) -> Result<()>| -> Result<()> {
        let mut out = Out::create(path)?;
        write(&mut out)?;
        bytes += out.finish()?;
        Ok(())
    };
    let width = binary::width_of_four(graph);
    one(&offsets, &|out| binary::numbers(out, &graph.out.offsets, width))?;
    one(&ends, &|out| binary::numbers(out, &graph.out.edges, width))?;
    if graph.out.is_weighted() {
        one(&weights, &|out| binary::signed(out, &graph.out.weights))?;
    } else {
        stale(&weights)?;
    }
    one(&numbers, &|out| text::numbers(out, &[graph.vertices() as u64, graph.out.edges() as u64]))?;
    Ok(bytes)
}

/// A format that has no place for a graph.
fn no_place(path: &Path, what: impl Into<String>) -> GraphError {
    GraphError::Format { place: path.display().to_string(), what: what.into() }
}
