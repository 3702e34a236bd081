//! Graphs from files.
//!
//! Text is parsed once, by all threads, into an edge list as compact as the vertex IDs of the
//! graph. Binary files that contain rows are read into the arrays of the graph, checked and used in
//! place. Each count of a header is checked against the file size before its memory is allocated.
//! Each error names the file and the line or byte.

mod columns;
mod comments;
mod compression;
mod dimacs;
mod direction;
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
mod tar;
mod text;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hugepilot_units::Bytes;

pub use self::compression::Compression;
use self::compression::decompressed;
pub use self::direction::DirectionCause;
use self::direction::{Directedness, Half, symmetry};
use self::file_blocks::{FileBlocks, whole};
pub use self::ids::Ids;
pub use self::load_mode::LoadMode;
pub use self::options::LoadOptions;
use self::text::{Text, UTF8_MARK};
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
    /// Vertex IDs of the file.
    pub ids: Ids,
    /// Vertices whose IDs do not occur in an edge list, if they are a quarter of all or more, or if
    /// the file states the number of the others.
    pub unused_ids: Option<u64>,
    /// Interpretation of the file.
    pub reading: Reading,
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

/// Interpretation of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Role of each column of an edge list, `-` if it is ignored; empty for other formats.
    pub columns: Vec<&'static str>,
    /// Whether the first line of an edge list states vertices and edges.
    pub count_line: bool,
    /// Sources of a bipartite graph, before its targets.
    pub sources: Option<u64>,
    /// Cause of the directions.
    pub direction: DirectionCause,
    /// Counts that the comments of an edge list state, and that differ from its edges.
    pub differences: Vec<StatedCount>,
}

/// Count in the comments of a file that differs from its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedCount {
    /// `vertices` or `edges`.
    pub what: &'static str,
    /// Count in the comments.
    pub stated: u64,
    /// Count in the content.
    pub found: u64,
}

/// Graph from a file, without the properties of the file.
struct FileGraph<V: Width> {
    graph: Graph<V>,
    ids: Ids,
    unused_ids: Option<u64>,
    reading: Reading,
    peak: Bytes,
    build: Duration,
}

/// Edge list in memory.
trait ListSource: EdgeSource {
    /// Returns the memory in use.
    fn bytes(&self) -> u64;
}

impl<S: ListSource> ListSource for Half<'_, S> {
    fn bytes(&self) -> u64 {
        self.source.bytes()
    }
}

impl<V: Width> FileGraph<V> {
    fn new(graph: Graph<V>, peak: Bytes, build: Duration, direction: DirectionCause) -> Self {
        let reading = Reading { direction, ..Reading::default() };
        Self { graph, ids: Ids::default(), unused_ids: None, reading, peak, build }
    }

    /// Builds the graph of an edge list.
    fn of_list(
        list: &impl ListSource,
        directedness: Directedness,
        ids: Ids,
        options: &LoadOptions<'_>,
    ) -> Result<Self> {
        let mut loops = None;
        let (directed, cause) = directedness.decide(options, || {
            let symmetry = symmetry(list, options.build.pool);
            loops = Some(symmetry.loops);
            symmetry.is_symmetric()
        });
        match loops.filter(|_| !directed) {
            Some(loops) => {
                let half = Half { source: list, loops };
                Self::decided(&half, false, cause, ids, options)
            }
            None => Self::decided(list, directed, cause, ids, options),
        }
    }

