//! Reverse Cuthill–McKee (Cuthill and McKee, 1969; George, 1971): the reversed order of a search
//! that starts at a peripheral vertex and visits neighbours of low degree first.

use std::collections::VecDeque;

use super::VertexMap;
use crate::{Graph, Width};

/// Orders each component separately. Ignores the direction of edges.
pub(super) fn rcm<V: Width>(graph: &Graph<V>) -> VertexMap<V> {
    let vertices = graph.vertices();
    let mut search = Search { graph, marks: vec![0; vertices], round: 0 };
    let mut taken = vec![false; vertices];
    let mut order = Vec::with_capacity(vertices);
    for v in 0..vertices {
        if taken[v] {
            continue;
        }
        let start = search.edge_of_graph(v);
        let mut queue = VecDeque::from([start]);
        taken[start] = true;
        while let Some(at) = queue.pop_front() {
            order.push(at);
            let mut next: Vec<usize> = search.neighbours(at).filter(|&to| !taken[to]).collect();
            next.sort_by_key(|&to| (search.degree(to), to));
            next.dedup();
            for to in next {
                taken[to] = true;
                queue.push_back(to);
            }
        }
    }
    let mut new = vec![V::default(); vertices];
    for (number, v) in order.into_iter().rev().enumerate() {
        new[v] = V::new(number);
    }
    VertexMap { new }
}

struct Search<'a, V: Width> {
    graph: &'a Graph<V>,
    /// Last search that reached each vertex.
    marks: Vec<u32>,
    round: u32,
}

impl<'a, V: Width> Search<'a, V> {
    fn neighbours(&self, v: usize) -> impl Iterator<Item = usize> + use<'a, V> {
        let rows = [Some(&self.graph.out), self.graph.transpose.as_ref()];
        rows.into_iter().flatten().flat_map(move |csr| csr.neighbours(v)).map(|to| to.at())
    }

    fn degree(&self, v: usize) -> usize {
        self.graph.out.degree(v)
            + self.graph.transpose.as_ref().map_or(0, |transpose| transpose.degree(v))
    }

    /// Finds a pseudo-peripheral vertex: moves to a farthest vertex while the distance grows.
    fn edge_of_graph(&mut self, mut v: usize) -> usize {
        let mut most = 0;
        loop {
            let (far, vertex) = self.farthest(v);
            if far <= most {
                return v;
            }
            (most, v) = (far, vertex);
        }
    }

    /// Returns the distance of the last level from `v`, and the vertex of least degree in it.
    fn farthest(&mut self, v: usize) -> (usize, usize) {
        self.round += 1;
        self.marks[v] = self.round;
        let (mut level, mut far) = (vec![v], 0);
        loop {
            let mut next = Vec::new();
            for &at in &level {
                for to in self.neighbours(at) {
                    if self.marks[to] != self.round {
                        self.marks[to] = self.round;
                        next.push(to);
                    }
                }
            }
            if next.is_empty() {
                let least = level.into_iter().min_by_key(|&at| (self.degree(at), at)).unwrap_or(v);
                return (far, least);
            }
            (level, far) = (next, far + 1);
        }
    }
}
