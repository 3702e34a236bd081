//! Statements in the comments before the first edge of an edge list: SNAP and KONECT.

use super::columns::COMMENTS;
use super::direction::Directedness;
use super::text::Text;
use crate::Result;

/// Statements of the comments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Comments {
    /// Vertices with edges.
    pub(super) vertices: Option<u64>,
    /// Lines with edges.
    pub(super) edges: Option<u64>,
    pub(super) directedness: Option<Directedness>,
    /// Whether the first line is that of KONECT. IDs then count from 1.
    pub(super) is_konect: bool,
    /// Whether sources and targets have IDs of their own.
    pub(super) is_bipartite: bool,
    /// Whether the file says that a column of weights holds none.
    pub(super) is_unweighted: bool,
}

impl Comments {
    /// Consumes and parses the comments before the first line with content.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn read(text: &mut Text<'_>) -> Result<Self> {
        let (mut all, mut count) = (Self::default(), 0);
        loop {
            let ahead = text.ahead()?;
            let first = ahead.trim_ascii_start().first();
            let is_blank = ahead
                .split(|&byte| byte == b'\n')
                .next()
                .is_some_and(|line| line.trim_ascii().is_empty());
            if ahead.is_empty() || !is_blank && first.is_none_or(|byte| !COMMENTS.contains(byte)) {
                return Ok(all);
            }
            if let Some([mark, line @ ..]) = text.line()?.map(<[u8]>::trim_ascii) {
                all.add(*mark, line, count);
                count += 1;
            }
        }
    }

    /// Parses a comment after `before` others.
    fn add(&mut self, mark: u8, line: &[u8], before: usize) {
        let line = String::from_utf8_lossy(line).to_lowercase();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match (mark, before) {
            (b'%', 0) => self.konect(&words),
            (b'%', 1) if self.is_konect => self.konect_sizes(&words),
            _ => self.snap(&words),
        }
    }

    /// Parses `sym`, `asym` or `bip`, and the kind of weights.
    fn konect(&mut self, words: &[&str]) {
        self.directedness = match words.first() {
            Some(&"sym") => Some(Directedness::Undirected),
            Some(&"asym") => Some(Directedness::Arcs),
            Some(&"bip") => Some(Directedness::Undirected),
            _ => return,
        };
        (self.is_konect, self.is_bipartite) = (true, words[0] == "bip");
        self.is_unweighted = words.get(1) == Some(&"unweighted");
    }

    /// Parses the numbers of edges, of sources and of targets.
    fn konect_sizes(&mut self, words: &[&str]) {
        let sizes: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
        if let Some([edges, sources, targets]) = sizes.as_deref() {
            self.edges = Some(*edges);
            let all = if self.is_bipartite { sources.checked_add(*targets) } else { None };
            self.vertices = all.or(Some(*sources));
        }
    }

    /// Parses `Nodes: N Edges: M`, and `Directed graph` or `Undirected graph`.
    fn snap(&mut self, words: &[&str]) {
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.parse().ok()
        };
        self.vertices = self.vertices.or_else(|| after("nodes:"));
        self.edges = self.edges.or_else(|| after("edges:"));
        let stated = match words {
            ["directed", ..] => Some(Directedness::Arcs),
            ["undirected", ..] => Some(Directedness::Undirected),
            _ => None,
        };
        self.directedness = self.directedness.or(stated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_state_sizes_and_directions() {
        let of = |text: &'static str| {
            let mut text = Text::new(std::path::Path::new("g"), Box::new(text.as_bytes()));
            (Comments::read(&mut text).unwrap(), text.lines())
        };
        let (snap, lines) = of("# Directed graph: x\n\n#\n# Nodes: 3 Edges: 2\n0 1\n# Edges: 9\n");
        assert_eq!((snap.vertices, snap.edges, lines), (Some(3), Some(2), 4));
        assert_eq!(snap.directedness, Some(Directedness::Arcs));
        let (konect, _) = of("% bip unweighted\n% 7 3 4\n1 1\n");
        assert_eq!((konect.vertices, konect.edges), (Some(7), Some(7)));
        assert!(konect.is_konect && konect.is_bipartite && konect.is_unweighted);
        let (konect, _) = of("% sym positive\r\n% 7 3 3\r\n1 1\n");
        assert_eq!((konect.vertices, konect.edges), (Some(3), Some(7)));
        assert_eq!(konect.directedness, Some(Directedness::Undirected));
        for text in ["0 1\n# Nodes: 3\n", "% symmetric\n", "# nodes 3", "\n", ""] {
            assert_eq!(of(text).0, Comments::default(), "{text:?}");
        }
    }
}
