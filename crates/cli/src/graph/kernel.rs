//! Which kernel, and what it is told.

use clap::{Args, ValueEnum};
use hugepilot_graph::kernel::{Dangling, Direction, Iterations, Joining, Looking, Stepping, Sweep};
use hugepilot_graph::run::{Kernel, Start};

#[derive(Debug, Args)]
pub(super) struct KernelArgs {
    /// bfs: breadth-first search; sssp: shortest ways by weights; pr: PageRank; cc: connected components; bc: betweenness from
    /// one source; diameter: a lower bound of it; tc: triangles
    #[arg(value_name = "KERNEL")]
    kernel: Name,
    /// bfs: direction-optimizing or top-down; sssp: delta or bellman-ford; pr: gauss-seidel, jacobi or delta-push; cc: afforest or
    /// shiloach-vishkin; diameter: sweeps or multi [default: the first of each]
    #[arg(long, value_name = "WHICH")]
    algo: Option<Algo>,
    /// Where to begin: the number of a vertex as the source has it, max-degree, or random[:SEED], another one in each trial
    #[arg(long, value_name = "WHERE", default_value = "random", value_parser = start)]
    source: Start,
    /// sssp: the width of a bucket of distances; wide for road networks
    #[arg(long, value_name = "WIDTH", default_value_t = 2)]
    delta: u64,
    /// pr: iterations at most; of delta-push, rounds [default: 20, of delta-push 1000]
    #[arg(long, value_name = "N")]
    iterations: Option<usize>,
    /// pr: stop when the ranks change by less than this in sum
    #[arg(long, value_name = "SUM", default_value_t = 1e-4)]
    tolerance: f64,
    /// pr: the share of a rank that is handed on
    #[arg(long, value_name = "SHARE", default_value_t = 0.85, value_parser = share)]
    damping: f64,
    /// pr: what becomes of the rank of a vertex without edges: lost as in the GAP benchmark suite, or shared by all
    #[arg(long, value_name = "HOW", default_value = "redistribute")]
    dangling: DanglingArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Bfs,
    Sssp,
    Pr,
    Cc,
    Bc,
    Diameter,
    Tc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Algo {
    DirectionOptimizing,
    TopDown,
    Delta,
    BellmanFord,
    GaussSeidel,
    Jacobi,
    DeltaPush,
    Afforest,
    ShiloachVishkin,
    Sweeps,
    Multi,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DanglingArg {
    Drop,
    Redistribute,
}

fn start(text: &str) -> Result<Start, String> {
    let seed = text.strip_prefix("random").map(|seed| seed.strip_prefix(':').map_or(Ok(1), str::parse));
    match (text, seed) {
        ("max-degree", _) => Ok(Start::MaxDegree),
        (_, Some(Ok(seed))) => Ok(Start::Random(seed)),
        _ => text
            .parse()
            .map(Start::At)
            .map_err(|_| "write a number, max-degree, random or random:SEED".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "write a number from 0 to below 1".to_owned())
}

impl KernelArgs {
    pub(super) const fn start(&self) -> Start {
        self.source
    }

    /// Ends with a usage error where --algo is none of the kernel's.
    pub(super) fn kernel(&self) -> Kernel {
        let iterations = |sweep| Iterations {
            most: self.iterations.unwrap_or(if sweep == Sweep::DeltaPush { 1000 } else { 20 }),
            tolerance: self.tolerance,
            damping: self.damping,
            sweep,
            dangling: match self.dangling {
                DanglingArg::Drop => Dangling::Drop,
                DanglingArg::Redistribute => Dangling::Redistribute,
            },
        };
        match (self.kernel, self.algo) {
            (Name::Bfs, None | Some(Algo::DirectionOptimizing)) => Kernel::Bfs(Direction::Optimizing),
            (Name::Bfs, Some(Algo::TopDown)) => Kernel::Bfs(Direction::TopDown),
            (Name::Sssp, None | Some(Algo::Delta)) => Kernel::Sssp(Stepping::Delta(self.delta)),
            (Name::Sssp, Some(Algo::BellmanFord)) => Kernel::Sssp(Stepping::BellmanFord),
            (Name::Pr, None | Some(Algo::GaussSeidel)) => Kernel::PageRank(iterations(Sweep::GaussSeidel)),
            (Name::Pr, Some(Algo::Jacobi)) => Kernel::PageRank(iterations(Sweep::Jacobi)),
            (Name::Pr, Some(Algo::DeltaPush)) => Kernel::PageRank(iterations(Sweep::DeltaPush)),
            (Name::Cc, None | Some(Algo::Afforest)) => Kernel::Components(Joining::Afforest),
            (Name::Cc, Some(Algo::ShiloachVishkin)) => Kernel::Components(Joining::ShiloachVishkin),
            (Name::Bc, None) => Kernel::Betweenness,
            (Name::Diameter, None | Some(Algo::Sweeps)) => Kernel::Diameter(Looking::Sweeps),
            (Name::Diameter, Some(Algo::Multi)) => Kernel::Diameter(Looking::Multi),
            (Name::Tc, None) => Kernel::Triangles,
            (kernel, Some(algo)) => {
                let name = |value: Option<clap::builder::PossibleValue>| {
                    value.map_or_else(String::new, |value| value.get_name().to_owned())
                };
                let message = format!(
                    "{} is no way to compute {}\n",
                    name(algo.to_possible_value()),
                    name(kernel.to_possible_value())
                );
                clap::Error::raw(clap::error::ErrorKind::InvalidValue, message).exit()
            }
        }
    }
}
