//! Columns of an edge list: the role of each field, by names or by the first lines.
//!
//! The sample yields a hypothesis, and the parser verifies it on every line. Two plausible readings
//! are an error with the flags that choose.

mod role;

use std::collections::BTreeSet;

use self::role::Role;
use crate::error::{Excerpt, LoadFault};

/// First bytes of comment lines.
pub(super) const COMMENTS: &[u8] = b"#%";
/// Lines of the sample at most.
const SAMPLE: usize = 1000;

/// Fields of each line of an edge list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Byte between fields; `None` for any blanks.
    pub(super) separator: Option<u8>,
    /// Fields of a line.
    pub(super) count: usize,
    pub(super) source: usize,
    pub(super) target: usize,
    pub(super) weight: Option<usize>,
    /// Column that is `Directed` or `Undirected`, and whether it is the former.
    pub(super) kind: Option<(usize, bool)>,
    /// Whether the last field is a dictionary of Python.
    pub(super) has_dictionary: bool,
    /// Whether fields have quotes.
    is_quoted: bool,
}

/// Beginning of an edge list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) columns: Columns,
    /// Whether the first line names the columns.
    pub(super) header: bool,
    /// Vertices and edges, if the first line has other columns than the lines after it.
    pub(super) counts: Option<[u64; 2]>,
    /// Whether the first line may state vertices and edges.
    pub(super) may_count: bool,
    /// Mean length of a line in bytes.
    pub(super) line: usize,
}

/// Statements of the user and of the comments of a file about its columns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stated<'a> {
    /// Names of the columns, separated by commas.
    pub(super) names: Option<&'a str>,
    /// Whether the third column is a weight.
    pub(super) weighted: Option<bool>,
    /// Whether the columns are those of KONECT: source, target, weight, time.
    pub(super) konect: bool,
    /// Whether the first line may state vertices and edges.
    pub(super) counts: bool,
}

impl Columns {
    /// Describes lines of source, target, and a weight that is read or skipped.
    pub(super) const fn plain(count: usize, weighted: bool) -> Self {
        let weight = if weighted { Some(2) } else { None };
        let (separator, kind, has_dictionary, is_quoted) = (None, None, false, false);
        Self { separator, count, source: 0, target: 1, weight, kind, has_dictionary, is_quoted }
    }

    /// Whether source, target and weight are the first fields, as numbers without quotes.
    pub(super) const fn is_plain(&self) -> bool {
        // A field between two tabs may be empty.
        let is_simple =
            !self.is_quoted && !self.has_dictionary && !matches!(self.separator, Some(b'\t'));
        let is_first = self.source == 0 && self.target == 1 && self.kind.is_none();
        is_simple && is_first && matches!(self.weight, None | Some(2))
    }

    /// Returns the role of each column, `-` for an ignored one.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let name = |at| match at {
            _ if at == self.source => "source",
            _ if at == self.target => "target",
            _ if Some(at) == self.weight => "weight",
            _ if self.kind.is_some_and(|(kind, _)| kind == at) => "type",
            _ => "-",
        };
        (0..self.count).map(name).collect()
    }

    /// Splits a line.
    pub(super) fn fields<'a>(&self, line: &'a [u8]) -> Fields<'a> {
        Fields { rest: Some(line), separator: self.separator }
    }
}

/// Fields of a line without their quotes. Between two separators, a field may be empty.
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: Option<u8>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.trim(self.rest?);
        if rest.starts_with(b"{") || (rest.is_empty() && self.separator.is_none()) {
            self.rest = None;
            return (!rest.is_empty()).then_some(rest);
        }
        let is_end = |byte: &u8| match self.separator {
            Some(separator) => *byte == separator,
            None => byte.is_ascii_whitespace(),
        };
        let quoted = rest.strip_prefix(b"\"").and_then(|text| memchr::memchr(b'"', text));
        let begin = quoted.map_or(0, |len| len + 2);
        let end = rest[begin..].iter().position(is_end).map(|len| begin + len);
        let field = self.trim(&rest[..end.unwrap_or(rest.len())]);
        self.rest = end.map(|end| &rest[end + 1..]);
        let inside = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\""));
        Some(inside.unwrap_or(field))
    }
}

