//! Matrix Market: a line of words, a line of sizes, and a line for each entry (Boisvert, Pozo and Remington, NISTIR 5935).

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
    let (weighted, symmetric) = banner(text)?;
    let Some(line) = text.telling(b"%")? else {
        return Err(text.error("the file ends before the line of sizes"));
    };
    let Some([rows, columns, entries]) = sizes(&line) else {
        return Err(text.error(format!("{line:?} should be rows, columns and entries")));
    };
    if rows != columns {
        return Err(
            text.error(format!("{rows} rows and {columns} columns; a graph's matrix is square"))
        );
    }
    let vertices = options.count(Some(rows)).map_err(|what| text.error(what))?.unwrap_or(rows);
    options.justify::<V>(vertices, file).map_err(|what| text.error(what))?;
    if entries > file / 4 {
        return Err(text.error(format!("{entries} entries do not fit into {file} bytes")));
    }
    let weights = options.weights::<V>(text.path(), weighted)?;
    let words = if weights.is_some() { 3 } else { 2 };
    let list = entries * words * size_of::<V>() as u64;
    fits(options.peak::<V>(vertices, entries, weights.is_some(), list), options.available)?;
    let rest = weighted && weights.is_none();
    let grammar = Grammar { comments: b"%", mark: None, weights, rest };
    let budget = Budget::new(options.available);
    let resolve = |id| vertex_from_1::<V>(id, rows);
    let mut list = List::read(text, options.build.pool, &budget, &grammar, resolve)?;
    if list.edges() != entries {
        return Err(text.error(format!("{entries} entries, but the file has {}", list.edges())));
    }
    // How long text is that was packed is known now.
    options.justify::<V>(vertices, text.bytes()).map_err(|what| text.error(what))?;
    list.vertices = vertices;
    FileGraph::of_list(list, options.build.directed && !symmetric, None, options)
}

/// Whether entries have values, and whether those above the diagonal are left out.
fn banner(text: &mut Text<'_>) -> Result<(bool, bool)> {
    let line = text
        .line()?
        .map(|line| String::from_utf8_lossy(line).to_ascii_lowercase())
        .unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "matrix", "coordinate", field, symmetry] = words[..] else {
        return Err(text.error(format!(
            "{:?} should be %%MatrixMarket matrix coordinate FIELD SYMMETRY",
            line.chars().take(80).collect::<String>()
        )));
    };
    let weighted = match field {
        "pattern" => false,
        "integer" | "real" | "double" => true,
        _ => {
            return Err(text.error(format!("{field:?} values; pattern, integer and real are read")));
        }
    };
    match symmetry {
        "general" => Ok((weighted, false)),
        "symmetric" => Ok((weighted, true)),
        _ => Err(text.error(format!("a {symmetry:?} matrix; general and symmetric ones are read"))),
    }
}
