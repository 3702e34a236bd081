//! BFS with one array on huge pages.
//!
//! `cargo run --release -p hugepilot-graph --example bfs_one_array_on_huge_pages`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // an example prints its results

use hugepilot_graph::kernel::{Direction, Setup, bfs};
use hugepilot_graph::{Build, Graph, GraphError, Kronecker, PagePlan, Rng, ThreadPool};

fn main() -> Result<(), GraphError> {
    // Property arrays on huge pages, all others on base pages.
    let pages: PagePlan = "property=thp".parse()?;
    let pool = ThreadPool::all();
    let input =
        Kronecker { scale: 18, degree: 16, weighted: false, rng: Rng::Whole, shuffled: true };
    let graph: Graph<u32> = Build { directed: false, pages, pool }.graph(&input)?;
    let search = bfs(&graph, 0, Direction::Optimizing, &Setup::new(pages, pool))?;
    println!("{} vertices reached, {} levels", search.reached(), search.levels.len());
    for usage in search.cost.arrays.iter().chain(&graph.usage()?) {
        println!("{}: {} on huge pages", usage.array, usage.pages.huge());
    }
    Ok(())
}
