//! Result of a kernel for each vertex, as a file.

use std::fmt;

use super::{Output, PreparedGraph};
use crate::{Result, Width, save};

/// Result for one vertex.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// Distance in edges. LDBC Graphalytics writes the largest 63-bit number for unreachable
    /// vertices.
    Depth(Option<u64>),
    /// Distance by weight. LDBC Graphalytics writes `Infinity` for unreachable vertices.
    Distance(Option<u64>),
    /// Vertex ID.
    Label(u64),
    /// Rank or score.
    Real(f64),
}

/// Result for each vertex of the graph.
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

/// Writes a line for each vertex, by ascending ID in the input: ID and result.
///
/// # Errors
/// [`GraphError::Io`](crate::GraphError::Io).
pub(super) fn write<V: Width>(
    prepared: &PreparedGraph<V>,
    values: &Values,
    output: &Output,
) -> Result<()> {
    let line = |v| (prepared.id(v), values(prepared.relabelled(V::new(v)).at()));
    save::pairs(&output.path, output.replace, prepared.ascending().map(line))?;
    Ok(())
}

/// Returns the distance of each vertex from the source, by its parents. Visits each vertex at most
/// twice.
pub(super) fn depths<V: Width>(parents: &[V]) -> Vec<V> {
    let mut depths = vec![V::NONE; parents.len()];
    let mut path = Vec::new();
    for v in 0..parents.len() {
        let mut at = v;
        while depths[at] == V::NONE && parents[at] != V::NONE && parents[at].at() != at {
            path.push(at);
            at = parents[at].at();
        }
        if parents[at].at() == at {
            depths[at] = V::default();
        }
        while let Some(after) = path.pop() {
            depths[after] = depths[at].plus(V::new(1));
            at = after;
        }
    }
    depths
}

/// Returns the least ID of the component of each vertex.
pub(super) fn least<V: Width>(labels: &[V], id: impl Fn(usize) -> u64) -> Vec<u64> {
    let mut least = vec![u64::MAX; labels.len()];
    for (v, label) in labels.iter().enumerate() {
        let least = &mut least[label.at()];
        *least = id(v).min(*least);
    }
    labels.iter().map(|label| least[label.at()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_count_from_the_root_in_any_order() {
        let none = u32::MAX;
        // 4 is the parent of 0 and 1, 1 of 3, 3 of 2; 5 is unreachable.
        assert_eq!(depths::<u32>(&[4, 4, 3, 1, 4, none]), [1, 1, 3, 2, 0, none]);
        let chain: Vec<u32> = (0..100_000u32).map(|v| v.saturating_sub(1)).collect();
        assert!(depths(&chain).into_iter().eq(0..100_000));
    }

    #[test]
    fn a_component_has_the_least_id_in_it() {
        let ids = [90, 7, 30, 8];
        assert_eq!(least::<u32>(&[0, 1, 0, 1], |v| ids[v]), [30, 7, 30, 7]);
    }

    #[test]
    fn values_print_as_in_ldbc() {
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
