//! Graphs from files.
//!
//! Text is parsed once, by all threads, into an edge list as compact as the vertex IDs of the
//! graph. Binary files that contain rows are read into the arrays of the graph, checked and used in
//! place. Each count of a header is checked against the file size before its memory is allocated.
//! Each error names the file and the line or byte.

mod compression;
mod dimacs;
mod edge_list;
mod file_blocks;
pub(crate) mod four_files;
mod galois;
mod gap;
mod ids;
mod ldbc;
mod list;
mod load_mode;
mod matrix;
mod metis;
mod native;
mod number;
mod options;
mod records;
mod rows;
mod symmetry;
mod text;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hugepilot_units::Bytes;

pub use self::compression::Compression;
use self::compression::decompressed;
use self::file_blocks::{FileBlocks, whole};
pub use self::ids::Ids;
pub use self::load_mode::LoadMode;
pub use self::options::LoadOptions;
use self::text::Text;
use crate::error::LoadFault;
use crate::{Build, EdgeSource, Format, Graph, Result, Width};

/// Callback with the bytes read and the size of the file, from any thread. Several files are
/// reported one after the other.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Graph from a file.
#[derive(Debug)]
pub struct LoadedGraph<V: Width> {
    /// Graph.
    pub graph: Graph<V>,
    /// Vertex IDs of the file, if they differ from those of the graph.
    pub ids: Option<Ids>,
    /// Vertices whose IDs do not occur in an edge list, if they are a quarter of all or more.
    pub unused_ids: Option<u64>,
    /// Format of the file.
    pub format: Format,
    /// Compression of the file.
    pub compression: Option<Compression>,
    /// Load mode in effect: `Drop` if `O_DIRECT` is unsupported.
    pub load_mode: LoadMode,
    /// Size of the file, or of all files.
    pub file: Bytes,
    /// Upper bound on the memory of the build.
    pub peak: Bytes,
    /// Time to read, check and parse the file.
    pub read: Duration,
    /// Time to build the rows or the transpose that the file lacks.
    pub build: Duration,
}

/// Graph from a file, without the properties of the file.
struct FileGraph<V: Width> {
    graph: Graph<V>,
    ids: Option<Ids>,
    unused_ids: Option<u64>,
    peak: Bytes,
    build: Duration,
}

/// Edge list in memory.
trait ListSource: EdgeSource {
    /// Returns the memory in use.
    fn bytes(&self) -> u64;
}

impl<V: Width> FileGraph<V> {
    fn new(graph: Graph<V>, peak: Bytes, build: Duration) -> Self {
        Self { graph, ids: None, unused_ids: None, peak, build }
    }

    /// Builds the graph of an edge list.
    fn of_list(
        list: &impl ListSource,
        directed: bool,
        ids: Option<Ids>,
        options: &LoadOptions<'_>,
    ) -> Result<Self> {
        let build = Build { directed, ..options.build };
        let beside = list.bytes() + 8 * ids.as_ref().map_or(0, |ids| ids.len() as u64);
        let peak = build.peak::<V>(list) + Bytes::new(beside);
        options.begin(list.vertices(), peak)?;
        let begin = Instant::now();
        let graph = build.graph(list)?;
        Ok(Self { ids, ..Self::new(graph, peak, begin.elapsed()) })
    }
}

/// Properties of the files of a graph.
struct FileReport {
    format: Format,
    compression: Option<Compression>,
    load_mode: LoadMode,
    bytes: u64,
}

impl FileReport {
    fn add(&mut self, file: &FileBlocks<'_>) {
        self.bytes += file.len();
        self.load_mode = file.load_mode();
    }
}

/// Loads a graph. Detects the format by content, and by name if the content is ambiguous.
///
/// # Errors
/// [`GraphError::Io`](crate::GraphError::Io) if a file cannot be read;
/// [`GraphError::Load`](crate::GraphError::Load) with the location of a fault;
/// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory) before the memory is
/// taken; and those of [`Build::graph`].
pub fn load<V: Width>(path: impl AsRef<Path>, options: &LoadOptions<'_>) -> Result<LoadedGraph<V>> {
    let (path, begin) = (path.as_ref(), Instant::now());
    let load_mode = options.load_mode;
    let mut report =
        FileReport { format: Format::FourFiles, compression: None, load_mode, bytes: 0 };
    let named = Format::of_name(path);
    let is_four = path.is_dir() || named == Some(Format::FourFiles);
    let graph = if options.format.map_or(is_four, |format| format == Format::FourFiles) {
        options.check(path, Format::FourFiles)?;
        four_files::load(path, options, &mut report)?
    } else {
        let file = FileBlocks::open(path, options.load_mode, options.progress)?;
        let graph = of_file(&file, named, options, &mut report)?;
        report.load_mode = file.load_mode();
        graph
    };
    let FileReport { format, compression, load_mode, bytes } = report;
    let FileGraph { graph, ids, unused_ids, peak, build } = graph;
    let (file, read) = (Bytes::new(bytes), begin.elapsed().saturating_sub(build));
    let loaded = LoadedGraph {
        graph,
        ids,
        unused_ids,
        format,
        compression,
        load_mode,
        file,
        peak,
        read,
        build,
    };
    Ok(loaded)
}

