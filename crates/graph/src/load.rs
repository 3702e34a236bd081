//! Graphs from files.
//!
//! Text is parsed once, by all threads, into a list of edges as compact as the graph's own numbers; a binary file that has rows
//! ready is read into the arrays of the graph, checked, and used as it is. Every figure in a header is held against the length
//! of the file before memory is taken for it, and every error names the file and the line or the byte.

mod blocks;
mod compression;
mod dimacs;
mod edge_list;
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

use self::blocks::{FileBlocks, whole};
pub use self::compression::Compression;
use self::compression::unpacked;
pub use self::ids::Ids;
pub use self::load_mode::LoadMode;
pub use self::options::LoadOptions;
use self::text::Text;
use crate::{Build, EdgeSource, Format, Graph, Result, Width};

/// Told how many bytes of a file are read, of how many, from whichever thread read them; where there are several files, of one
/// after the other.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// A graph from a file, and how it was got.
#[derive(Debug)]
pub struct LoadedGraph<V: Width> {
    /// The graph.
    pub graph: Graph<V>,
    /// The numbers that the file gives its vertices, where they are counted anew.
    pub ids: Option<Ids>,
    /// What the file looked like.
    pub format: Format,
    /// What it was packed by.
    pub packed: Option<Compression>,
    /// How it was really read: dropped, where `O_DIRECT` was asked for and not to be had.
    pub load_mode: LoadMode,
    /// How long the file is, or all of them.
    pub file: Bytes,
    /// Memory that building could take at its peak.
    pub peak: Bytes,
    /// How long it took to read, check and parse the file.
    pub read: Duration,
    /// How long it took to build what the file has not ready: rows, or the transpose.
    pub build: Duration,
}

/// What a file came to.
struct FileGraph<V: Width> {
    graph: Graph<V>,
    ids: Option<Ids>,
    peak: Bytes,
    build: Duration,
}

/// Edges in memory.
trait ListSource: EdgeSource {
    /// What they take.
    fn bytes(&self) -> u64;
}

impl<V: Width> FileGraph<V> {
    fn of_list(
        list: impl ListSource,
        directed: bool,
        ids: Option<Ids>,
        options: &LoadOptions<'_>,
    ) -> Result<Self> {
        let build = Build { directed, ..options.build };
        let beside = list.bytes() + 8 * ids.as_ref().map_or(0, |ids| ids.len() as u64);
        let peak = build.peak::<V>(&list) + Bytes::new(beside);
        options.begin(list.vertices(), peak)?;
        let begin = Instant::now();
        Ok(Self { graph: build.graph(&list)?, ids, peak, build: begin.elapsed() })
    }
}

/// What was read.
struct Report {
    format: Format,
    packed: Option<Compression>,
    load_mode: LoadMode,
    file: u64,
}

impl Report {
    fn saw(&mut self, file: &FileBlocks<'_>) {
        self.file += file.len();
        self.load_mode = file.load_mode();
    }
}

/// Loads a graph: of a file by its contents, and by its name where these leave it open.
///
/// # Errors
/// [`GraphError::Io`](crate::GraphError::Io) for what cannot be read, [`GraphError::Format`](crate::GraphError::Format) for
/// what is wrong in it, with the place; [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory) before more memory is taken than is
/// available; and those of [`Build::graph`].
pub fn load<V: Width>(path: impl AsRef<Path>, options: &LoadOptions<'_>) -> Result<LoadedGraph<V>> {
    let (path, begin) = (path.as_ref(), Instant::now());
    let mut report =
        Report { format: Format::FourFiles, packed: None, load_mode: options.load_mode, file: 0 };
    let named = Format::of_name(path);
    let four = path.is_dir() || named == Some(Format::FourFiles);
    let made = if options.format.map_or(four, |format| format == Format::FourFiles) {
        options.check(path, Format::FourFiles)?;
        four_files::load(path, options, &mut report)?
    } else {
        let file = FileBlocks::open(path, options.load_mode, options.progress)?;
        let made = of_file(&file, named, options, &mut report)?;
        report.load_mode = file.load_mode();
        made
    };
    let Report { format, packed, load_mode, file } = report;
    let FileGraph { graph, ids, peak, build } = made;
    let read = begin.elapsed().saturating_sub(build);
    Ok(LoadedGraph {
        graph,
        ids,
        format,
        packed,
        load_mode,
        file: Bytes::new(file),
        peak,
        read,
        build,
    })
}

