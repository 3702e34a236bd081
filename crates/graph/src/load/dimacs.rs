//! The text of the ninth DIMACS implementation challenge: `p sp VERTICES ARCS`, and `a FROM TO WEIGHT` for each arc.

use super::list::{Grammar, List};
use super::options::{LoadOptions, vertex_from_1};
use super::text::{Budget, Text, fits};
use super::{FileGraph, sizes};
use crate::{EdgeSource, Result, Width};

/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of building.
pub(super) fn load<V: Width>(
    text: &mut Text<'_>,
    file: u64,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let line = text.telling(b"c")?.unwrap_or_default();
    let Some([said, arcs]) = line.strip_prefix("p sp ").and_then(sizes) else {
        let line: String = line.chars().take(80).collect();
        return Err(text.error(format!("{line:?} should be p sp VERTICES ARCS")));
    };
    let vertices = options.count(Some(said)).map_err(|what| text.error(what))?.unwrap_or(said);
    options.justify::<V>(vertices, file).map_err(|what| text.error(what))?;
    if arcs > file / 8 {
        return Err(text.error(format!("{arcs} arcs do not fit into {file} bytes")));
    }
    let weights = options.weights::<V>(text.path(), true)?;
    let list = arcs * 3 * size_of::<V>() as u64;
    fits(options.peak::<V>(vertices, arcs, weights.is_some(), list), options.available)?;
    let grammar =
        Grammar { comments: b"c", mark: Some(b'a'), weights, rest: options.ignore_weights };
    let budget = Budget::new(options.available);
    let mut list =
        List::read(text, options.build.pool, &budget, &grammar, |id| vertex_from_1::<V>(id, said))?;
    if list.edges() != arcs {
        return Err(text.error(format!("{arcs} arcs, but the file has {}", list.edges())));
    }
    // How long text is that was packed is known now.
    options.justify::<V>(vertices, text.bytes()).map_err(|what| text.error(what))?;
    list.vertices = vertices;
    FileGraph::of_list(list, options.build.directed, None, options)
}