impl Fields<'_> {
    /// Removes blanks that are not the separator.
    fn trim<'b>(&self, text: &'b [u8]) -> &'b [u8] {
        let kept = |byte: &u8| !byte.is_ascii_whitespace() || Some(*byte) == self.separator;
        let begin = text.iter().position(kept).unwrap_or(text.len());
        let end = text.iter().rposition(kept).map_or(begin, |last| last + 1);
        &text[begin..end]
    }
}

/// Returns the lines with content of a sample.
fn content(sample: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = (1..).zip(sample.split(|&byte| byte == b'\n'));
    lines.filter(|(_, line)| {
        line.trim_ascii_start().first().is_some_and(|byte| !COMMENTS.contains(byte))
    })
}

fn is_name(field: &[u8]) -> bool {
    field.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
}

fn is_number(field: &[u8]) -> bool {
    !field.is_empty() && field.iter().all(u8::is_ascii_digit)
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok().filter(|_| is_number(field))?.parse().ok()
}

/// Whether a line names columns: each field that is not empty starts with a letter or `_`.
fn is_header(fields: &[&[u8]]) -> bool {
    fields.iter().any(|field| is_name(field))
        && fields.iter().all(|field| field.is_empty() || is_name(field))
}

/// Finds the separator: by the second line, because the first may be another kind of line.
fn separator(first: &[u8], second: Option<&[u8]>) -> Option<u8> {
    let line = second.unwrap_or(first);
    let plain = line.split(|&byte| byte == b'{').next().unwrap_or_default();
    let marks = [b';', b','].into_iter().find(|mark| plain.contains(mark));
    // Names without gaps: a field between two tabs may be empty.
    let header: Vec<&[u8]> = first.split(|&byte| byte == b'\t').collect();
    marks.or_else(|| (header.len() > 1 && is_header(&header)).then_some(b'\t'))
}

/// Whether a sample may be an edge list: it starts with a number or with two or more names.
pub(super) fn is_likely(sample: &[u8]) -> bool {
    let mut lines = content(sample).map(|(_, line)| line);
    let Some(first) = lines.next() else { return false };
    let all = Fields { rest: Some(first), separator: separator(first, lines.next()) };
    let fields: Vec<_> = all.collect();
    fields[0].first().is_some_and(u8::is_ascii_digit) || fields.len() >= 2 && is_header(&fields)
}

/// Detects the columns by a sample of whole lines.
///
/// # Errors
/// A fault and its line in the sample.
pub(super) fn detect(sample: &[u8], stated: Stated<'_>) -> Result<Start, (u64, LoadFault)> {
    let breaks = sample.iter().filter(|&&byte| byte == b'\n').count();
    let line = (sample.len() / breaks.max(1)).max(1);
    let mut lines = content(sample).take(SAMPLE).collect::<Vec<_>>();
    let Some(&(_, first)) = lines.first() else {
        let (columns, header) = (Columns::plain(2, false), false);
        return Ok(Start { columns, header, counts: None, may_count: false, line });
    };
    let separator = separator(first, lines.get(1).map(|(_, line)| *line));
    let split = |line| Fields { rest: Some(line), separator }.collect::<Vec<&[u8]>>();
    let header = Some(split(first)).filter(|fields| is_header(fields));
    if header.is_some() {
        lines.remove(0);
    }
    let lines: Vec<Line<'_>> = lines.into_iter().map(|(at, line)| (at, split(line))).collect();
    let (counts, lines) = same_columns(&lines, stated)?;
    let own = stated.names.map(|names| names.split(',').map(str::as_bytes).collect());
    let mut columns = match (lines.first(), own.or_else(|| header.clone())) {
        (None, _) => Columns::plain(2, false),
        (Some((at, fields)), names) => {
            let columns = match (names, fields.iter().find(is_two_numbers)) {
                (_, Some(field)) => Err(LoadFault::MixedSeparators(Excerpt::new(field))),
                (Some(names), _) => named(&names, fields),
                (None, _) => unnamed(lines, stated),
            };
            columns.map_err(|fault| (*at, fault))?
        }
    };
    columns.separator = separator;
    columns.is_quoted = sample.contains(&b'"');
    let last = lines.first().and_then(|(_, fields)| fields.last());
    columns.has_dictionary = last.is_some_and(|field| field.starts_with(b"{"));
    let is_named = header.is_some() || stated.names.is_some();
    if is_named && stated.weighted == Some(true) && columns.weight.is_none() {
        let at = lines.first().map_or(1, |(at, _)| *at);
        let names = stated.names.map_or(first, str::as_bytes);
        return Err((at, LoadFault::UnknownColumns(Excerpt::new(names))));
    }
    if let (None, Some(weighted)) = (stated.names, stated.weighted) {
        columns.weight = weighted.then(|| columns.weight.unwrap_or(2));
        columns.count = columns.count.max(columns.weight.map_or(0, |weight| weight + 1));
    }
    Ok(Start { columns, header: header.is_some(), counts, may_count: stated.counts, line })
}

