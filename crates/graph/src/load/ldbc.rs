//! Pairs of files of LDBC Graphalytics: `.v` has a vertex on each line, `.e` an edge, with a weight or without.

use std::path::Path;

use super::list::{Grammar, List};
use super::number::{gap, is_end, number, skip_line};
use super::options::LoadOptions;
use super::text::{Budget, SyntaxError, Text, parse};
use super::{FileGraph, edge_list, ids};
use crate::{Result, Width};

const COMMENTS: &[u8] = b"#";

/// The other file of the pair: `.v` for `.e`, and the other way round; what packs it is kept.
pub(super) fn other(path: &Path) -> Option<std::path::PathBuf> {
    let name = path.file_name()?.to_str()?;
    let (stem, packed) = ["", ".gz", ".zst"]
        .iter()
        .rev()
        .find_map(|packed| Some((name.strip_suffix(packed)?, *packed)))?;
    let other = match stem.strip_suffix(".e") {
        Some(stem) => format!("{stem}.v{packed}"),
        None => format!("{}.e{packed}", stem.strip_suffix(".v")?),
    };
    Some(path.with_file_name(other))
}

/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of building.
pub(super) fn load<V: Width>(
    vertices: &mut Text<'_>,
    edges: &mut Text<'_>,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let (pool, budget) = (options.build.pool, Budget::new(options.available));
    let found = parse(vertices, pool, &budget, |block| {
        let ids = numbers(block)?;
        let bytes = (ids.len() * 8) as u64;
        Ok((ids, bytes))
    })?;
    let count = found.iter().map(Vec::len).sum::<usize>();
    let ids = ids::ids(found)?;
    if ids.len() != count {
        return Err(super::blocks::whole(vertices.path(), "names a vertex twice"));
    }
    if ids.is_empty() {
        return Err(super::blocks::whole(vertices.path(), "has no vertices"));
    }
    if ids.len() >= V::NONE.at() {
        let bits = V::BITS;
        return Err(crate::GraphError::Width { what: "vertices", count: ids.len() as u64, bits });
    }
    let index = ids::index(&ids, &budget)?;
    let weighted = edge_list::look(edges.ahead()?).columns >= 3;
    let grammar = Grammar {
        comments: COMMENTS,
        mark: None,
        weights: options.weights::<V>(edges.path(), weighted)?,
        rest: options.ignore_weights,
    };
    let resolve = |id| match index.get(&id) {
        Some(&vertex) => Ok(V::new(vertex)),
        None => Err(format!("vertex {id}, which the file of vertices lacks")),
    };
    let mut list = List::read(edges, pool, &budget, &grammar, resolve)?;
    list.vertices = ids.len() as u64;
    drop(index);
    FileGraph::of_list(list, options.build.directed, Some(ids), options)
}

fn numbers(text: &[u8]) -> std::result::Result<Vec<u64>, SyntaxError> {
    let (mut ids, mut at) = (Vec::new(), 0);
    while at < text.len() {
        gap(text, &mut at);
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
    fn the_other_file_is_found() {
        let of = |name: &str| other(Path::new(name)).map(|path| path.display().to_string());
        assert_eq!(of("a/x.e").as_deref(), Some("a/x.v"));
        assert_eq!(of("x.v.gz").as_deref(), Some("x.e.gz"));
        assert_eq!(of("x.el"), None);
    }
}
