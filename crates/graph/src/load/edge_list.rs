//! Lists of edges: SNAP's, CSV, and the GAP benchmark suite's `.el` and `.wel`.

use super::list::{Grammar, List};
use super::number::{gap, is_end, is_gap};
use super::options::{LoadOptions, vertex};
use super::text::{Budget, Text, fits};
use super::{FileGraph, ids};
use crate::{Result, Width};

pub(super) const COMMENTS: &[u8] = b"#%";

/// What the first lines tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Names of columns come first.
    pub(super) header: bool,
    /// How many numbers stand in a line.
    pub(super) columns: usize,
    /// How long a line is, on average.
    line: usize,
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.trim_ascii().split(|&byte| is_gap(byte)).filter(|word| !word.is_empty())
}

/// Looks at the first lines.
pub(super) fn look(head: &[u8]) -> Look {
    let tell =
        |line: &&[u8]| !line.trim_ascii().is_empty() && !COMMENTS.contains(&line.trim_ascii()[0]);
    let mut lines = head.split(|&byte| byte == b'\n').filter(tell).peekable();
    // All of them: a number among them is one of an edge.
    let is_name = |word: &[u8]| {
        let word = word.strip_prefix(b"\"").unwrap_or(word);
        word.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
    };
    let header =
        lines.next_if(|line| words(line).next().is_some() && words(line).all(is_name)).is_some();
    let columns = lines.peek().map_or(0, |line| words(line).count());
    let count = head.iter().filter(|&&byte| byte == b'\n').count();
    Look { header, columns, line: (head.len() / count.max(1)).max(1) }
}

/// Whether a line of text could be one of ours: numbers, or names over them.
pub(super) fn is_likely(head: &[u8]) -> bool {
    let text = head.split(|&byte| byte == b'\n').find(|line| {
        let line = line.trim_ascii_start();
        line.first().is_some_and(|byte| !COMMENTS.contains(byte))
    });
    let mut at = 0;
    text.is_some_and(|line| {
        gap(line, &mut at);
        !is_end(line, at)
            && (line[at].is_ascii_digit() || look(head).header && look(head).columns >= 2)
    })
}

/// `unpacked` is how long the text is, where that is known.
///
/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of building.
pub(super) fn load<V: Width>(
    text: &mut Text<'_>,
    weighted: bool,
    unpacked: Option<u64>,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let seen = look(text.ahead()?);
    let weights = options.weights::<V>(text.path(), weighted)?;
    if let Some(len) = unpacked {
        let edges = len / seen.line as u64;
        let list = edges * (if weighted { 3 } else { 2 }) * size_of::<V>() as u64;
        fits(options.peak::<V>(0, edges, weighted, list), options.available)?;
    }
    if seen.header {
        text.telling(COMMENTS)?;
    }
    let grammar = Grammar { comments: COMMENTS, mark: None, weights, rest: true };
    let (pool, budget) = (options.build.pool, Budget::new(options.available));
    if options.compact {
        if let Some(vertices) = options.vertices {
            let what =
                format!("--vertices {vertices} with --compact, which counts those that have edges");
            return Err(super::blocks::whole(text.path(), what));
        }
        let list = List::<u64>::read(text, pool, &budget, &grammar, Ok)?;
        let (list, ids) = ids::compact::<V>(list, pool, &budget)?;
        return FileGraph::of_list(list, options.build.directed, Some(ids), options);
    }
    let resolve = |id| vertex::<V>(id, options.vertices);
    let mut list = List::read(text, pool, &budget, &grammar, resolve)?;
    list.vertices = options.vertices.unwrap_or(list.vertices);
    let justified = options.justify::<V>(list.vertices, text.bytes());
    justified.map_err(|what| super::blocks::whole(text.path(), what))?;
    FileGraph::of_list(list, options.build.directed, None, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_tell_names_and_columns() {
        let tell = |text: &str| (look(text.as_bytes()).header, look(text.as_bytes()).columns);
        assert_eq!(tell("# Nodes: 3 Edges: 2\n0\t1\r\n"), (false, 2));
        assert_eq!(tell("source,target,weight\n0,1,5\n"), (true, 3));
        assert_eq!(tell("\"from\";\"to\"\n0;1\n"), (true, 2));
        assert_eq!(tell("O 1\n1 2\n"), (false, 2));
        assert_eq!(tell("\"0\",\"1\"\n"), (false, 2));
        assert_eq!(tell(",,\n1,2\n"), (false, 0));
        assert_eq!(tell("\n\n"), (false, 0));
        assert!(is_likely(b"# x\n\n 1 2\n") && is_likely(b"from;to\n1;2\n"));
        assert!(!is_likely(b"hello\nworld\n") && !is_likely(b"") && !is_likely(b"\x7fELF\0\0"));
    }
}
