//! Edge lists and adjacency lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{Draw, Made, Truth};

/// Draws the first ID; a large one leaves a gap.
fn first(draw: &mut Draw) -> u64 {
    draw.pick(&[0, 0, 1, 1, 7, 1000])
}

/// Draws edges whose vertices are not stated.
fn edges(draw: &mut Draw, weighted: bool) -> Truth {
    let first = first(draw);
    Truth { vertices: None, ..Truth::draw(draw, first, weighted) }
}

/// Writes a weight in a form of which only integers are clear.
fn weight(draw: &mut Draw, form: u64, weight: u64) -> String {
    match form {
        0 => weight.to_string(),
        1 => format!("{weight}.0"),
        2 => format!("{weight}e0"),
        3 => format!("{weight}.{}", 1 + draw.below(9)),
        _ => format!("{weight},{}", 1 + draw.below(9)),
    }
}

/// Ends lines, and writes blank lines, comments and a byte order mark in between.
fn finish(draw: &mut Draw, lines: &[String]) -> String {
    let end = draw.pick(&["\n", "\n", "\r\n"]);
    let mut text = String::new();
    if draw.one_in(6) {
        text.push('\u{feff}');
    }
    let (blank, comments, trailing) = (draw.one_in(5), draw.one_in(5), draw.one_in(5));
    for (i, line) in lines.iter().enumerate() {
        text.push_str(line);
        if trailing && draw.one_in(3) && !line.starts_with(['%', '#']) {
            text.push(' ');
        }
        if i + 1 == lines.len() && draw.one_in(4) {
            break;
        }
        text.push_str(end);
        if blank && draw.one_in(4) {
            text.push_str(end);
        }
        if comments && draw.one_in(4) && i > 2 {
            text.push_str("# a comment, 1 2");
            text.push_str(end);
        }
    }
    text
}

/// SNAP, and lists of contests.
pub(super) fn list(draw: &mut Draw) -> Made {
    let form = draw.below(10);
    let mut truth = edges(draw, draw_weighted(form));
    let separator = draw.pick(&[" ", "\t", ",", ";", ", ", "  ", " \t"]);
    let mut lines = snap_comments(draw, &mut truth);
    let counts = draw.one_in(6);
    let largest = truth.edges.iter().map(|edge| edge.0.max(edge.1)).max().unwrap_or(0);
    if counts {
        let vertices =
            largest + draw.below(3) + u64::from(truth.edges.iter().any(|e| e.0 == 0 || e.1 == 0));
        lines.push(format!("{vertices}{separator}{}", truth.edges.len()));
        truth.is_clear = false;
    }
    let begin = lines.len();
    for &(from, to, value) in &truth.edges {
        let mut line = format!("{from}{separator}{to}");
        if truth.weighted {
            let _ = write!(line, "{separator}{}", weight(draw, form, value));
        }
        lines.push(line);
    }
    // Weights of other forms are refused, and so are three columns that may be neighbours.
    let sources: BTreeSet<u64> = truth.edges.iter().map(|edge| edge.0).collect();
    truth.is_clear &= !truth.weighted || form < 3 && sources.len() < truth.edges.len();
    damage(draw, &mut lines, begin, &mut truth, separator);
    // A first line that looks like counts is ambiguous.
    let [from, to, _] = truth.edges.first().map_or([0; 3], |&(a, b, c)| [a, b, c]);
    truth.is_clear &= from.max(to) < largest || truth.edges.len() == 1;
    let name = draw.pick(&["g.txt", "g.csv", "g.el", "g.edges", "us.electric.csv", "noname"]);
    Made::new(name, finish(draw, &lines), truth).packed(draw)
}

const fn draw_weighted(form: u64) -> bool {
    form < 5
}

/// Writes the comments of SNAP, of which some state wrong counts.
fn snap_comments(draw: &mut Draw, truth: &mut Truth) -> Vec<String> {
    let mut lines = Vec::new();
    let directed = draw.pick(&[None, None, Some(true), Some(false)]);
    truth.directed = directed;
    match directed {
        Some(true) => lines.push("# Directed graph (each unordered pair once): g.txt".to_owned()),
        Some(false) => lines.push("# Undirected graph: g.txt".to_owned()),
        None => {}
    }
    let vertices: BTreeSet<u64> = truth.edges.iter().flat_map(|edge| [edge.0, edge.1]).collect();
    if draw.one_in(3) {
        lines.push(format!("# Nodes: {} Edges: {}", vertices.len(), truth.edges.len()));
        if draw.one_in(3) {
            // The end of the file is missing.
            truth.edges.truncate(truth.edges.len().div_ceil(2));
            truth.is_clear = false;
        }
        lines.push("# FromNodeId\tToNodeId".to_owned());
    }
    lines
}

