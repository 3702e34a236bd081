//! Text of the ninth DIMACS challenge: `p sp VERTICES ARCS`, then `a FROM TO WEIGHT` lines.

use super::columns::Columns;
use super::direction::Directedness;
use super::ids::Ids;
use super::list::{Grammar, List};
use super::options::{LoadOptions, vertex_from_1};
use super::text::{Budget, Text, check_memory};
use super::{FileGraph, sizes};
use crate::error::{Excerpt, LoadFault};
use crate::{EdgeSource, Result, Width};

/// Loads a graph.
///
/// # Errors
/// [`GraphError::Load`](crate::GraphError::Load),
/// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of
/// building.
pub(super) fn load<V: Width>(
    text: &mut Text<'_>,
    file: u64,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let line = text.content_line(b"c")?.unwrap_or_default();
    let mut words = line.split_ascii_whitespace();
    let is_problem = words.next() == Some("p") && words.next() == Some("sp");
    let numbers = words.collect::<Vec<_>>().join(" ");
    let Some([stated, arcs]) = sizes(&numbers).filter(|_| is_problem) else {
        let found = Excerpt::new(line.as_bytes());
        return Err(text.error(LoadFault::Expected { expected: "p sp VERTICES ARCS", found }));
    };
    let vertices = options.vertices_or(stated).map_err(|fault| text.error(fault))?;
    let check = |bytes| options.check_vertices::<V>(vertices, bytes, false);
    check(file).map_err(|fault| text.error(fault))?;
    if arcs > file / 8 {
        let fault = LoadFault::CountTooLarge { what: "arcs", count: arcs, bytes: file };
        return Err(text.error(fault));
    }
    let weights = options.weights::<V>(text.path(), true)?;
    let list = arcs * 3 * size_of::<V>() as u64;
    let peak = options.peak::<V>(vertices, arcs, weights.is_some(), list);
    check_memory(peak, options.available)?;
    let columns = Columns::plain(3, true);
    let grammar =
        Grammar { comments: b"c", mark: Some(b'a'), columns, weights, is_detected: false };
    let budget = Budget::new(options.available);
    let resolve = |id| vertex_from_1::<V>(id, stated);
    let mut list = List::read(text, options.build.pool, &budget, &grammar, resolve)?;
    if list.edges() != arcs {
        let found = list.edges();
        return Err(text.error(LoadFault::CountMismatch { what: "arcs", stated: arcs, found }));
    }
    // The length of compressed text is known only now.
    check(text.bytes()).map_err(|fault| text.error(fault))?;
    list.vertices = vertices;
    FileGraph::of_list(&list, Directedness::Arcs, Ids::From(1), options)
}
