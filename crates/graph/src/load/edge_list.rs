//! Edge lists: SNAP, KONECT, CSV, networkx, and `.el` and `.wel` of the GAP benchmark suite.

use super::columns::{COMMENTS, Start, Stated, detect};
use super::comments::Comments;
use super::direction::Directedness;
use super::file_blocks::whole;
use super::ids::{self, Ids};
use super::list::{Grammar, List};
use super::options::{LoadOptions, vertex};
use super::text::{Budget, Text, at_line, check_memory, count_lines, lone_carriage_return};
use super::{FileGraph, StatedCount};
use crate::error::LoadFault;
use crate::{EdgeSource, Result, Width};

/// Loads a graph. `weighted` requires or excludes a weight in the third column; `text_len` is the
/// length of the text, if it is not compressed. Returns also whether edges have weights.
///
/// # Errors
/// [`GraphError::Load`](crate::GraphError::Load),
/// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of
/// building.
pub(super) fn load<V: Width>(
    text: &mut Text<'_>,
    weighted: Option<bool>,
    text_len: Option<u64>,
    options: &LoadOptions<'_>,
) -> Result<(FileGraph<V>, bool)> {
    let comments = Comments::read(text)?;
    let start = start(text, weighted, &comments, options)?;
    let has_weights = start.columns.weight.is_some();
    let weights = options.weights::<V>(text.path(), has_weights)?;
    if let Some(len) = text_len {
        let edges = len / start.line as u64;
        let words = if weights.is_some() { 3 } else { 2 };
        let list = edges * words * size_of::<V>() as u64;
        check_memory(options.peak::<V>(0, edges, weights.is_some(), list), options.available)?;
    }
    let (columns, is_detected) = (start.columns, true);
    let grammar = Grammar { comments: COMMENTS, mark: None, columns, weights, is_detected };
    let (pool, budget) = (options.build.pool, Budget::new(options.available));
    let first_line = text.lines();
    let fault = |text: &Text<'_>, fault| whole(text.path(), fault);
    let (mut graph, edges, count_line) = if options.compact {
        if let Some(vertices) = options.vertices {
            return Err(whole(text.path(), LoadFault::VerticesWithCompact(vertices)));
        }
        if comments.is_bipartite {
            return Err(whole(text.path(), LoadFault::BipartiteCompact));
        }
        let mut list = List::<u64>::read(text, pool, &budget, &grammar, Ok)?;
        let counts = counts(&mut list, &start, text.path(), first_line)?;
        let directedness = directedness(&start, &comments);
        let edges = list.edges();
        let (list, ids) = ids::compact::<V>(list, pool, &budget)?;
        let found = list.vertices;
        let mut graph = FileGraph::of_list(&list, directedness, ids, options)?;
        if let Some(stated) = comments.vertices.filter(|stated| *stated != found) {
            graph.reading.differences.push(StatedCount { what: "vertices", stated, found });
        }
        (graph, edges, counts.is_some())
    } else {
        let resolve = |id| match options.vertices {
            // IDs that count from 1 reach the number of vertices.
            Some(vertices) if id > vertices => Err(LoadFault::VertexOutOfRange { id, vertices }),
            _ => vertex::<V>(id, None),
        };
        let mut list = List::read(text, pool, &budget, &grammar, resolve)?;
        let counts = counts(&mut list, &start, text.path(), first_line)?;
        let placed = place(&mut list, &comments, counts, options);
        let vertices = placed.map_err(|error| fault(text, error))?;
        let checked = options.check_vertices::<V>(vertices, text.bytes(), true);
        checked.map_err(|error| fault(text, error))?;
        let directedness = directedness(&start, &comments);
        let mut graph = FileGraph::of_list(&list, directedness, Ids::From(list.first), options)?;
        graph.reading.sources = comments.is_bipartite.then_some(list.targets);
        compare_vertices(&mut graph, &list, &comments, counts.or(options.vertices));
        (graph, list.edges(), counts.is_some())
    };
    graph.reading.columns = start.columns.names();
    graph.reading.count_line = count_line;
    let kept = graph.graph.edges() as u64;
    if let Some(stated) = comments.edges.filter(|stated| ![edges, kept].contains(stated)) {
        graph.reading.differences.push(StatedCount { what: "edges", stated, found: edges });
    }
    Ok((graph, has_weights))
}

/// Detects the columns, and consumes the lines before the first edge.
fn start(
    text: &mut Text<'_>,
    weighted: Option<bool>,
    comments: &Comments,
    options: &LoadOptions<'_>,
) -> Result<Start> {
    for _ in 0..options.skip_lines.unwrap_or(0) {
        text.content_line(COMMENTS)?;
    }
    let stated = Stated {
        names: options.columns,
        weighted: weighted.or(comments.is_unweighted.then_some(false)),
        konect: comments.is_konect,
        counts: options.skip_lines.is_none() && !comments.is_konect,
    };
    let before = text.lines();
    let sample = text.sample(COMMENTS)?;
    let detected = match lone_carriage_return(sample) {
        Some(at) => Err((count_lines(&sample[..at]) + 1, LoadFault::CarriageReturn)),
        None => detect(sample, stated),
    };
    let start = detected.map_err(|(line, fault)| at_line(text.path(), before + line, fault))?;
    for _ in 0..usize::from(start.header) + usize::from(start.counts.is_some()) {
        text.content_line(COMMENTS)?;
    }
    Ok(start)
}

