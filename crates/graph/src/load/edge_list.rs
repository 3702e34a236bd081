//! Edge lists: SNAP, CSV, and `.el` and `.wel` of the GAP benchmark suite.

use super::file_blocks::whole;
use super::list::{Grammar, List};
use super::number::{gap, is_end, is_gap};
use super::options::{LoadOptions, vertex};
use super::text::{Budget, Text, check_memory};
use super::{FileGraph, ids};
use crate::error::LoadFault;
use crate::{Result, Width};

/// First bytes of comment lines.
pub(super) const COMMENTS: &[u8] = b"#%";

/// Layout of an edge list, by its first lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Whether the first line names the columns.
    pub(super) header: bool,
    /// Numbers on a line.
    pub(super) count: usize,
    /// Mean length of a line in bytes.
    line: usize,
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.trim_ascii().split(|&byte| is_gap(byte)).filter(|word| !word.is_empty())
}

/// Detects the columns by the first lines.
pub(super) fn columns(head: &[u8]) -> Columns {
    let has_content =
        |line: &&[u8]| !line.trim_ascii().is_empty() && !COMMENTS.contains(&line.trim_ascii()[0]);
    let mut lines = head.split(|&byte| byte == b'\n').filter(has_content).peekable();
    // All words: a line with a number is an edge.
    let is_name = |word: &[u8]| {
        let word = word.strip_prefix(b"\"").unwrap_or(word);
        word.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
    };
    let header =
        lines.next_if(|line| words(line).next().is_some() && words(line).all(is_name)).is_some();
    let count = lines.peek().map_or(0, |line| words(line).count());
    let breaks = head.iter().filter(|&&byte| byte == b'\n').count();
    Columns { header, count, line: (head.len() / breaks.max(1)).max(1) }
}

/// Whether text may be an edge list: it starts with a number, or with two or more column names.
pub(super) fn is_likely(head: &[u8]) -> bool {
    let text = head.split(|&byte| byte == b'\n').find(|line| {
        let line = line.trim_ascii_start();
        line.first().is_some_and(|byte| !COMMENTS.contains(byte))
    });
    let mut at = 0;
    text.is_some_and(|line| {
        gap(line, &mut at);
        !is_end(line, at)
            && (line[at].is_ascii_digit() || columns(head).header && columns(head).count >= 2)
    })
}

/// Loads a graph. `text_len` is the length of the text, if it is not compressed.
///
/// # Errors
/// [`GraphError::Load`](crate::GraphError::Load),
/// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of
/// building.
pub(super) fn load<V: Width>(
    text: &mut Text<'_>,
    weighted: bool,
    text_len: Option<u64>,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let columns = columns(text.ahead()?);
    let weights = options.weights::<V>(text.path(), weighted)?;
    if let Some(len) = text_len {
        let edges = len / columns.line as u64;
        let list = edges * (if weighted { 3 } else { 2 }) * size_of::<V>() as u64;
        check_memory(options.peak::<V>(0, edges, weighted, list), options.available)?;
    }
    if columns.header {
        text.content_line(COMMENTS)?;
    }
    let grammar = Grammar { comments: COMMENTS, mark: None, weights, rest: true };
    let (pool, budget) = (options.build.pool, Budget::new(options.available));
    if options.compact {
        if let Some(vertices) = options.vertices {
            return Err(whole(text.path(), LoadFault::VerticesWithCompact(vertices)));
        }
        let list = List::<u64>::read(text, pool, &budget, &grammar, Ok)?;
        let (list, ids) = ids::compact::<V>(list, pool, &budget)?;
        return FileGraph::of_list(&list, options.build.directed, Some(ids), options);
    }
    let resolve = |id| vertex::<V>(id, options.vertices);
    let mut list = List::read(text, pool, &budget, &grammar, resolve)?;
    list.vertices = options.vertices.unwrap_or(list.vertices);
    let checked = options.check_vertices::<V>(list.vertices, text.bytes(), true);
    checked.map_err(|fault| whole(text.path(), fault))?;
    let mut graph = FileGraph::of_list(&list, options.build.directed, None, options)?;
    // The caller knows of gaps if it states the vertices.
    if options.vertices.is_none() && is_large(graph.graph.isolated() as u64, list.vertices) {
        graph.unused_ids = Some(list.unused_ids()).filter(|&ids| is_large(ids, list.vertices));
    }
    Ok(graph)
}

/// Whether unused IDs enlarge the arrays per vertex by a third or more.
fn is_large(unused_ids: u64, vertices: u64) -> bool {
    unused_ids >= vertices.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_determine_names_and_columns() {
        let of = |text: &str| {
            let columns = columns(text.as_bytes());
            (columns.header, columns.count)
        };
        assert_eq!(of("# Nodes: 3 Edges: 2\n0\t1\r\n"), (false, 2));
        assert_eq!(of("source,target,weight\n0,1,5\n"), (true, 3));
        assert_eq!(of("\"from\";\"to\"\n0;1\n"), (true, 2));
        assert_eq!(of("O 1\n1 2\n"), (false, 2));
        assert_eq!(of("\"0\",\"1\"\n"), (false, 2));
        assert_eq!(of(",,\n1,2\n"), (false, 0));
        assert_eq!(of("\n\n"), (false, 0));
        assert!(is_likely(b"# x\n\n 1 2\n") && is_likely(b"from;to\n1;2\n"));
        assert!(!is_likely(b"hello\nworld\n") && !is_likely(b"") && !is_likely(b"\x7fELF\0\0"));
    }
}