fn of_file<V: Width>(
    file: &FileBlocks<'_>,
    named: Option<Format>,
    options: &LoadOptions<'_>,
    report: &mut Report,
) -> Result<FileGraph<V>> {
    let head = file.reader().bytes(0, file.len().min(4096) as usize)?.to_vec();
    if let Some(packer) = Compression::unknown(&head) {
        let what =
            format!("is packed by {packer}; unpack it first (text may be packed by gzip or zstd)");
        return Err(whole(file.path(), what));
    }
    let packed = Compression::of_head(&head);
    let mut text = open(file, packed);
    if is_marked(if packed.is_some() { text.ahead()? } else { &head }) {
        return Err(whole(
            file.path(),
            "begins with a byte order mark; save it as UTF-8 without one",
        ));
    }
    let format = match options.format {
        Some(format) => format,
        None => {
            let (head, len) =
                if packed.is_some() { (text.ahead()?, u64::MAX) } else { (&head[..], file.len()) };
            match (Format::of_head(head, len), named) {
                (Some(sure), _) => sure,
                (None, None | Some(Format::EdgeList)) => sniff(&mut text, named)?,
                (None, Some(named)) => named,
            }
        }
    };
    options.check(file.path(), format)?;
    (report.format, report.packed) = (format, packed);
    report.saw(file);
    if packed.is_some() && !format.is_text() {
        return Err(whole(
            file.path(),
            format!("is packed; unpack it first, as {format} is read in place"),
        ));
    }
    let text = &mut text;
    match format {
        Format::EdgeList | Format::WeightedEdgeList => {
            let len = packed.is_none().then_some(file.len());
            edge_list::load(text, format == Format::WeightedEdgeList, len, options)
        }
        Format::MatrixMarket => matrix::load(text, length(file, packed), options),
        Format::Dimacs => dimacs::load(text, length(file, packed), options),
        Format::Metis => metis::load(|| open(file, packed), length(file, packed), options),
        Format::Ldbc => pair(file, options, report),
        Format::Gap | Format::WeightedGap => {
            gap::load(file, format == Format::WeightedGap, options)
        }
        Format::Galois | Format::Galois64 => galois::load(file, options),
        Format::Native => native::load(file, options),
        Format::FourFiles => four_files::load(file.path(), options, report),
    }
}

fn open<'a>(file: &'a FileBlocks<'_>, packed: Option<Compression>) -> Text<'a> {
    Text::new(file.path(), unpacked(file.stream(), packed, file.len()))
}

/// Whether a text begins with a mark of UTF-8 or UTF-16. No binary format begins so.
fn is_marked(head: &[u8]) -> bool {
    [&b"\xef\xbb\xbf"[..], b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| head.starts_with(mark))
}

/// How long the text of a file can be: gzip packs to a thousandth at most.
fn length(file: &FileBlocks<'_>, packed: Option<Compression>) -> u64 {
    file.len().saturating_mul(if packed.is_some() { 1000 } else { 1 })
}

fn pair<V: Width>(
    file: &FileBlocks<'_>,
    options: &LoadOptions<'_>,
    report: &mut Report,
) -> Result<FileGraph<V>> {
    let Some(other) = ldbc::other(file.path()) else {
        return Err(whole(file.path(), "is one of a pair whose names end in .v and .e"));
    };
    let other = FileBlocks::open(&other, options.load_mode, options.progress)?;
    report.saw(&other);
    let head = other.reader().bytes(0, other.len().min(4096) as usize)?.to_vec();
    let [mut own, mut others] =
        [open(file, report.packed), open(&other, Compression::of_head(&head))];
    let name = PathBuf::from(file.path());
    let is_edges =
        name.to_string_lossy().trim_end_matches(".gz").trim_end_matches(".zst").ends_with(".e");
    if is_edges {
        ldbc::load(&mut others, &mut own, options)
    } else {
        ldbc::load(&mut own, &mut others, options)
    }
}

/// Which list of edges a text is that is called like one, or like nothing.
fn sniff(text: &mut Text<'_>, named: Option<Format>) -> Result<Format> {
    let path = text.path().to_owned();
    let is_el = path.file_name().is_some_and(|name| name.to_string_lossy().contains(".el"));
    if let Some(named) = named.filter(|_| is_el) {
        return Ok(named);
    }
    let head = text.told(edge_list::COMMENTS)?;
    if edge_list::is_likely(head) {
        let weighted = edge_list::look(head).columns == 3;
        return Ok(if weighted { Format::WeightedEdgeList } else { Format::EdgeList });
    }
    named.ok_or_else(|| {
        whole(
            &path,
            "looks like no format there is; --format says which it is, --help which there are",
        )
    })
}

/// So many numbers, and nothing else.
fn sizes<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}
