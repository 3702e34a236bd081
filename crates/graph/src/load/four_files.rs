//! The four files of the papers on page sizes (Manocha and others, IISWC'22): the numbers of vertices and edges as text, and
//! offsets, ends and weights, of 4 bytes each, or offsets and ends of 8 where there are many edges.

use std::path::{Path, PathBuf};

use super::blocks::{FileBlocks, whole};
use super::options::LoadOptions;
use super::records::Records;
use super::rows::{self, Direction, Layout, Weights};
use super::text::at_line;
use super::{FileGraph, Report, sizes};
use crate::format::FOUR;
use crate::{Result, Width};

/// More edges than this, and offsets and ends have 8 bytes.
pub(crate) const MOST_NARROW: u64 = 4_094_967_295;

/// The directory that is meant, by itself or by its first file.
pub(super) fn directory(path: &Path) -> PathBuf {
    if path.is_dir() { path.to_owned() } else { path.parent().unwrap_or(Path::new("")).to_owned() }
}

/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of building.
pub(super) fn load<V: Width>(
    path: &Path,
    options: &LoadOptions<'_>,
    report: &mut Report,
) -> Result<FileGraph<V>> {
    let directory = directory(path);
    if path.is_dir() && !directory.join(FOUR[0]).exists() {
        let what = format!("is a directory, and {} is not in it, as in one of four-files", FOUR[0]);
        return Err(whole(path, what));
    }
    let open =
        |name: &str| FileBlocks::open(&directory.join(name), options.load_mode, options.progress);
    let numbers = open(FOUR[0])?;
    if numbers.len() > 4096 {
        return Err(whole(numbers.path(), "is longer than two numbers are"));
    }
    let mut reader = numbers.reader();
    let text = String::from_utf8_lossy(reader.bytes(0, numbers.len() as usize)?).into_owned();
    let Some([vertices, edges]) = sizes(&text) else {
        return Err(at_line(numbers.path(), 1, "should be two numbers, of vertices and edges"));
    };
    if vertices == 0 {
        return Err(at_line(numbers.path(), 1, "no vertices"));
    }
    let width = if edges <= MOST_NARROW { 4 } else { 8 };
    let [offsets, ends] = [open(FOUR[1])?, open(FOUR[2])?];
    let values = if directory.join(FOUR[3]).exists() { Some(open(FOUR[3])?) } else { None };
    let fits = |file: &FileBlocks<'_>, count: Option<u64>, width: u64| {
        let wanted = count.and_then(|count| count.checked_mul(width));
        if wanted == Some(file.len()) {
            return Ok(());
        }
        let wanted = wanted.map_or("more than 2^64".to_owned(), |wanted| wanted.to_string());
        let what = format!(
            "has {} bytes, {vertices} vertices and {edges} edges take {wanted}",
            file.len()
        );
        Err(whole(file.path(), what))
    };
    fits(&offsets, vertices.checked_add(1), width)?;
    fits(&ends, Some(edges), width)?;
    if let Some(values) = &values {
        fits(values, Some(edges), 4)?;
    }
    for file in [Some(&numbers), Some(&offsets), Some(&ends), values.as_ref()].into_iter().flatten()
    {
        report.saw(file);
    }
    let weights = values.as_ref().filter(|_| !options.ignore_weights);
    let layout = Layout {
        vertices,
        edges,
        offsets: Records::of(&offsets, 0, width as usize),
        first_omitted: false,
        ends: Records::of(&ends, 0, width as usize),
        weights: weights.map(|values| Weights::Apart(Records::of(values, 0, 4))),
        signed: true,
        sums: None,
    };
    let made = rows::load(&layout, None, Direction::Unsaid, options);
    report.load_mode = offsets.load_mode();
    made
}