/// Damages some lists.
fn damage(draw: &mut Draw, lines: &mut [String], begin: usize, truth: &mut Truth, separator: &str) {
    // A single line has as many columns as others.
    if truth.edges.len() < 2 {
        return;
    }
    let at = begin + draw.below((lines.len() - begin) as u64) as usize;
    match draw.below(12) {
        0 => {
            lines[at] = lines[at]
                .rsplit_once(separator.trim_start_matches(' ').chars().next().unwrap_or(' '))
                .map_or_else(String::new, |(line, _)| line.to_owned())
        }
        1 => lines[at] = format!("{}{separator}7", lines[at]),
        2 => lines[at] = lines[at].replacen(separator, "|", 1),
        3 => lines
            .iter_mut()
            .skip(begin)
            .for_each(|line| *line = format!("{line}{separator}4{separator}5")),
        4 => {
            let thousands = |id: u64| format!("{},{:03}", 1 + id / 1000, id % 1000);
            for (line, edge) in lines.iter_mut().skip(begin).zip(&mut truth.edges) {
                *line = format!("{}{separator}{}", thousands(edge.0), thousands(edge.1));
                (edge.0, edge.1) = (edge.0 + 1000, edge.1 + 1000);
            }
        }
        _ => return,
    }
    truth.is_clear = false;
}

/// CSV with names in any order, beside other columns.
pub(super) fn table(draw: &mut Draw) -> Made {
    let weighted = draw.one_in(2);
    let mut truth = edges(draw, weighted);
    let separator = draw.pick(&[",", ",", ";", "\t", " "]);
    let (source, target) = draw.pick(&[
        ("source", "target"),
        ("Source", "Target"),
        ("from", "to"),
        ("src", "dst"),
        ("FromNodeId", "ToNodeId"),
        ("node_1", "node_2"),
        ("u", "v"),
    ]);
    let mut columns = vec![source.to_owned(), target.to_owned()];
    if weighted {
        columns.push(draw.pick(&["weight", "Weight", "cost", "length", "distance"]).to_owned());
    }
    let has_gaps = separator != " ";
    for other in ["id", "timestamp", "label", "", "Type", "color"] {
        if draw.one_in(4) && (has_gaps || !["", "label"].contains(&other)) {
            let at = draw.below(columns.len() as u64 + 1) as usize;
            columns.insert(at, other.to_owned());
        }
    }
    // An index column without a name comes first.
    if let Some(at) = columns.iter().position(String::is_empty) {
        columns.swap(0, at);
    }
    let kind = draw.pick(&["Directed", "Undirected"]);
    if columns.iter().any(|name| name == "Type") {
        truth.directed = Some(kind == "Directed");
    }
    let quoted = draw.one_in(4);
    let quote = |text: &str| if quoted { format!("\"{text}\"") } else { text.to_owned() };
    let mut lines =
        vec![columns.iter().map(|name| quote(name)).collect::<Vec<_>>().join(separator)];
    for (i, &(from, to, value)) in truth.edges.iter().enumerate() {
        let field = |name: &String| match name {
            name if *name == source => from.to_string(),
            name if *name == target => to.to_string(),
            name if ["id", ""].contains(&&**name) => i.to_string(),
            name if name == "timestamp" => (1_600_000_000 + i).to_string(),
            name if name == "label" => String::new(),
            name if name == "Type" => kind.to_owned(),
            name if name == "color" => "red".to_owned(),
            _ => value.to_string(),
        };
        lines.push(
            columns.iter().map(|name| quote(&field(name))).collect::<Vec<_>>().join(separator),
        );
    }
    // Gephi states directions also of a graph that is symmetric.
    truth.keeps_directions = true;
    let name = draw.pick(&["g.csv", "g.tsv", "g.txt", "noname"]);
    let made = Made::new(name, finish(draw, &lines), truth);
    made.packed(draw)
}

