//! Text formats.

use crate::error::SaveFault;
use crate::{Format, Graph, GraphError, Ids, Result, Width};
use hugepilot_kernel::file::NewFile;

/// Writes numbers on a line.
pub(super) fn numbers(out: &mut NewFile, line: &[u64]) -> Result<()> {
    let mut buffer = itoa::Buffer::new();
    for (i, &number) in line.iter().enumerate() {
        out.write(buffer.format(number).as_bytes())?;
        out.write(if i + 1 < line.len() { b" " } else { b"\n" })?;
    }
    Ok(())
}

/// Writes a line for each edge; an undirected edge once.
fn edges<V: Width>(
    out: &mut NewFile,
    graph: &Graph<V>,
    mark: &[u8],
    line: impl Fn(u64, u64, Option<u64>) -> [Option<u64>; 3],
) -> Result<()> {
    for from in 0..graph.vertices() {
        let weights = graph.out.weights(from);
        for (i, to) in graph.out.neighbours(from).iter().enumerate() {
            if graph.is_directed() || from <= to.at() {
                let weight = weights.get(i).map(|weight| weight.at() as u64);
                let [a, b, c] = line(from as u64, to.at() as u64, weight).map(Option::into_iter);
                let all: Vec<u64> = a.chain(b).chain(c).collect();
                out.write(mark)?;
                numbers(out, &all)?;
            }
        }
    }
    Ok(())
}

/// Writes an edge list.
pub(super) fn edge_list<V: Width>(
    out: &mut NewFile,
    graph: &Graph<V>,
    ids: &Ids,
    weighted: bool,
) -> Result<()> {
    let id = |vertex: u64| Some(ids.of(vertex as usize));
    edges(out, graph, b"", |from, to, weight| [id(from), id(to), weight.filter(|_| weighted)])
}

/// Writes Matrix Market. A symmetric matrix has the entries below its diagonal.
pub(super) fn matrix<V: Width>(out: &mut NewFile, graph: &Graph<V>) -> Result<()> {
    let field = if graph.out.is_weighted() { "integer" } else { "pattern" };
    let symmetry = if graph.is_directed() { "general" } else { "symmetric" };
    out.write(format!("%%MatrixMarket matrix coordinate {field} {symmetry}\n").as_bytes())?;
    let vertices = graph.vertices() as u64;
    numbers(out, &[vertices, vertices, graph.edges() as u64])?;
    edges(out, graph, b"", |from, to, weight| {
        let [row, column] = if graph.is_directed() { [from, to] } else { [to, from] };
        [Some(row + 1), Some(column + 1), weight]
    })
}

/// Writes DIMACS. Arcs are directed, so an undirected graph has each edge twice.
pub(super) fn dimacs<V: Width>(out: &mut NewFile, graph: &Graph<V>) -> Result<()> {
    out.write(b"p sp ")?;
    numbers(out, &[graph.vertices() as u64, graph.out.edges() as u64])?;
    for from in 0..graph.vertices() {
        for (to, weight) in graph.out.neighbours(from).iter().zip(graph.out.weights(from)) {
            out.write(b"a ")?;
            numbers(out, &[from as u64 + 1, to.at() as u64 + 1, weight.at() as u64])?;
        }
    }
    Ok(())
}

/// Writes METIS.
pub(super) fn metis<V: Width>(out: &mut NewFile, graph: &Graph<V>) -> Result<()> {
    if graph.is_directed() {
        return Err(GraphError::save(out.path(), SaveFault::Directed(Format::Metis)));
    }
    let header = [graph.vertices() as u64, graph.edges() as u64, 1];
    numbers(out, &header[..if graph.out.is_weighted() { 3 } else { 2 }])?;
    let mut line = Vec::new();
    for from in 0..graph.vertices() {
        let weights = graph.out.weights(from);
        line.clear();
        for (i, to) in graph.out.neighbours(from).iter().enumerate() {
            line.push(to.at() as u64 + 1);
            line.extend(weights.get(i).map(|weight| weight.at() as u64));
        }
        if line.is_empty() {
            out.write(b"\n")?;
        }
        numbers(out, &line)?;
    }
    Ok(())
}
