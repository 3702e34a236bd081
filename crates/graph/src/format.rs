//! File formats of graphs.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::error::NameKind;
use crate::{GraphError, Result};

/// File format of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Lines of two vertex IDs, as in SNAP: with comments, or as CSV.
    EdgeList,
    /// Lines of two vertex IDs and a weight.
    WeightedEdgeList,
    /// Matrix Market coordinates, counted from 1.
    MatrixMarket,
    /// Text of the ninth DIMACS challenge (shortest paths), counted from 1.
    Dimacs,
    /// METIS: a line of neighbours for each vertex, counted from 1.
    Metis,
    /// Pair of LDBC Graphalytics files: `.v` with the vertices, `.e` with the edges.
    Ldbc,
    /// Binary format of the GAP benchmark suite, without weights.
    Gap,
    /// Binary format of the GAP benchmark suite, with weights.
    WeightedGap,
    /// Binary format of Galois with 32-bit vertex IDs (version 1).
    Galois,
    /// Binary format of Galois with 64-bit vertex IDs (version 2).
    Galois64,
    /// Directory with the four files of the page-size papers.
    FourFiles,
    /// Native format of hugepilot.
    Native,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 12] = [
        Self::EdgeList,
        Self::WeightedEdgeList,
        Self::MatrixMarket,
        Self::Dimacs,
        Self::Metis,
        Self::Ldbc,
        Self::Gap,
        Self::WeightedGap,
        Self::Galois,
        Self::Galois64,
        Self::FourFiles,
        Self::Native,
    ];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EdgeList => "el",
            Self::WeightedEdgeList => "wel",
            Self::MatrixMarket => "mtx",
            Self::Dimacs => "dimacs",
            Self::Metis => "metis",
            Self::Ldbc => "ldbc",
            Self::Gap => "sg",
            Self::WeightedGap => "wsg",
            Self::Galois => "galois",
            Self::Galois64 => "galois64",
            Self::FourFiles => "four-files",
            Self::Native => "hpg",
        }
    }

    /// Whether the format is text, which gzip or zstd may compress.
    pub const fn is_text(self) -> bool {
        matches!(
            self,
            Self::EdgeList
                | Self::WeightedEdgeList
                | Self::MatrixMarket
                | Self::Dimacs
                | Self::Metis
                | Self::Ldbc
        )
    }

    /// Returns the ID of the first vertex in files of the format, unless they store IDs.
    pub const fn first_id(self) -> u64 {
        matches!(self, Self::MatrixMarket | Self::Dimacs | Self::Metis) as u64
    }

    /// Returns the format of a file name, without a final `.gz` or `.zst`.
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        if name == FOUR[0] {
            return Some(Self::FourFiles);
        }
        let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        Some(match name.rsplit_once('.')?.1 {
            "el" | "csv" | "tsv" | "txt" | "edges" => Self::EdgeList,
            "wel" => Self::WeightedEdgeList,
            "mtx" => Self::MatrixMarket,
            "graph" | "metis" => Self::Metis,
            "e" | "v" => Self::Ldbc,
            "sg" => Self::Gap,
            "wsg" => Self::WeightedGap,
            "gr" => Self::Dimacs,
            "hpg" => Self::Native,
            _ => return None,
        })
    }

    /// Returns the format of a file of `len` bytes with these first bytes, if certain. Edge lists
    /// are not certain.
    pub(crate) fn of_head(head: &[u8], len: u64) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        if head.starts_with(MAGIC) {
            return Some(Self::Native);
        }
        if head.len() >= 14 && head[..14].eq_ignore_ascii_case(b"%%MatrixMarket") {
            return Some(Self::MatrixMarket);
        }
        match (word(0), word(8)) {
            (Some(1), Some(0 | 4 | 8)) => return Some(Self::Galois),
            (Some(2), Some(0 | 4 | 8)) => return Some(Self::Galois64),
            _ => {}
        }
        if let (Some(directed @ (0 | 1)), Some(edges), Some(vertices)) =
            (head.first(), word(1), word(9))
        {
            let size = |edge: u64| {
                let rows = vertices
                    .checked_add(1)?
                    .checked_mul(8)?
                    .checked_add(edges.checked_mul(edge)?)?;
                rows.checked_mul(u64::from(*directed) + 1)?.checked_add(17)
            };
            if size(4) == Some(len) {
                return Some(Self::Gap);
            }
            if size(8) == Some(len) {
                return Some(Self::WeightedGap);
            }
        }
        let lines = head.split(|&byte| byte == b'\n');
        let words = |line: &[u8]| {
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.take(2).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let first = lines.map(words).find(|line| line.first().is_some_and(|word| word != b"c"));
        first.is_some_and(|line| line == [&b"p"[..], b"sp"]).then_some(Self::Dimacs)
    }
}

/// First bytes of a native file.
pub(crate) const MAGIC: &[u8; 8] = b"hpgraph\n";

/// Names of the four files: sizes, offsets, edges, weights.
pub(crate) const FOUR: [&str; 4] =
    ["num_nodes_edges.txt", "node_array.bin", "edge_array.bin", "edge_values.bin"];

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = GraphError;
    fn from_str(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|format| format.name() == text);
        let found = || text.to_owned();
        named.ok_or_else(|| GraphError::UnknownName { kind: NameKind::Format, found: found() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        let error = "elf".parse::<Format>().unwrap_err();
        let kind = matches!(error, GraphError::UnknownName { kind: NameKind::Format, .. });
        assert!(kind, "{error}");
    }

    #[test]
    fn compression_suffixes_are_ignored() {
        let of = |name: &str| Format::of_name(Path::new(name));
        assert_eq!(of("a/soc-Live.TXT.gz"), Some(Format::EdgeList));
        assert_eq!(of("x.wel.zst"), Some(Format::WeightedEdgeList));
        assert_eq!(of("dir/num_nodes_edges.txt"), Some(Format::FourFiles));
        assert_eq!((of("graph"), of("a.bin")), (None, None));
    }

    #[test]
    fn certain_formats_are_detected_by_the_first_bytes() {
        let of = |head: &[u8]| Format::of_head(head, head.len() as u64);
        assert_eq!(of(b"%%matrixmarket matrix"), Some(Format::MatrixMarket));
        assert_eq!(of(b"c\nc converted\np sp 4 5\n"), Some(Format::Dimacs));
        assert_eq!(of(b"\nc\tx\np\tsp  4 5\n"), Some(Format::Dimacs));
        assert_eq!(of(b"c converted\n1 2\n"), None);
        assert_eq!(
            of(&[[2u64, 4].map(u64::to_le_bytes).concat()].concat()),
            Some(Format::Galois64)
        );
        // 2 vertices, no edges.
        let mut gap = vec![0u8; 17 + 24];
        gap[9] = 2;
        assert_eq!(of(&gap), Some(Format::Gap));
        gap.push(0);
        assert_eq!(of(&gap), None);
        assert_eq!(of(b""), None);
    }
}