fn directedness(start: &Start, comments: &Comments) -> Directedness {
    match start.columns.kind {
        Some((_, true)) => Directedness::Directed,
        Some((_, false)) => Directedness::Undirected,
        None => comments.directedness.unwrap_or(Directedness::Unspecified),
    }
}

/// Decides whether the first line states vertices and edges, as in contests. Returns the vertices,
/// and excludes that line from the edges.
///
/// # Errors
/// [`LoadFault::CountsOrEdge`]; [`LoadFault::VaryingColumns`] for a first line with other columns
/// that does not state the edges.
fn counts<V: Width>(
    list: &mut List<V>,
    start: &Start,
    path: &std::path::Path,
    line: u64,
) -> Result<Option<u64>> {
    // A line with other columns is consumed already.
    let (first, others, line) = match start.counts {
        Some([from, to]) => (Some((from, to, None)), list.edges(), line),
        None => (list.first_edge(), list.edges().saturating_sub(1), line + 1),
    };
    let is_edge = start.header || !start.columns.is_plain() || !start.may_count;
    let Some((from, to, weight)) = first.filter(|_| !is_edge && others > 0) else {
        return Ok(None);
    };
    let is_own_line = start.counts.is_some();
    let most = match (is_own_line, from.max(to) < list.largest()) {
        (true, _) => list.largest(),
        (false, false) => list.largest_of_others(),
        (false, true) => return Ok(None),
    };
    // As an edge, it would join vertices beyond a gap in the IDs.
    let is_beyond = from >= most && to > most.saturating_add(1);
    let is_count = from >= most && to == others;
    let is_size = from.max(to) >= most && weight == Some(others);
    if is_count && (is_own_line || is_beyond && to > from) {
        list.skips_first = !is_own_line;
        return Ok(Some(from));
    }
    let fault = if is_count || !is_own_line && (is_beyond || is_size) {
        LoadFault::CountsOrEdge { first: from, second: to, edges: others }
    } else if is_own_line {
        LoadFault::VaryingColumns { found: 2, expected: start.columns.count }
    } else {
        return Ok(None);
    };
    Err(at_line(path, line, fault))
}

/// Determines the first ID, the number of vertices, and those of the sources of a bipartite graph.
fn place<V: Width>(
    list: &mut List<V>,
    comments: &Comments,
    counted: Option<u64>,
    options: &LoadOptions<'_>,
) -> std::result::Result<u64, LoadFault> {
    let (least, largest) = (list.least(), list.largest());
    let stated = options.vertices.or(counted);
    list.first = u64::from(match stated {
        _ if comments.is_konect => least > 0,
        Some(vertices) => {
            let is_from_1 = options.vertices.is_none() && least == 1;
            is_from_1 || largest == vertices && least > 0
        }
        None => least == 1,
    });
    let [sources, targets] = list.largest_ends().map(|largest| largest + 1 - list.first);
    let found = match list.edges() {
        0 => 0,
        _ if comments.is_bipartite => {
            list.targets = sources;
            sources + targets
        }
        _ => sources.max(targets),
    };
    list.vertices = match stated {
        Some(vertices) if found > vertices => {
            return Err(LoadFault::VertexOutOfRange { id: largest, vertices });
        }
        Some(vertices) => vertices,
        None => found,
    };
    Ok(list.vertices)
}

/// Reports IDs without edges, unless the caller knows of them: it states the vertices. If the
/// comments state the vertices, any difference is reported.
fn compare_vertices<V: Width>(
    graph: &mut FileGraph<V>,
    list: &List<V>,
    comments: &Comments,
    known: Option<u64>,
) {
    let isolated = graph.graph.isolated() as u64;
    let stated = comments.vertices.filter(|&stated| stated != list.vertices);
    let is_many = known.is_none() && is_large(isolated, list.vertices);
    if stated.is_none() && !is_many {
        return;
    }
    let unused = list.unused_ids();
    let found = list.vertices - unused;
    if known.is_none() && (is_large(unused, list.vertices) || stated == Some(found) && unused > 0) {
        graph.unused_ids = Some(unused);
    }
    if let Some(stated) = stated.filter(|&stated| stated != found) {
        graph.reading.differences.push(StatedCount { what: "vertices", stated, found });
    }
}

/// Whether unused IDs enlarge the arrays per vertex by a third or more.
fn is_large(unused_ids: u64, vertices: u64) -> bool {
    unused_ids >= vertices.div_ceil(4)
}
