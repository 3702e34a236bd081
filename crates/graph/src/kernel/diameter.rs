//! A lower bound of the longest shortest way.

use std::time::Instant;

use hugepilot_alloc::{Plain, cells};

use super::spent::{Held, Spent, Watch};
use super::{Direction, Setup, bfs};
use crate::hook::Hook;
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Graph, Result, Width};

/// How it is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Looking {
    /// From a vertex to one that is farthest, of these one with the fewest edges, and on from there as long as it gets longer.
    #[default]
    Sweeps,
    /// From 64 vertices at once, a bit of a word for each: reads eight bytes per edge all over.
    Multi,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Diameter {
    /// No shortest way that was seen is longer, and one is that long.
    pub lower_bound: usize,
    /// Searches, or rounds of all.
    pub rounds: usize,
    /// What it took: all searches together, with the arrays of the last.
    pub spent: Spent,
}

/// From `source`, or from 64 vertices evenly apart of which it is one.
///
/// # Errors
/// As for [`bfs`].
pub fn diameter<V: Width, H: Hook>(
    graph: &Graph<V>,
    source: V,
    looking: Looking,
    setup: &Setup<H>,
) -> Result<Diameter> {
    match looking {
        Looking::Sweeps => sweeps(graph, source, setup),
        Looking::Multi => multi(graph, source, setup),
    }
}

fn sweeps<V: Width, H: Hook>(graph: &Graph<V>, mut source: V, setup: &Setup<H>) -> Result<Diameter> {
    let mut found = Diameter { lower_bound: 0, rounds: 0, spent: Spent::default() };
    loop {
        let mut search = bfs(graph, source, Direction::Optimizing, setup)?;
        found.rounds += 1;
        found.spent = found.spent.then(std::mem::take(&mut search.spent));
        let far = search.levels.len() - 1;
        if far <= found.lower_bound && found.rounds > 1 {
            return Ok(found);
        }
        found.lower_bound = far;
        let began = Instant::now();
        source = farthest(graph, &search, source);
        found.spent.kernel += began.elapsed();
    }
}

/// Of the vertices on the last level, the one with the fewest edges.
fn farthest<V: Width>(graph: &Graph<V>, search: &super::Bfs<V>, source: V) -> V {
    let distances = search.distances(source).unwrap_or_default();
    let last = search.levels.len() - 1;
    let far = (0..distances.len()).filter(|&v| distances[v] as usize == last);
    far.min_by_key(|&v| graph.out.degree(v)).map_or(source, V::new)
}

fn multi<V: Width, H: Hook>(graph: &Graph<V>, source: V, setup: &Setup<H>) -> Result<Diameter> {
    const PIECE: usize = 1024;
    let (vertices, sources) = (graph.vertices(), graph.vertices().min(64));
    let watch = Watch::start();
    let (mut one, mut other) = (setup.property::<u64>(vertices)?, setup.property::<u64>(vertices)?);
    let seen: [&[<u64 as Plain>::Cell]; 2] = [cells(&mut one), cells(&mut other)];
    watch.allocated();
    let (rounds, incoming) = (Rounds::default(), graph.incoming());
    let mut found = setup.team.run(|worker| {
        worker.part(vertices).for_each(|v| seen.iter().for_each(|seen| seen[v].set(0)));
        worker.meet();
        watch.touched();
        if worker.id == 0 {
            for i in 0..sources {
                let v = (source.at() + i * (vertices / sources)) % vertices;
                seen[0][v].set(seen[0][v].get() | 1 << i);
            }
        }
        worker.meet();
        for round in 0.. {
            let (now, next) = (seen[round % 2], seen[(round + 1) % 2]);
            let turn = rounds.turn(&worker, round);
            let mut changes = 0;
            worker.each(&turn.pieces, vertices, PIECE, |range| {
                for v in range {
                    let before = now[v].get();
                    let mut bits = before;
                    for &from in incoming.neighbours(v) {
                        setup.hook.read(Array::Property, from.at());
                        bits |= now[from.at()].get();
                    }
                    changes += usize::from(bits != before);
                    next[v].set(bits);
                }
            });
            turn.add(changes, 0);
            worker.meet();
            if rounds.sums(round).0 == 0 {
                return round;
            }
        }
        0
    });
    let mut spent = watch.stop();
    spent.arrays = vec![Held::look(Array::Property, &one)?, Held::look(Array::Property, &other)?];
    let rounds = found.swap_remove(0);
    Ok(Diameter { lower_bound: rounds, rounds: rounds + 1, spent })
}
