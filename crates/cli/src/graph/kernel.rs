//! Kernel and its parameters.

use clap::{Args, ValueEnum};
use hugepilot_graph::kernel::{
    CcAlgorithm, Dangling, DiameterAlgorithm, Direction, PageRankAlgorithm, PageRankConfig,
    SsspAlgorithm,
};
use hugepilot_graph::run::{Kernel, SourceVertex};

use super::error::usage;

#[derive(Debug, Args)]
pub(super) struct KernelArgs {
    /// Kernel. bfs: breadth-first search; sssp: single-source shortest paths, weighted; pr:
    /// PageRank; cc: connected components; bc: betweenness centrality from one source; diameter:
    /// lower bound; tc: triangle counting
    #[arg(value_name = "KERNEL", hide_possible_values = true)]
    kernel: Name,
    /// Algorithm. bfs: direction-optimizing or top-down; sssp: delta or bellman-ford; pr:
    /// gauss-seidel, jacobi or delta-push; cc: afforest or shiloach-vishkin; diameter: double-sweep
    /// or multi-source [default: the first of each]
    #[arg(long, value_name = "ALGORITHM", hide_possible_values = true)]
    algo: Option<Algo>,
    /// Source vertex of bfs, sssp, bc and diameter: an ID in the input, max-degree, or
    /// random[:SEED], another one in each trial [default: random]
    #[arg(long, value_name = "VERTEX", value_parser = source)]
    source: Option<SourceVertex>,
    /// Bucket width of sssp delta, as a distance; large for road networks [default: 2]
    #[arg(long, value_name = "WIDTH", value_parser = clap::value_parser!(u64).range(1..))]
    delta: Option<u64>,
    /// Maximum number of iterations of pr, or of rounds of delta-push [default: 20; 1000 for
    /// delta-push]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Sum of rank changes below which pr stops [default: 0.0001]
    #[arg(long, value_name = "SUM", value_parser = tolerance)]
    tolerance: Option<f64>,
    /// Share of a rank that pr passes along edges [default: 0.85]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    damping: Option<f64>,
    /// Treatment of the rank of vertices without outgoing edges in pr: drop, as in the GAP
    /// benchmark suite, or redistribute [default: redistribute]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    dangling: Option<DanglingArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Name {
    Bfs,
    Sssp,
    Pr,
    Cc,
    Bc,
    Diameter,
    Tc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Algo {
    DirectionOptimizing,
    TopDown,
    Delta,
    BellmanFord,
    GaussSeidel,
    Jacobi,
    DeltaPush,
    Afforest,
    ShiloachVishkin,
    DoubleSweep,
    MultiSource,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DanglingArg {
    Drop,
    Redistribute,
}

pub(super) fn source(text: &str) -> Result<SourceVertex, String> {
    let seed =
        text.strip_prefix("random").map(|seed| seed.strip_prefix(':').map_or(Ok(1), str::parse));
    match (text, seed) {
        ("max-degree", _) => Ok(SourceVertex::MaxDegree),
        (_, Some(Ok(seed))) => Ok(SourceVertex::Random(seed)),
        _ => text
            .parse()
            .map(SourceVertex::Id)
            .map_err(|_| "expected a vertex ID, max-degree, random or random:SEED".to_owned()),
    }
}

fn tolerance(text: &str) -> Result<f64, String> {
    let sum = text.parse().ok().filter(|sum| (0.0..f64::INFINITY).contains(sum));
    sum.ok_or_else(|| "expected a number of at least 0".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "expected a number of at least 0 and below 1".to_owned())
}

impl KernelArgs {
    /// Makes the options of a kernel with the defaults of the others.
    pub(super) fn new(
        kernel: Name,
        algo: Option<Algo>,
        source: Option<SourceVertex>,
        iterations: Option<u32>,
    ) -> Self {
        let (delta, tolerance, damping, dangling) = (None, None, None, None);
        Self { kernel, algo, source, delta, iterations, tolerance, damping, dangling }
    }

    pub(super) fn source(&self) -> SourceVertex {
        self.source.unwrap_or(SourceVertex::Random(1))
    }

    /// Returns the kernel. Exits with a usage error if --algo or another option does not suit it.
    pub(super) fn kernel(&self) -> Kernel {
        if let Some(option) = self.unused_option() {
            let algo =
                self.algo.map_or_else(String::new, |algo| format!(" --algo {}", name(&algo)));
            usage(&format!("{option} has no effect on {}{algo}", name(&self.kernel)));
        }
        let config = |algorithm| PageRankConfig {
            max_iterations: self
                .iterations
                .unwrap_or(if algorithm == PageRankAlgorithm::DeltaPush { 1000 } else { 20 })
                as usize,
            tolerance: self.tolerance.unwrap_or(1e-4),
            damping: self.damping.unwrap_or(0.85),
            algorithm,
            dangling: match self.dangling {
                Some(DanglingArg::Drop) => Dangling::Drop,
                None | Some(DanglingArg::Redistribute) => Dangling::Redistribute,
            },
        };
        match (self.kernel, self.algo) {
            (Name::Bfs, None | Some(Algo::DirectionOptimizing)) => {
                Kernel::Bfs(Direction::Optimizing)
            }
            (Name::Bfs, Some(Algo::TopDown)) => Kernel::Bfs(Direction::TopDown),
            (Name::Sssp, None | Some(Algo::Delta)) => {
                Kernel::Sssp(SsspAlgorithm::Delta(self.delta.unwrap_or(2)))
            }
            (Name::Sssp, Some(Algo::BellmanFord)) => Kernel::Sssp(SsspAlgorithm::BellmanFord),
            (Name::Pr, None | Some(Algo::GaussSeidel)) => {
                Kernel::PageRank(config(PageRankAlgorithm::GaussSeidel))
            }
            (Name::Pr, Some(Algo::Jacobi)) => Kernel::PageRank(config(PageRankAlgorithm::Jacobi)),
            (Name::Pr, Some(Algo::DeltaPush)) => {
                Kernel::PageRank(config(PageRankAlgorithm::DeltaPush))
            }
            (Name::Cc, None | Some(Algo::Afforest)) => Kernel::Components(CcAlgorithm::Afforest),
            (Name::Cc, Some(Algo::ShiloachVishkin)) => {
                Kernel::Components(CcAlgorithm::ShiloachVishkin)
            }
            (Name::Bc, None) => Kernel::Betweenness,
            (Name::Diameter, None | Some(Algo::DoubleSweep)) => {
                Kernel::Diameter(DiameterAlgorithm::DoubleSweep)
            }
            (Name::Diameter, Some(Algo::MultiSource)) => {
                Kernel::Diameter(DiameterAlgorithm::MultiSource)
            }
            (Name::Tc, None) => Kernel::Triangles,
            (kernel, Some(algo)) => {
                usage(&format!("--algo {} is not an algorithm of {}", name(&algo), name(&kernel)));
            }
        }
    }

    /// Returns the first option without effect on the kernel.
    fn unused_option(&self) -> Option<&'static str> {
        let has_source = matches!(self.kernel, Name::Bfs | Name::Sssp | Name::Bc | Name::Diameter);
        let buckets = matches!((self.kernel, self.algo), (Name::Sssp, None | Some(Algo::Delta)));
        let ranks = matches!(self.kernel, Name::Pr);
        [
            (self.source.is_some() && !has_source, "--source"),
            (self.delta.is_some() && !buckets, "--delta"),
            (self.iterations.is_some() && !ranks, "--iterations"),
            (self.tolerance.is_some() && !ranks, "--tolerance"),
            (self.damping.is_some() && !ranks, "--damping"),
            (self.dangling.is_some() && !ranks, "--dangling"),
        ]
        .into_iter()
        .find_map(|(is_unused, option)| is_unused.then_some(option))
    }
}

/// Returns the name on the command line.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        kernel: KernelArgs,
    }

    fn parsed(line: &str) -> Result<KernelArgs, clap::Error> {
        Line::try_parse_from(["run"].into_iter().chain(line.split(' '))).map(|line| line.kernel)
    }

    #[test]
    fn options_are_for_the_kernels_that_use_them() {
        for (line, unused) in [
            ("bfs --source 3", None),
            ("diameter --algo multi-source --source max-degree", None),
            ("pr --source 3", Some("--source")),
            ("cc --source random", Some("--source")),
            ("tc --source 3", Some("--source")),
            ("sssp --algo delta --delta 3", None),
            ("sssp --algo bellman-ford --delta 3", Some("--delta")),
            ("bfs --delta 2", Some("--delta")),
            ("pr --algo delta-push --iterations 3 --tolerance 0 --damping 0 --dangling drop", None),
            ("bfs --iterations 3", Some("--iterations")),
            ("sssp --tolerance 0", Some("--tolerance")),
            ("cc --damping 0.5", Some("--damping")),
            ("bc --dangling redistribute", Some("--dangling")),
        ] {
            assert_eq!(parsed(line).unwrap().unused_option(), unused, "{line}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_rejected() {
        for line in [
            "sssp --delta 0",
            "pr --iterations 0",
            "pr --tolerance=-1",
            "pr --tolerance NaN",
            "pr --tolerance inf",
            "pr --damping 1",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let kernel = |line: &str| parsed(line).unwrap().kernel();
        assert_eq!(kernel("sssp"), kernel("sssp --delta 2"));
        let defaults = "--tolerance 0.0001 --damping 0.85 --dangling redistribute";
        for (algo, iterations) in [("gauss-seidel", 20), ("delta-push", 1000)] {
            let all = format!("pr --algo {algo} --iterations {iterations} {defaults}");
            assert_eq!(kernel(&format!("pr --algo {algo}")), kernel(&all));
        }
        assert_eq!(
            parsed("bfs").unwrap().source(),
            parsed("bfs --source random").unwrap().source()
        );
    }
}