/// KONECT: directions, weights and times, and two ranges of IDs.
pub(super) fn konect(draw: &mut Draw) -> Made {
    let weighted = draw.one_in(2);
    let mut truth = Truth { vertices: None, ..Truth::draw(draw, 1, weighted) };
    let kind = draw.pick(&["sym", "asym", "bip"]);
    truth.directed = Some(kind == "asym");
    let mut lines =
        vec![format!("% {kind} {}", if weighted { "posweighted" } else { "unweighted" })];
    let sides = [0, 1].map(|end| {
        truth.edges.iter().map(|edge| if end == 0 { edge.0 } else { edge.1 }).max().unwrap_or(0)
    });
    if draw.one_in(2) {
        let all = sides[0].max(sides[1]);
        let [left, right] = if kind == "bip" { sides } else { [all, all] };
        lines.push(format!("% {} {left} {right}", truth.edges.len()));
    }
    let times = draw.one_in(3);
    for &(from, to, value) in &truth.edges {
        let value = if weighted { value } else { 1 };
        lines.push(match (weighted || times, times) {
            (true, true) => format!("{from} {to} {value} 1600000000"),
            (true, false) => format!("{from} {to} {value}"),
            (false, _) => format!("{from}\t{to}"),
        });
    }
    if kind == "bip" {
        truth.edges.iter_mut().for_each(|edge| edge.1 += sides[0]);
    }
    let made = Made::new(draw.pick(&["out.g", "g.txt"]), finish_plain(&lines), truth);
    made.packed(draw)
}

fn finish_plain(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// `write_edgelist` of networkx.
pub(super) fn networkx(draw: &mut Draw) -> Made {
    let form = draw.below(4);
    let mut truth = edges(draw, form > 0);
    let mut lines = Vec::new();
    let missing = draw.one_in(6);
    for &(from, to, value) in &truth.edges {
        lines.push(match form {
            0 => format!("{from} {to} {{}}"),
            1 => format!("{from} {to} {{'weight': {value}}}"),
            2 => format!("{from} {to} {{'color': 'red, blue', 'weight': {value}.0}}"),
            _ => format!("{from} {to} {{'weight': {value}, 'weight2': 3}}"),
        });
    }
    if missing && form > 0 && lines.len() > 1 {
        let at = draw.below(lines.len() as u64) as usize;
        lines[at] = lines[at].split('{').next().unwrap_or_default().to_owned() + "{}";
        truth.is_clear = false;
    }
    let made = Made::new(draw.pick(&["g.edgelist", "g.txt"]), finish_plain(&lines), truth);
    made.packed(draw)
}

/// Adjacency lists, with and without the number of neighbours; some with equally many for each.
pub(super) fn adjacency(draw: &mut Draw) -> Made {
    let vertices = 4 + draw.below(20);
    let degree = if draw.one_in(2) { Some(1 + draw.below(3)) } else { None };
    let (counts, mut truth) = (draw.one_in(3), edges(draw, false));
    truth.edges.clear();
    let mut rows = BTreeMap::<u64, Vec<u64>>::new();
    for v in 0..vertices {
        let count = degree.unwrap_or_else(|| draw.below(5));
        let row: BTreeSet<u64> = (0..count).map(|_| draw.below(vertices)).collect();
        truth.edges.extend(row.iter().map(|&to| (v, to, 0)));
        rows.insert(v, row.into_iter().collect());
    }
    let mut order: Vec<u64> = (0..vertices).collect();
    if draw.one_in(2) {
        order.sort_by_key(|v| v.wrapping_mul(0x9e37_79b9) % 97);
    }
    let line = |v: &u64| {
        let row = &rows[v];
        let count = counts.then_some(row.len() as u64);
        let words = [*v].into_iter().chain(count).chain(row.iter().copied());
        words.map(|word| word.to_string()).collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<String> = order.iter().map(line).collect();
    Made::new("g.txt", finish_plain(&lines), truth)
}

/// LDBC Graphalytics: IDs of any size.
pub(super) fn ldbc(draw: &mut Draw) -> (String, String, Truth) {
    let weighted = draw.one_in(2);
    let mut truth = Truth::draw(draw, 0, weighted);
    let id = |v: u64| v * v * 1_000_003 + 5;
    truth.edges.iter_mut().for_each(|edge| (edge.0, edge.1) = (id(edge.0), id(edge.1)));
    let vertices = (0..truth.vertices.unwrap_or(0)).rev();
    let vertices = vertices.fold(String::new(), |text, v| text + &format!("{}\n", id(v)));
    let fraction = weighted && draw.one_in(4);
    let edges = truth.edges.iter().fold(String::new(), |text, (from, to, weight)| {
        text + &match (weighted, fraction) {
            (false, _) => format!("{from} {to}\n"),
            (_, false) => format!("{from} {to} {weight}\n"),
            (_, true) => format!("{from} {to} {weight}.5\n"),
        }
    });
    truth.is_clear = !fraction;
    (vertices, edges, truth)
}
