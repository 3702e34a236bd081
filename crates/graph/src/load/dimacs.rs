//! The text of the ninth DIMACS implementation challenge: `p sp VERTICES ARCS`, and `a FROM TO WEIGHT` for each arc.

use super::list::{Grammar, List};
use super::options::{LoadOptions, vertex_from_1};
use super::text::{Budget, Text, fits};
use super::{Made, sizes};
use crate::{Result, Source, Width};

/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::Room`](crate::GraphError::Room), and those of building.
pub(super) fn load<V: Width>(
    text: &mut Text<'_>,
    file: u64,
    options: &LoadOptions<'_>,
) -> Result<Made<V>> {
    let line = text.telling(b"c")?.unwrap_or_default();
    let Some([said, arcs]) = line.strip_prefix("p sp ").and_then(sizes) else {
        let line: String = line.chars().take(80).collect();
        return Err(text.wrong(format!("{line:?} should be p sp VERTICES ARCS")));
    };
    let vertices = options.count(Some(said)).map_err(|what| text.wrong(what))?.unwrap_or(said);
    options.justify::<V>(vertices, file).map_err(|what| text.wrong(what))?;
    if arcs > file / 8 {
        return Err(text.wrong(format!("{arcs} arcs do not fit into {file} bytes")));
    }
    let weights = options.weights::<V>(text.path(), true)?;
    let list = arcs * 3 * size_of::<V>() as u64;
    fits(options.peak::<V>(vertices, arcs, weights.is_some(), list), options.available)?;
    let grammar =
        Grammar { comments: b"c", mark: Some(b'a'), weights, rest: options.ignore_weights };
    let budget = Budget::new(options.available);
    let mut list =
        List::read(text, options.build.team, &budget, &grammar, |id| vertex_from_1::<V>(id, said))?;
    if list.edges() != arcs {
        return Err(text.wrong(format!("{arcs} arcs, but the file has {}", list.edges())));
    }
    // How long text is that was packed is known now.
    options.justify::<V>(vertices, text.bytes()).map_err(|what| text.wrong(what))?;
    list.vertices = vertices;
    Made::of_list(list, options.build.directed, None, options)
}
