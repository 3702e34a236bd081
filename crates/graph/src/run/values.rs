//! What a kernel found, vertex by vertex, as a file.

use std::fmt;

use super::{Output, PreparedGraph};
use crate::{Result, Width, save};

/// What a vertex has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// A distance in edges; LDBC Graphalytics writes the largest number of 63 bits for who is not reached.
    Depth(Option<u64>),
    /// A distance by weights; LDBC Graphalytics writes `Infinity` for who is not reached.
    Distance(Option<u64>),
    /// A number of a vertex.
    Label(u64),
    /// A rank or a score.
    Real(f64),
}

/// What each vertex has, by its number in the graph.
pub(super) type Values = Box<dyn Fn(usize) -> Value>;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Depth(depth) => write!(f, "{}", depth.unwrap_or(i64::MAX as u64)),
            Self::Distance(None) => f.write_str("Infinity"),
            Self::Distance(Some(number)) | Self::Label(number) => write!(f, "{number}"),
            Self::Real(value) => write!(f, "{value:e}"),
        }
    }
}

/// Writes a line for each vertex: its number in the source, the lowest first, and what it has.
///
/// # Errors
/// [`GraphError::Io`](crate::GraphError::Io).
pub(super) fn write<V: Width>(
    ready: &PreparedGraph<V>,
    values: &Values,
    output: &Output,
) -> Result<()> {
    let line = |place| (ready.name(place), values(ready.numbered(V::new(place)).at()));
    save::pairs(&output.path, output.replace, ready.ascending().map(line))?;
    Ok(())
}

/// How many edges each vertex is from the source of a search, by the vertex before it. Each is visited twice at most.
pub(super) fn depths<V: Width>(parents: &[V]) -> Vec<V> {
    let mut depths = vec![V::NONE; parents.len()];
    let mut way = Vec::new();
    for v in 0..parents.len() {
        let mut at = v;
        while depths[at] == V::NONE && parents[at] != V::NONE && parents[at].at() != at {
            way.push(at);
            at = parents[at].at();
        }
        if parents[at].at() == at {
            depths[at] = V::default();
        }
        while let Some(after) = way.pop() {
            depths[after] = depths[at].plus(V::new(1));
            at = after;
        }
    }
    depths
}

/// The least name in each component, for each of its vertices.
pub(super) fn least<V: Width>(labels: &[V], name: impl Fn(usize) -> u64) -> Vec<u64> {
    let mut least = vec![u64::MAX; labels.len()];
    for (v, label) in labels.iter().enumerate() {
        let least = &mut least[label.at()];
        *least = name(v).min(*least);
    }
    labels.iter().map(|label| least[label.at()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_counted_from_the_root_whatever_the_order() {
        let none = u32::MAX;
        // 4 is the root of 0 and 1, 1 of 3, 3 of 2; nobody reached 5.
        assert_eq!(depths::<u32>(&[4, 4, 3, 1, 4, none]), [1, 1, 3, 2, 0, none]);
        let chain: Vec<u32> = (0..100_000u32).map(|v| v.saturating_sub(1)).collect();
        assert!(depths(&chain).into_iter().eq(0..100_000));
    }

    #[test]
    fn a_component_is_called_by_the_least_name_in_it() {
        let names = [90, 7, 30, 8];
        assert_eq!(least::<u32>(&[0, 1, 0, 1], |v| names[v]), [30, 7, 30, 7]);
    }

    #[test]
    fn values_are_written_as_ldbc_does() {
        let written = [
            Value::Depth(Some(3)),
            Value::Depth(None),
            Value::Distance(None),
            Value::Label(u64::MAX),
            Value::Real(0.001_25),
        ]
        .map(|value| value.to_string());
        assert_eq!(
            written,
            ["3", "9223372036854775807", "Infinity", "18446744073709551615", "1.25e-3"]
        );
    }
}