    /// Builds the graph of an edge list whose directions are decided.
    fn decided(
        list: &impl ListSource,
        directed: bool,
        cause: DirectionCause,
        ids: Ids,
        options: &LoadOptions<'_>,
    ) -> Result<Self> {
        let build = Build { directed, ..options.build };
        let beside = list.bytes() + 8 * ids.listed().map_or(0, |ids| ids.len() as u64);
        let peak = build.peak::<V>(list) + Bytes::new(beside);
        options.begin(list.vertices(), peak)?;
        let begin = Instant::now();
        let graph = build.graph(list)?;
        Ok(Self { ids, ..Self::new(graph, peak, begin.elapsed(), cause) })
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
    let FileGraph { graph, ids, unused_ids, reading, peak, build } = graph;
    let (file, read) = (Bytes::new(bytes), begin.elapsed().saturating_sub(build));
    let loaded = LoadedGraph {
        graph,
        ids,
        unused_ids,
        reading,
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
    let mut text = open(file, compression, None)?;
    let ahead = if compression.is_some() { text.ahead()? } else { &head };
    if is_utf16(ahead) {
        return Err(whole(file.path(), LoadFault::Utf16));
    }
    let is_archive = tar::is_archive(ahead);
    let named = match options.member {
        None if is_archive => {
            let names = tar::names(decompressed(file.stream(), compression, file.len()));
            let names = names.map_err(|error| file.io(error))?;
            return Err(whole(file.path(), LoadFault::Archive(names)));
        }
        None => named,
        Some(_) if !is_archive => return Err(whole(file.path(), LoadFault::NotArchive)),
        Some(member) => {
            text = open(file, compression, options.member)?;
            Format::of_name(Path::new(member))
        }
    };
    let is_stored = compression.is_none() && options.member.is_none();
    let stored = (is_stored && !head.starts_with(UTF8_MARK)).then_some((&head[..], file.len()));
    let format = match options.format {
        Some(format) => format,
        None => detect(&mut text, stored, named)?,
    };
    options.check(file.path(), format)?;
    (report.format, report.compression) = (format, compression);
    report.add(file);
    if !is_stored && !format.is_text() {
        return Err(whole(file.path(), LoadFault::CompressedBinary(format)));
    }
    let (text, len) = (&mut text, max_text_len(file, is_stored));
    match format {
        Format::EdgeList | Format::WeightedEdgeList => {
            let len = is_stored.then_some(file.len());
            // A weight in an edge list by its name is read, too.
            let is_stated = options.format.is_some() || format == Format::WeightedEdgeList;
            let weighted = is_stated.then_some(format == Format::WeightedEdgeList);
            let (graph, weighted) = edge_list::load(text, weighted, len, options)?;
            report.format = if weighted { Format::WeightedEdgeList } else { Format::EdgeList };
            Ok(graph)
        }
        Format::MatrixMarket => matrix::load(text, len, options),
        Format::Dimacs => dimacs::load(text, len, options),
        Format::Metis => metis::load(|| open(file, compression, options.member), len, options),
        Format::Ldbc if options.member.is_some() => {
            Err(whole(file.path(), LoadFault::CompressedBinary(format)))
        }
        Format::Ldbc => ldbc_pair(file, options, report),
        Format::Gap | Format::WeightedGap => {
            gap::load(file, format == Format::WeightedGap, options)
        }
        Format::Galois | Format::Galois64 => galois::load(file, options),
        Format::Native => native::load(file, options),
        Format::FourFiles => four_files::load(file.path(), options, report),
    }
}

/// Opens the text of a file, or of a member of an archive.
fn open<'a>(
    file: &'a FileBlocks<'_>,
    compression: Option<Compression>,
    member: Option<&str>,
) -> Result<Text<'a>> {
    let mut input = decompressed(file.stream(), compression, file.len());
    if let Some(name) = member {
        let found = tar::member(input, name).map_err(|error| file.io(error))?;
        let missing = || whole(file.path(), LoadFault::NoMember(name.to_owned()));
        input = found.ok_or_else(missing)?;
    }
    Ok(Text::new(file.path(), input))
}

/// Whether text starts with a byte order mark of UTF-16. No binary format does.
fn is_utf16(head: &[u8]) -> bool {
    [b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| head.starts_with(*mark))
}

/// Returns an upper bound on the text of a file: gzip compresses to a thousandth at most.
fn max_text_len(file: &FileBlocks<'_>, is_stored: bool) -> u64 {
    file.len().saturating_mul(if is_stored { 1 } else { 1000 })
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
    let mut this_text = open(file, report.compression, None)?;
    let mut other_text = open(&other, Compression::of_head(&head), None)?;
    let name = PathBuf::from(file.path());
    let is_edges =
        name.to_string_lossy().trim_end_matches(".gz").trim_end_matches(".zst").ends_with(".e");
    if is_edges {
        ldbc::load(&mut other_text, &mut this_text, options)
    } else {
        ldbc::load(&mut this_text, &mut other_text, options)
    }
}

/// Detects the format, by the first bytes and the length of a file that is stored as it is.
fn detect(
    text: &mut Text<'_>,
    stored: Option<(&[u8], u64)>,
    named: Option<Format>,
) -> Result<Format> {
    let (head, len) = match stored {
        Some(stored) => stored,
        None => (text.ahead()?, u64::MAX),
    };
    match (Format::of_head(head, len), named) {
        (Some(certain), _) | (None, Some(certain)) => Ok(certain),
        (None, None) if columns::is_likely(text.sample(columns::COMMENTS)?) => Ok(Format::EdgeList),
        (None, None) => Err(whole(text.path(), LoadFault::UnknownFormat)),
    }
}

/// Parses exactly `N` numbers.
fn sizes<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}