/// Line of a sample: its line number and fields.
type Line<'a> = (u64, Vec<&'a [u8]>);

/// Vertices and edges that the first line states, and the lines after it.
type Rows<'a, 'b> = (Option<[u64; 2]>, &'b [Line<'a>]);

/// Checks that all lines have the same number of columns. The first may state vertices and edges
/// instead: returns these, and the lines after it.
fn same_columns<'a, 'b>(
    lines: &'b [Line<'a>],
    stated: Stated<'_>,
) -> Result<Rows<'a, 'b>, (u64, LoadFault)> {
    let [(first_at, first), rest @ ..] = lines else { return Ok((None, lines)) };
    let is_whole = stated.weighted == Some(true) && first.len() > 2;
    let expected = stated.names.map(|names| names.split(',').count());
    let expected = expected.or(is_whole.then_some(first.len()));
    let expected = expected.or(rest.first().map(|(_, fields)| fields.len())).unwrap_or(first.len());
    let fault = |found| LoadFault::VaryingColumns { found, expected };
    if let Some((at, odd)) = rest.iter().find(|(_, fields)| fields.len() != expected) {
        return Err((*at, fault(odd.len())));
    }
    if first.len() == expected {
        return Ok((None, lines));
    }
    let counts: Option<Vec<u64>> = first.iter().map(|field| number(field)).collect();
    match counts.as_deref() {
        Some([vertices, edges] | [vertices, edges, 0 | 1]) if stated.counts => {
            Ok((Some([*vertices, *edges]), rest))
        }
        _ => Err((*first_at, fault(first.len()))),
    }
}

/// Whether a field is two numbers: another separator than expected stands between them.
fn is_two_numbers(field: &&&[u8]) -> bool {
    let words = field.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut numbers = words.map(|word| number(word).is_some());
    numbers.next() == Some(true) && numbers.next() == Some(true)
}

/// Assigns roles by names.
fn named(names: &[&[u8]], fields: &[&[u8]]) -> Result<Columns, LoadFault> {
    let (named, found) = (names.len(), fields.len());
    if named != found {
        return Err(LoadFault::NamesMismatch { names: named, found });
    }
    let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    let of = |role| (0..found).filter(|&at| Role::of(&names[at]) == role).collect::<Vec<_>>();
    let unknown = || Err(LoadFault::UnknownColumns(Excerpt::new(names.join(",").as_bytes())));
    let (source, target) = match (&of(Role::Source)[..], &of(Role::Target)[..]) {
        (&[source], &[target]) => (source, target),
        ([], []) => match of(Role::Unknown)[..] {
            [source, target] => (source, target),
            _ => return unknown(),
        },
        _ => return unknown(),
    };
    let weight = match of(Role::Weight)[..] {
        [] => None,
        [weight] => Some(weight),
        ref several => match several.iter().find(|&&at| names[at].eq_ignore_ascii_case("weight")) {
            Some(weight) => Some(*weight),
            None => return unknown(),
        },
    };
    let kind = of(Role::Kind).into_iter().find_map(|at| Some((at, is_directed(fields[at])?)));
    Ok(Columns { source, target, weight, kind, ..Columns::plain(found, false) })
}

/// Parses the direction of an edge.
pub(super) fn is_directed(field: &[u8]) -> Option<bool> {
    let is = |word: &[u8]| field.eq_ignore_ascii_case(word);
    if is(b"directed") { Some(true) } else { is(b"undirected").then_some(false) }
}

