//! Matrix Market coordinate format (Boisvert, Pozo and Remington, NISTIR 5935).

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
    let Banner { values, directedness } = banner(text, options)?;
    let [rows, entries] = dimensions(text)?;
    let vertices = options.vertices_or(rows).map_err(|fault| text.error(fault))?;
    let check = |bytes| options.check_vertices::<V>(vertices, bytes, false);
    check(file).map_err(|fault| text.error(fault))?;
    if entries > file / 4 {
        let fault = LoadFault::CountTooLarge { what: "entries", count: entries, bytes: file };
        return Err(text.error(fault));
    }
    let weights = options.weights::<V>(text.path(), values > 0)?;
    let words = if weights.is_some() { 3 } else { 2 };
    let list = entries * words * size_of::<V>() as u64;
    let peak = options.peak::<V>(vertices, entries, weights.is_some(), list);
    check_memory(peak, options.available)?;
    let columns = Columns::plain(2 + values, values > 0);
    let grammar = Grammar { comments: b"%", mark: None, columns, weights, is_detected: false };
    let budget = Budget::new(options.available);
    let resolve = |id| vertex_from_1::<V>(id, rows);
    let mut list = List::read(text, options.build.pool, &budget, &grammar, resolve)?;
    if list.edges() != entries {
        let found = list.edges();
        let fault = LoadFault::CountMismatch { what: "entries", stated: entries, found };
        return Err(text.error(fault));
    }
    // The length of compressed text is known only now.
    check(text.bytes()).map_err(|fault| text.error(fault))?;
    list.vertices = vertices;
    FileGraph::of_list(&list, directedness, Ids::From(1), options)
}

/// Content of the first line.
struct Banner {
    /// Numbers of a value: 2 for complex numbers.
    values: usize,
    directedness: Directedness,
}

/// Reads the first line.
fn banner(text: &mut Text<'_>, options: &LoadOptions<'_>) -> Result<Banner> {
    let line = text
        .line()?
        .map(|line| String::from_utf8_lossy(line).to_ascii_lowercase())
        .unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let ["%%matrixmarket", "matrix", layout, field, symmetry] = words[..] else {
        return Err(text.error(LoadFault::Expected {
            expected: "%%MatrixMarket matrix coordinate FIELD SYMMETRY",
            found: Excerpt::new(line.as_bytes()),
        }));
    };
    let unsupported = |what, found: &str, expected| {
        text.error(LoadFault::Unsupported { what, found: found.to_owned(), expected })
    };
    if layout != "coordinate" {
        let expected = "coordinate: a dense matrix has no edges";
        return Err(unsupported("layout", layout, expected));
    }
    let values = match field {
        "pattern" => 0,
        "integer" | "real" | "double" => 1,
        "complex" if options.ignore_weights => 2,
        "complex" => return Err(text.error(LoadFault::NoWeights("complex"))),
        _ => return Err(unsupported("field", field, "pattern, integer, real or complex")),
    };
    let directedness = match symmetry {
        "general" => Directedness::Arcs,
        "symmetric" | "hermitian" => Directedness::Undirected,
        // Each value has its negative across the diagonal.
        "skew-symmetric" if options.ignore_weights || values == 0 => Directedness::Undirected,
        "skew-symmetric" => return Err(text.error(LoadFault::NoWeights("skew-symmetric"))),
        _ => {
            let expected = "general, symmetric, skew-symmetric or hermitian";
            return Err(unsupported("symmetry", symmetry, expected));
        }
    };
    Ok(Banner { values, directedness })
}

/// Reads the line of sizes. Returns the rows of a square matrix, and its entries.
fn dimensions(text: &mut Text<'_>) -> Result<[u64; 2]> {
    let line = text.content_line(b"%")?.unwrap_or_default();
    let Some([rows, columns, entries]) = sizes(&line) else {
        let found = Excerpt::new(line.as_bytes());
        return Err(text.error(LoadFault::Expected { expected: "ROWS COLUMNS ENTRIES", found }));
    };
    if rows != columns {
        return Err(text.error(LoadFault::NotSquare { rows, columns }));
    }
    Ok([rows, entries])
}
