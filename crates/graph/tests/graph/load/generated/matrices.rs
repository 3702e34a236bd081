//! Text with headers: Matrix Market, DIMACS and METIS.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Draw, Made, Truth};

/// Joins words by blanks.
fn joined(draw: &mut Draw, words: &[String]) -> String {
    let gap = draw.pick(&[" ", "  ", "\t", " "]);
    words.join(gap) + draw.pick(&["", "", " "])
}

fn words(values: &[u64]) -> Vec<String> {
    values.iter().map(u64::to_string).collect()
}

/// Changes a count of a header in some files.
fn miscounted(draw: &mut Draw, count: usize, truth: &mut Truth) -> u64 {
    if !draw.one_in(8) {
        return count as u64;
    }
    truth.is_clear = false;
    (count as u64 + draw.pick(&[1, 2, 50])).wrapping_sub(draw.pick(&[0, 3]))
}

pub(super) fn matrix_market(draw: &mut Draw) -> Made {
    let field = draw.pick(&["pattern", "pattern", "integer", "real", "complex"]);
    let symmetry = draw.pick(&["general", "symmetric", "symmetric", "skew-symmetric", "hermitian"]);
    let mut truth = Truth::draw(draw, 1, field != "pattern");
    truth.directed = Some(symmetry == "general");
    if symmetry == "general" && draw.one_in(3) {
        truth.symmetrize();
    }
    if symmetry != "general" {
        // Entries below the diagonal.
        truth
            .edges
            .iter_mut()
            .for_each(|edge| *edge = (edge.0.max(edge.1), edge.0.min(edge.1), edge.2));
    }
    truth.is_clear = field != "complex" && (symmetry != "skew-symmetric" || field == "pattern");
    let banner = format!("%%MatrixMarket matrix coordinate {field} {symmetry}");
    let banner = if draw.one_in(3) {
        banner.to_uppercase().replace("%%MATRIXMARKET", "%%MatrixMarket")
    } else {
        banner
    };
    let end = draw.pick(&["\n", "\r\n"]);
    let mut text = if draw.one_in(6) { "\u{feff}".to_owned() } else { String::new() };
    let _ = write!(text, "{banner}{end}");
    for _ in 0..draw.below(3) {
        let _ = write!(text, "% a comment 1 2{end}");
    }
    let count = miscounted(draw, truth.edges.len(), &mut truth);
    let size = truth.vertices.unwrap_or(0);
    let columns = if draw.one_in(10) { size + 1 } else { size };
    truth.is_clear &= columns == size;
    let sizes = joined(draw, &words(&[size, columns, count]));
    let _ = write!(text, "{sizes}{end}");
    let decimals = draw.pick(&["", ".0", ".00e0", ".5"]);
    truth.is_clear &= field != "real" || decimals != ".5";
    for (from, to, weight) in truth.edges.clone() {
        let mut line = words(&[from, to]);
        match field {
            "integer" => line.push(weight.to_string()),
            "real" => line.push(format!("{weight}{decimals}")),
            "complex" => line.extend([weight.to_string(), "1.5".to_owned()]),
            _ => {}
        }
        let line = joined(draw, &line);
        let _ = write!(text, "{line}{end}");
    }
    let name = draw.pick(&["g.mtx", "noname"]);
    Made::new(name, text, truth).packed(draw)
}

pub(super) fn dimacs(draw: &mut Draw) -> Made {
    let mut truth = Truth::draw(draw, 1, true);
    truth.directed = Some(true);
    if draw.one_in(2) {
        truth.symmetrize();
    }
    let end = draw.pick(&["\n", "\r\n"]);
    let mut text = String::new();
    for _ in 0..draw.below(3) {
        let _ = write!(text, "{}{end}", draw.pick(&["c", "c a road", "c\tp sp 1 1"]));
    }
    let count = miscounted(draw, truth.edges.len(), &mut truth);
    let sizes = words(&[truth.vertices.unwrap_or(0), count]);
    let header = joined(draw, &[&["p".to_owned(), "sp".to_owned()][..], &sizes].concat());
    let _ = write!(text, "{header}{end}");
    let zero = draw.one_in(10);
    truth.is_clear &= !zero;
    for (i, (from, to, weight)) in truth.edges.clone().into_iter().enumerate() {
        let from = if zero && i == 0 { 0 } else { from };
        let line = joined(draw, &[&["a".to_owned()][..], &words(&[from, to, weight])].concat());
        let _ = write!(text, "{line}{end}");
        if draw.one_in(20) {
            let _ = write!(text, "c between{end}");
        }
    }
    Made::new(draw.pick(&["g.gr", "noname"]), text, truth).packed(draw)
}

/// METIS with all codes of the format. Neighbours of a line are in any order.
pub(super) fn metis(draw: &mut Draw) -> Made {
    let [sized, constrained, weighted] = [draw.one_in(4), draw.one_in(3), draw.one_in(2)];
    let mut truth = Truth::draw(draw, 1, weighted);
    truth.edges.retain(|edge| edge.0 != edge.1);
    truth.symmetrize();
    truth.directed = Some(false);
    let constraints = if constrained { 1 + draw.below(3) } else { 0 };
    let mut rows = BTreeMap::<u64, Vec<u64>>::new();
    for &(from, to, weight) in truth.edges.iter().rev() {
        let row = rows.entry(from).or_default();
        row.push(to);
        row.extend(weighted.then_some(weight));
    }
    let format = format!("{}{}{}", u8::from(sized), u8::from(constrained), u8::from(weighted));
    let format = if draw.one_in(2) { format.trim_start_matches('0').to_owned() } else { format };
    let count = miscounted(draw, truth.edges.len() / 2, &mut truth);
    let mut header = words(&[truth.vertices.unwrap_or(0), count]);
    if !format.is_empty() {
        header.push(format);
        if constraints > 1 || constrained && draw.one_in(2) {
            header.push(constraints.to_string());
        }
    }
    let mut text = joined(draw, &header) + "\n";
    for v in 1..=truth.vertices.unwrap_or(0) {
        if draw.one_in(10) {
            text.push_str("% 7 8 9\n");
        }
        let mut line: Vec<u64> = Vec::new();
        line.extend(sized.then(|| 1 + draw.below(5)));
        line.extend((0..constraints).map(|_| draw.below(9)));
        line.extend(rows.get(&v).into_iter().flatten());
        text += &(joined(draw, &words(&line)) + "\n");
    }
    // Without edges, or with sizes that may be neighbours.
    truth.is_clear &= !truth.edges.is_empty() && !sized;
    Made::new(draw.pick(&["g.graph", "g.metis"]), text, truth).packed(draw)
}