fn of_file<V: Width>(
    file: &FileBlocks<'_>,
    named: Option<Format>,
    options: &LoadOptions<'_>,
    report: &mut FileReport,
) -> Result<FileGraph<V>> {
    let head = file.reader().bytes(0, file.len().min(4096) as usize)?.to_vec();
    if let Some(compression) = Compression::unsupported(&head) {
        return Err(whole(file.path(), LoadFault::UnsupportedCompression(compression)));
    }
    let compression = Compression::of_head(&head);
    let mut text = open(file, compression);
    if is_marked(if compression.is_some() { text.ahead()? } else { &head }) {
        return Err(whole(file.path(), LoadFault::ByteOrderMark));
    }
    let format = match options.format {
        Some(format) => format,
        None => detect(&mut text, &head, file.len(), compression, named)?,
    };
    options.check(file.path(), format)?;
    (report.format, report.compression) = (format, compression);
    report.add(file);
    if compression.is_some() && !format.is_text() {
        return Err(whole(file.path(), LoadFault::CompressedBinary(format)));
    }
    let (text, len) = (&mut text, max_text_len(file, compression));
    match format {
        Format::EdgeList | Format::WeightedEdgeList => {
            let len = compression.is_none().then_some(file.len());
            edge_list::load(text, format == Format::WeightedEdgeList, len, options)
        }
        Format::MatrixMarket => matrix::load(text, len, options),
        Format::Dimacs => dimacs::load(text, len, options),
        Format::Metis => metis::load(|| open(file, compression), len, options),
        Format::Ldbc => ldbc_pair(file, options, report),
        Format::Gap | Format::WeightedGap => {
            gap::load(file, format == Format::WeightedGap, options)
        }
        Format::Galois | Format::Galois64 => galois::load(file, options),
        Format::Native => native::load(file, options),
        Format::FourFiles => four_files::load(file.path(), options, report),
    }
}

fn open<'a>(file: &'a FileBlocks<'_>, compression: Option<Compression>) -> Text<'a> {
    Text::new(file.path(), decompressed(file.stream(), compression, file.len()))
}

/// Whether text starts with a byte order mark of UTF-8 or UTF-16. No binary format does.
fn is_marked(head: &[u8]) -> bool {
    [&b"\xef\xbb\xbf"[..], b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| head.starts_with(mark))
}

/// Returns an upper bound on the text of a file: gzip compresses to a thousandth at most.
fn max_text_len(file: &FileBlocks<'_>, compression: Option<Compression>) -> u64 {
    file.len().saturating_mul(if compression.is_some() { 1000 } else { 1 })
}

fn ldbc_pair<V: Width>(
    file: &FileBlocks<'_>,
    options: &LoadOptions<'_>,
    report: &mut FileReport,
) -> Result<FileGraph<V>> {
    let Some(other) = ldbc::other(file.path()) else {
        return Err(whole(file.path(), LoadFault::NotLdbcPair));
    };
    let other = FileBlocks::open(&other, options.load_mode, options.progress)?;
    report.add(&other);
    let head = other.reader().bytes(0, other.len().min(4096) as usize)?.to_vec();
    let mut this_text = open(file, report.compression);
    let mut other_text = open(&other, Compression::of_head(&head));
    let name = PathBuf::from(file.path());
    let is_edges =
        name.to_string_lossy().trim_end_matches(".gz").trim_end_matches(".zst").ends_with(".e");
    if is_edges {
        ldbc::load(&mut other_text, &mut this_text, options)
    } else {
        ldbc::load(&mut this_text, &mut other_text, options)
    }
}

/// Detects the format of a file of `len` bytes.
fn detect(
    text: &mut Text<'_>,
    head: &[u8],
    len: u64,
    compression: Option<Compression>,
    named: Option<Format>,
) -> Result<Format> {
    let (head, len) = if compression.is_some() { (text.ahead()?, u64::MAX) } else { (head, len) };
    match (Format::of_head(head, len), named) {
        (Some(certain), _) => Ok(certain),
        (None, None | Some(Format::EdgeList)) => detect_list(text, named),
        (None, Some(named)) => Ok(named),
    }
}

/// Detects whether an edge list has weights, in a file without a name of another format.
fn detect_list(text: &mut Text<'_>, named: Option<Format>) -> Result<Format> {
    let path = text.path().to_owned();
    let is_el = path.file_name().is_some_and(|name| name.to_string_lossy().contains(".el"));
    if let Some(named) = named.filter(|_| is_el) {
        return Ok(named);
    }
    let head = text.ahead_to_content(edge_list::COMMENTS)?;
    if edge_list::is_likely(head) {
        let weighted = edge_list::columns(head).count == 3;
        return Ok(if weighted { Format::WeightedEdgeList } else { Format::EdgeList });
    }
    named.ok_or_else(|| whole(&path, LoadFault::UnknownFormat))
}

/// Parses exactly `N` numbers.
fn sizes<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}
