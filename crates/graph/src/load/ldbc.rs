//! LDBC Graphalytics: a `.v` file with a vertex on each line, a `.e` file with an edge on each.

use std::path::Path;

use super::columns::{Stated, detect};
use super::direction::Directedness;
use super::file_blocks::whole;
use super::ids::Ids;
use super::list::{Grammar, List};
use super::number::{blanks, is_end, number, skip_line};
use super::options::LoadOptions;
use super::text::{Budget, SyntaxError, Text, at_line, parse};
use super::{FileGraph, ids};
use crate::error::LoadFault;
use crate::{GraphError, Result, Width};

const COMMENTS: &[u8] = b"#";

/// Returns the path of the other file of a pair: `.v` for `.e` and vice versa, with the same
/// suffix for compression.
pub(super) fn other(path: &Path) -> Option<std::path::PathBuf> {
    let name = path.file_name()?.to_str()?;
    let (stem, suffix) = ["", ".gz", ".zst"]
        .iter()
        .rev()
        .find_map(|suffix| Some((name.strip_suffix(suffix)?, *suffix)))?;
    let other = match stem.strip_suffix(".e") {
        Some(stem) => format!("{stem}.v{suffix}"),
        None => format!("{}.e{suffix}", stem.strip_suffix(".v")?),
    };
    Some(path.with_file_name(other))
}

/// Loads a graph.
///
/// # Errors
/// [`GraphError::Load`], [`GraphError::InsufficientMemory`], and those of building.
pub(super) fn load<V: Width>(
    vertices: &mut Text<'_>,
    edges: &mut Text<'_>,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let (pool, budget) = (options.build.pool, Budget::new(options.available));
    let lists = parse(vertices, pool, &budget, |block| {
        let ids = vertex_ids(block)?;
        let bytes = (ids.len() * 8) as u64;
        Ok((ids, bytes))
    })?;
    let count = lists.iter().map(Vec::len).sum::<usize>();
    let ids = ids::sorted(lists)?;
    if ids.len() != count {
        return Err(whole(vertices.path(), LoadFault::DuplicateVertex));
    }
    if ids.is_empty() {
        return Err(whole(vertices.path(), LoadFault::NoVertices));
    }
    if ids.len() >= V::NONE.at() {
        return Err(GraphError::Width { what: "vertices", count: ids.len() as u64, bits: V::BITS });
    }
    let index = ids::index(&ids, &budget)?;
    let sample = edges.sample(COMMENTS)?;
    // Weights of any kind, so that rows of three numbers are none of neighbours.
    let stated = Stated { konect: true, ..Stated::default() };
    let start =
        detect(sample, stated).map_err(|(line, fault)| at_line(edges.path(), line, fault))?;
    if start.header {
        edges.content_line(COMMENTS)?;
    }
    let columns = start.columns;
    if columns.count > 3 && !start.header {
        let fault = LoadFault::TooManyColumns(columns.count);
        return Err(whole(edges.path(), fault));
    }
    let weights = options.weights::<V>(edges.path(), columns.weight.is_some())?;
    let grammar = Grammar { comments: COMMENTS, mark: None, columns, weights, is_detected: true };
    let resolve = |id| match index.get(&id) {
        Some(&vertex) => Ok(V::new(vertex)),
        None => Err(LoadFault::UnknownVertex(id)),
    };
    let mut list = List::read(edges, pool, &budget, &grammar, resolve)?;
    list.vertices = ids.len() as u64;
    drop(index);
    let ids = Ids::Listed(Box::new(ids));
    let mut graph = FileGraph::of_list(&list, Directedness::Unspecified, ids, options)?;
    graph.reading.columns = columns.names();
    Ok(graph)
}

/// Parses the first number of each line.
fn vertex_ids(text: &[u8]) -> std::result::Result<Vec<u64>, SyntaxError> {
    let (mut ids, mut at) = (Vec::new(), 0);
    while at < text.len() {
        blanks(text, &mut at);
        if !is_end(text, at) && !COMMENTS.contains(&text[at]) {
            ids.push(number(text, &mut at)?);
        }
        skip_line(text, &mut at);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_file_has_the_same_stem() {
        let of = |name: &str| other(Path::new(name)).map(|path| path.display().to_string());
        assert_eq!(of("a/x.e").as_deref(), Some("a/x.v"));
        assert_eq!(of("x.v.gz").as_deref(), Some("x.e.gz"));
        assert_eq!(of("x.el"), None);
    }
}
