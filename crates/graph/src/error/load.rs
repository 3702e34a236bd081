//! Faults of input files and load options.

mod help;

use std::fmt;
use std::io;

use crate::Format;

/// Word of an input file, cut to a printable length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    text: String,
    is_cut: bool,
}

impl Excerpt {
    /// Keeps at most 80 bytes of `text`; invalid UTF-8 becomes U+FFFD.
    pub(crate) fn new(text: &[u8]) -> Self {
        const LIMIT: usize = 80;
        let kept = &text[..text.len().min(LIMIT)];
        let text_len = text.len();
        Self { text: String::from_utf8_lossy(kept).into_owned(), is_cut: text_len > LIMIT }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.text, if self.is_cut { "…" } else { "" })
    }
}

/// Fault of an input file, or of a load option that does not suit the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The format is unknown.
    #[error("unknown format")]
    UnknownFormat,
    /// The text starts with a byte order mark of UTF-16.
    #[error("starts with a byte order mark of UTF-16")]
    Utf16,
    /// The file is a tar archive of these members.
    #[error("a tar archive of {}", .0.join(", "))]
    Archive(Vec<String>),
    /// `--member` is set, and the file is not an archive.
    #[error("not a tar archive")]
    NotArchive,
    /// The archive has no such member.
    #[error("the archive has no member {0}")]
    NoMember(String),
    /// The compression is not supported.
    #[error("compressed with {0}: only gzip and zstd are supported")]
    UnsupportedCompression(&'static str),
    /// The file is compressed or in an archive, and its format is binary or a pair of files.
    #[error("compressed or archived: {0} files are read in place")]
    CompressedBinary(Format),
    /// The compressed data is damaged.
    #[error("cannot decompress: {0}")]
    Decompression(io::Error),
    /// The file is not on a tmpfs.
    #[error("not on a tmpfs")]
    NotTmpfs,
    /// The name of an LDBC file does not end in `.v` or `.e`.
    #[error("not one of a pair of LDBC files, whose names end in .v and .e")]
    NotLdbcPair,
    /// A directory lacks the first of the four files.
    #[error("directory without {0}, the first of four-files")]
    NotFourFiles(&'static str),
    /// A header file is longer than its two numbers.
    #[error("longer than two numbers")]
    HeaderTooLong,
    /// Comments fill the first 16 MiB.
    #[error("no edge in the first 16 MiB")]
    NoEdgeInHead,
    /// A line is too long for a text format.
    #[error("line longer than 1 MiB: not a text file")]
    LineTooLong,
    /// A carriage return stands inside a line.
    #[error("a carriage return without a line feed")]
    CarriageReturn,
    /// A line does not have the required form.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// Required form.
        expected: &'static str,
        /// Start of the line.
        found: Excerpt,
    },
    /// A line ends where a number is required.
    #[error("missing number")]
    MissingNumber,
    /// A word is not an unsigned integer.
    #[error("{0} is not an unsigned integer")]
    NotUnsigned(Excerpt),
    /// A number exceeds 64 bits.
    #[error("{0} exceeds 64 bits")]
    NumberTooLarge(Excerpt),
    /// A line starts with another letter than the format requires.
    #[error("expected a line that starts with {expected:?}, found {found}")]
    UnexpectedStart {
        /// Required letter.
        expected: char,
        /// First word of the line.
        found: Excerpt,
    },
    /// A line has another number of columns than other lines.
    #[error("columns vary: {found} in this line, {expected} in others")]
    VaryingColumns {
        /// Columns of the line.
        found: usize,
        /// Columns of the other lines.
        expected: usize,
    },
    /// The edges of LDBC have more columns than source, target and weight.
    #[error("{0} columns, expected two vertex IDs, and a weight or none")]
    TooManyColumns(usize),
    /// A line of an edge list is one word.
    #[error("{0} is one column, expected two vertex IDs")]
    OneColumn(Excerpt),
    /// Names of columns do not match the columns.
    #[error("{names} column names for {found} columns")]
    NamesMismatch {
        /// Names.
        names: usize,
        /// Columns.
        found: usize,
    },
    /// Names of columns do not determine source, target and weight.
    #[error("column names {0} do not determine source, target and weight")]
    UnknownColumns(Excerpt),
    /// Columns without names, and more than three.
    #[error(
        "{line} has {columns} columns without names: the third may be a weight, a time or a \
         neighbour"
    )]
    UnnamedColumns {
        /// The line.
        line: Excerpt,
        /// Columns.
        columns: usize,
    },
    /// Three columns may be an edge with its weight, or a vertex with two neighbours.
    #[error("{0} is either SOURCE TARGET WEIGHT or VERTEX NEIGHBOUR NEIGHBOUR")]
    WeightsOrNeighbours(Excerpt),
    /// The first line may state vertices and edges, or be an edge.
    #[error(
        "\"{first} {second}\" is either an edge or a header of {first} vertices and {second} \
         edges; {edges} lines follow"
    )]
    CountsOrEdge {
        /// First number.
        first: u64,
        /// Second number.
        second: u64,
        /// Edges after the line.
        edges: u64,
    },
    /// Both a comma or semicolon and a blank separate numbers.
    #[error("{0} between commas or semicolons: the separator of columns is ambiguous")]
    MixedSeparators(Excerpt),
    /// A weight has a comma.
    #[error("weight {0} has a decimal comma")]
    DecimalComma(Excerpt),
    /// Edges differ in the column that states whether they have a direction.
    #[error("type {0} differs from the first edge: a graph is directed or not")]
    MixedDirections(Excerpt),
    /// `--compact` does not suit two ranges of IDs.
    #[error("bipartite: sources and targets have IDs of their own, which --compact would mix")]
    BipartiteCompact,
    /// Values of a matrix cannot be weights.
    #[error("values of a {0} matrix cannot be weights")]
    NoWeights(&'static str),
    /// Weights may be real numbers or integers.
    #[error("weights are either real numbers such as {real} or integers such as {integer}")]
    RealOrInteger {
        /// First weight as a real number.
        real: f64,
        /// First weight as an integer.
        integer: u64,
    },
    /// A word follows the last field of a line.
    #[error("expected the end of the line, found {0}")]
    TrailingWord(Excerpt),
    /// A line ends before the weight.
    #[error("missing weight")]
    MissingWeight,
    /// A weight is not positive.
    #[error("weight {0}: weights must be above 0")]
    NotPositive(Excerpt),
    /// A weight has a fraction.
    #[error("weight {0} is not an integer")]
    FractionalWeight(Excerpt),
    /// A scaled weight is rounded to 0.
    #[error("weight {weight} times {scale} is rounded to 0")]
    WeightRoundedToZero {
        /// Weight in the file.
        weight: Excerpt,
        /// Scale factor.
        scale: f64,
    },
    /// A weight exceeds the integer width.
    #[error("weight {0} is too large for the integer width")]
    WeightTooLarge(u64),
    /// A binary weight is out of range.
    #[error("weight {weight}: weights must be above 0 and below {limit}")]
    WeightOutOfRange {
        /// Weight in the file.
        weight: u64,
        /// Exclusive upper bound.
        limit: u64,
    },
    /// A vertex ID is out of range.
    #[error("vertex {id} in a graph of {vertices} vertices")]
    VertexOutOfRange {
        /// Vertex ID.
        id: u64,
        /// Vertices of the graph.
        vertices: u64,
    },
    /// A vertex ID is out of range in a format that counts from 1.
    #[error("vertex {id} in a graph of {vertices} vertices, counted from 1")]
    OneBasedVertexOutOfRange {
        /// Vertex ID.
        id: u64,
        /// Vertices of the graph.
        vertices: u64,
    },
    /// A vertex ID exceeds the integer width.
    #[error("vertex {id} exceeds {bits} bits")]
    VertexTooLarge {
        /// Vertex ID.
        id: u64,
        /// Integer width.
        bits: u32,
    },
    /// A binary number exceeds the integer width.
    #[error("{0} exceeds 32 bits")]
    NumberTooWide(u64),
    /// An edge names a vertex that the vertex file lacks.
    #[error("vertex {0} does not occur in the vertex file")]
    UnknownVertex(u64),
    /// The vertex file names a vertex twice.
    #[error("names a vertex twice")]
    DuplicateVertex,
    /// The graph has no vertices.
    #[error("no vertices")]
    NoVertices,
    /// An edge list has no edges, and nothing else states its vertices.
    #[error("no vertices")]
    EmptyList,
    /// The vertices exceed what the size of the file justifies.
    #[error("{vertices} vertices in {bytes} bytes are implausible")]
    ImplausibleVertices {
        /// Vertices.
        vertices: u64,
        /// Size of the text in bytes.
        bytes: u64,
        /// Whether the format supports `--compact`.
        can_compact: bool,
    },
    /// The file has more vertices than `--vertices`.
    #[error("the file has {stated} vertices, more than --vertices {requested}")]
    MoreVertices {
        /// Vertices in the file.
        stated: u64,
        /// Value of `--vertices`.
        requested: u64,
    },
    /// The format counts at most a fixed number of vertices.
    #[error("{vertices} vertices: the format counts at most {limit}")]
    TooManyVertices {
        /// Vertices in the header.
        vertices: u64,
        /// Limit of the format.
        limit: u64,
    },
    /// A matrix is not square.
    #[error("{rows} rows and {columns} columns: the matrix of a graph is square")]
    NotSquare {
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
    },
    /// A count in the header exceeds the size of the file.
    #[error("{count} {what} do not fit into {bytes} bytes")]
    CountTooLarge {
        /// Counted items.
        what: &'static str,
        /// Count in the header.
        count: u64,
        /// Size of the text in bytes.
        bytes: u64,
    },
    /// A count in the header differs from the content.
    #[error("the header states {stated} {what}, the file has {found}")]
    CountMismatch {
        /// Counted items.
        what: &'static str,
        /// Count in the header.
        stated: u64,
        /// Count in the content.
        found: u64,
    },
    /// The content has more lines than the header states vertices.
    #[error("the header states {0} vertices, the file has more lines")]
    TooManyLines(u64),
    /// The neighbours in a METIS file do not match its edges.
    #[error("{edges} edges require twice as many neighbours, the file has {found}")]
    NeighbourMismatch {
        /// Edges in the header.
        edges: u64,
        /// Neighbours in the lines.
        found: u64,
    },
    /// An undirected edge is in one row only, or with two weights.
    #[error("undirected edges must be in the rows of both vertices with one weight; some are not")]
    Asymmetric,
    /// The rows of the other direction hold other edges.
    #[error("the incoming edges are not the transpose of the outgoing edges")]
    NotTranspose,
    /// A field or symmetry of Matrix Market is not supported.
    #[error("unsupported {what} {found:?}: expected {expected}")]
    Unsupported {
        /// Category of the word.
        what: &'static str,
        /// Word in the file.
        found: String,
        /// Supported words.
        expected: &'static str,
    },
    /// A number in a header has an unsupported value.
    #[error("unsupported {what} {found}: expected {expected}")]
    UnsupportedNumber {
        /// Category of the number.
        what: &'static str,
        /// Number in the file.
        found: u64,
        /// Supported numbers.
        expected: &'static str,
    },
    /// The file does not start with the magic bytes of the native format.
    #[error("not a hpg file")]
    NotNative,
    /// The size of a file does not match its header.
    #[error(
        "{vertices} vertices and {edges} edges take {} bytes, the file has {found}",
        expected.map_or("more than 2^64".to_owned(), |bytes| bytes.to_string())
    )]
    SizeMismatch {
        /// Vertices in the header.
        vertices: u64,
        /// Edges in the header.
        edges: u64,
        /// Size by the header; `None` beyond 2^64.
        expected: Option<u64>,
        /// Size of the file.
        found: u64,
    },
    /// The length of a section does not match the header.
    #[error("section of {found} bytes, expected {expected}")]
    SectionLength {
        /// Length in the section table.
        found: u64,
        /// Length by vertices and edges.
        expected: u64,
    },
    /// A section does not follow the one before it.
    #[error("section at byte {found}, expected {expected}")]
    SectionStart {
        /// Start in the section table.
        found: u64,
        /// Start after the section before.
        expected: u64,
    },
    /// The file ends inside a section or record.
    #[error("the file ends, expected {expected} bytes")]
    Truncated {
        /// End of the section or record.
        expected: u64,
    },
    /// Bytes follow the last section.
    #[error("{0} bytes follow the last section")]
    TrailingBytes(u64),
    /// A checksum does not match.
    #[error("checksum mismatch: the {0} are damaged")]
    Checksum(&'static str),
    /// The first offset is not 0.
    #[error("the first offset is {0}, expected 0")]
    FirstOffset(u64),
    /// An offset is less than the one before it.
    #[error("offset {offset} follows {previous}")]
    OffsetDecreases {
        /// Offset.
        offset: u64,
        /// Offset before it.
        previous: u64,
    },
    /// The last offset is not the number of edges.
    #[error("the last offset is {offset}, expected {edges} edges")]
    LastOffset {
        /// Offset.
        offset: u64,
        /// Edges in the header.
        edges: u64,
    },
    /// `--compact` does not suit the format.
    #[error("--compact is for el and wel: the IDs of {0} have no gaps")]
    CompactUnsupported(Format),
    /// `--columns` or `--skip-lines` do not suit the format.
    #[error("--columns and --skip-lines are for el and wel, not for {0}")]
    ColumnsUnsupported(Format),
    /// `--vertices` does not suit the format.
    #[error("--vertices is for el, wel, mtx and dimacs: {0} states its vertices")]
    VerticesUnsupported(Format),
    /// `--vertices` contradicts `--compact`.
    #[error("--vertices {0} contradicts --compact, which counts the vertices that have edges")]
    VerticesWithCompact(u64),
    /// `--scale-weights` does not suit the format.
    #[error("--scale-weights is for text: the weights of {0} are integers")]
    ScaleUnsupported(Format),
    /// `--scale-weights` is not a positive number.
    #[error("--scale-weights requires a number above 0")]
    InvalidScale,
    /// `--scale-weights` is set, and the file has no weights.
    #[error("no weights for --scale-weights")]
    ScaleWithoutWeights,
}
