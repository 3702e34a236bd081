//! Set of ways: the order of use as a list, PLRU as an explicit tree, or random ways, whose numbers
//! are those of the simulator's generator.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use crate::set::{RANDOM_SEED, Replacement, next_random};

#[derive(Clone)]
pub(super) struct SetList<K> {
    ways: Vec<Option<K>>,
    order: Order,
}

#[derive(Clone)]
enum Order {
    /// Ways, the one used last first. Those that never were used, or became empty, are at the end.
    List(Vec<usize>),
    Tree(Node),
    /// State of the generator, which clones share: the sets of a structure.
    Random(Rc<Cell<u64>>),
}

/// Tree of PLRU.
#[derive(Clone)]
enum Node {
    Way(usize),
    Fork { points_right: bool, left: Box<Node>, right: Box<Node> },
}

impl Node {
    fn over(ways: Range<usize>) -> Self {
        if ways.len() == 1 {
            return Self::Way(ways.start);
        }
        let middle = ways.start + ways.len() / 2;
        Self::Fork {
            points_right: false,
            left: Box::new(Self::over(ways.start..middle)),
            right: Box::new(Self::over(middle..ways.end)),
        }
    }

    fn has(&self, wanted: usize) -> bool {
        match self {
            Self::Way(way) => *way == wanted,
            Self::Fork { left, right, .. } => left.has(wanted) || right.has(wanted),
        }
    }

    /// Turns all forks above `way` away from it.
    fn point_away(&mut self, way: usize) {
        let Self::Fork { points_right, left, right } = self else { return };
        *points_right = left.has(way);
        if *points_right { left.point_away(way) } else { right.point_away(way) }
    }

    fn victim(&self) -> usize {
        match self {
            Self::Way(way) => *way,
            Self::Fork { points_right: true, right, .. } => right.victim(),
            Self::Fork { left, .. } => left.victim(),
        }
    }
}

impl<K: Clone + PartialEq> SetList<K> {
    pub(super) fn new(ways: usize, replacement: Replacement) -> Self {
        let order = match replacement {
            Replacement::Lru => Order::List((0..ways).collect()),
            Replacement::Plru => Order::Tree(Node::over(0..ways)),
            Replacement::Random => Order::Random(Rc::new(Cell::new(RANDOM_SEED))),
        };
        Self { ways: vec![None; ways], order }
    }

    pub(super) fn ways(&self) -> usize {
        self.ways.len()
    }

    /// Uses a key, which may be in the `allowed` ways. Returns whether it was there.
    pub(super) fn touch(&mut self, key: K, allowed: Range<usize>) -> bool {
        let found = self.ways.iter().position(|held| held.as_ref() == Some(&key));
        let way = found.unwrap_or_else(|| self.victim(allowed));
        self.ways[way] = Some(key);
        match &mut self.order {
            Order::List(list) => {
                list.retain(|&one| one != way);
                list.insert(0, way);
            }
            Order::Tree(tree) => tree.point_away(way),
            Order::Random(_) => {}
        }
        found.is_some()
    }

    fn victim(&self, allowed: Range<usize>) -> usize {
        let empty = allowed.clone().find(|&way| self.ways[way].is_none());
        match &self.order {
            Order::List(list) => *list.iter().rev().find(|way| allowed.contains(way)).unwrap(),
            Order::Tree(tree) => empty.unwrap_or_else(|| tree.victim()),
            Order::Random(state) => empty.unwrap_or_else(|| {
                state.set(next_random(state.get()));
                allowed.start + (state.get() % allowed.len() as u64) as usize
            }),
        }
    }

    pub(super) fn remove_if(&mut self, is_stale: impl Fn(&K) -> bool) {
        for way in 0..self.ways.len() {
            if self.ways[way].as_ref().is_some_and(&is_stale) {
                self.ways[way] = None;
                if let Order::List(list) = &mut self.order {
                    list.retain(|&one| one != way);
                    list.push(way);
                }
            }
        }
    }
}
