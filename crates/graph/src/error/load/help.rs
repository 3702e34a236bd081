//! Suggested fixes of faults of input files.

use super::LoadFault;
use crate::Help;

const SKIP: Help = Help::Reading("if the first line is not an edge: --skip-lines 1");
const ADJACENCY: Help = Help::Reading(
    "if each line is VERTEX NEIGHBOUR..., write one edge per line: \
     awk '{for (i = 2; i <= NF; i++) print $1, $i}' OLD > NEW.el",
);
const NAMES: Help =
    Help::Reading("name the columns, with - for ignored ones: --columns source,target,weight,-");

impl LoadFault {
    /// Whether 64 bits may suffice.
    pub(crate) const fn is_too_narrow(&self) -> bool {
        matches!(
            self,
            Self::WeightTooLarge(_) | Self::VertexTooLarge { .. } | Self::NumberTooWide(_)
        )
    }

    /// Suggests fixes, most likely first.
    pub(crate) fn help(&self) -> Vec<Help> {
        match self {
            Self::UnknownFormat | Self::NoEdgeInHead => vec![Help::NameFormat],
            Self::Utf16 => vec![Help::SaveAsUtf8],
            Self::Archive(names) if !names.is_empty() => {
                names.iter().take(3).cloned().map(Help::Member).collect()
            }
            Self::VaryingColumns { .. } => vec![SKIP, ADJACENCY],
            Self::NamesMismatch { .. } | Self::UnknownColumns(_) | Self::UnnamedColumns { .. } => {
                vec![NAMES]
            }
            Self::WeightsOrNeighbours(_) => {
                vec![Help::Reading("if the third column is a weight: --format wel"), ADJACENCY]
            }
            Self::CountsOrEdge { .. } => {
                vec![SKIP, Help::Reading("if the first line is an edge: --skip-lines 0")]
            }
            Self::MixedSeparators(_) => vec![Help::Reading(
                "separate columns by blanks or by commas, and write numbers without separators",
            )],
            Self::DecimalComma(_) => {
                vec![Help::Reading("write decimal points: tr , . < OLD > NEW"), Help::IgnoreWeights]
            }
            Self::NoWeights(_) => vec![Help::IgnoreWeights],
            Self::RealOrInteger { .. } => vec![
                Help::Reading("if they are integers, name the format: --format galois"),
                Help::IgnoreWeights,
            ],
            Self::UnsupportedCompression(_) | Self::CompressedBinary(_) => vec![Help::Decompress],
            Self::NotTmpfs => vec![Help::CopyToTmpfs],
            Self::CarriageReturn => vec![Help::ConvertLineEnds],
            Self::NotPositive(_) => vec![Help::IgnoreWeights],
            Self::FractionalWeight(_) => vec![Help::ScaleWeights, Help::IgnoreWeights],
            Self::WeightRoundedToZero { .. } => vec![Help::LargerScale],
            Self::WeightTooLarge(_) => vec![Help::Width64, Help::SmallerScale],
            Self::VertexTooLarge { .. } => vec![Help::Width64, Help::Compact],
            Self::NumberTooWide(_) => vec![Help::Width64],
            Self::EmptyList => vec![Help::StateVertices(None)],
            Self::ImplausibleVertices { vertices, can_compact, .. } => {
                let compact = can_compact.then_some(Help::Compact);
                compact.into_iter().chain([Help::StateVertices(Some(*vertices))]).collect()
            }
            Self::ScaleWithoutWeights => vec![Help::DropScale],
            _ => Vec::new(),
        }
    }
}