/// Assigns roles without names: source, target, and a third column as the weight.
fn unnamed(lines: &[Line<'_>], stated: Stated<'_>) -> Result<Columns, LoadFault> {
    let fields = &lines[0].1;
    let line = || Excerpt::new(&fields.join(&b' '));
    let is_stated = stated.konect || stated.weighted.is_some();
    let weighted = match fields[..] {
        [_] => return Err(LoadFault::OneColumn(Excerpt::new(fields[0]))),
        [_, _] => false,
        [_, _, dictionary] if dictionary.starts_with(b"{") => {
            dictionary_weight(dictionary).is_some()
        }
        [_, _, _] if !is_stated && is_adjacency(lines) => {
            return Err(LoadFault::WeightsOrNeighbours(line()));
        }
        [_, _, _] => true,
        _ if is_stated => true,
        _ => return Err(LoadFault::UnnamedColumns { line: line(), columns: fields.len() }),
    };
    Ok(Columns::plain(fields.len(), weighted))
}

/// Whether three columns may be a vertex and two neighbours: no vertex has two lines, and all other
/// numbers have lines, as far as the sample shows them.
fn is_adjacency(lines: &[Line<'_>]) -> bool {
    let numbers = |(_, fields): &Line<'_>| -> Option<Vec<u64>> {
        fields.iter().map(|field| number(field)).collect()
    };
    let Some(rows) = lines.iter().map(numbers).collect::<Option<Vec<_>>>() else { return false };
    let vertices: BTreeSet<u64> = rows.iter().map(|row| row[0]).collect();
    let most = vertices.last().copied().unwrap_or(0);
    let ascends = rows.windows(2).all(|pair| pair[1][0] == pair[0][0].wrapping_add(1));
    let is_vertex = |number: &u64| match lines.len() < SAMPLE - 1 {
        true => vertices.contains(number),
        false => ascends || *number <= most.saturating_mul(2),
    };
    rows.len() > 2
        && vertices.len() == rows.len()
        && rows.iter().flat_map(|row| &row[1..]).all(is_vertex)
}

/// Finds the weight in a dictionary of networkx, such as `{'weight': 3}`.
pub(super) fn dictionary_weight(dictionary: &[u8]) -> Option<&[u8]> {
    let begin = [&b"'weight':"[..], b"\"weight\":"]
        .iter()
        .find_map(|key| Some(memchr::memmem::find(dictionary, key)? + key.len()))?;
    let rest = &dictionary[begin..];
    let end = rest.iter().position(|byte| b",}".contains(byte))?;
    Some(rest[..end].trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, stated: Stated<'_>) -> String {
        let start = detect(text.as_bytes(), stated);
        let start = start.map_err(|(line, fault)| format!("{line}: {fault}"));
        start.unwrap().columns.names().join(",")
    }

    #[test]
    fn names_and_first_lines_assign_roles() {
        for (text, roles) in [
            ("# Nodes: 3 Edges: 2\n0\t1\r\n", "source,target"),
            ("source,target,weight\n0,1,5\n", "source,target,weight"),
            ("\"from\";\"to\"\n0;1\n", "source,target"),
            ("\"0\",\"1\"\n", "source,target"),
            ("\n\n", "source,target"),
            (",source,target\n0,1,2\n", "-,source,target"),
            ("\tsource\ttarget\n0\t1\t2\n", "-,source,target"),
            ("EdgeId,Source,Target\n7,0,1\n", "-,source,target"),
            ("weight,from_node,to_node\n7,0,1\n", "weight,source,target"),
            ("Target;Source;Type;Id;Weight\n1;0;Directed;;2\n", "target,source,type,-,weight"),
            ("user,item,rating\n1,0,3\n", "source,target,weight"),
            ("0 1 {}\n", "source,target,-"),
            ("0 1 {'color': 3, 'weight': 7}\n", "source,target,weight"),
            ("0 1 7\n5 2 8\n", "source,target,weight"),
        ] {
            assert_eq!(of(text, Stated::default()), roles, "{text:?}");
        }
        let stated = Stated { names: Some("source,-,target,w"), ..Stated::default() };
        assert_eq!(of("0 1 7 1\n", stated), "source,-,target,weight");
        let stated = Stated { konect: true, ..Stated::default() };
        assert_eq!(of("0 1 7 1\n", stated), "source,target,weight,-");
        let start = detect(b"60 59\n0 1 2\n", Stated { counts: true, ..Stated::default() });
        assert_eq!(start.unwrap().counts, Some([60, 59]));
    }

    #[test]
    fn likely_edge_lists_start_with_a_number_or_with_names() {
        assert!(is_likely(b"# x\n\n 1 2\n") && is_likely(b"from;to\n1;2\n"));
        assert!(is_likely(b"\"1\",\"2\"\n") && is_likely(b",source,target\n0,1,2\n"));
        assert!(!is_likely(b"hello\nworld\n") && !is_likely(b"") && !is_likely(b"\x7fELF\0\0"));
    }
}
