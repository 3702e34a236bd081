//! Jobs: source vertices do not depend on the vertex order, and the report survives a failed
//! output.

use std::fs;

use hugepilot_graph::kernel::Direction;
use hugepilot_graph::run::{Job, JobResult, Kernel, Output, SourceVertex};
use hugepilot_graph::{DegreeKind, EdgeList, GraphError, PagePlan, ThreadPool, VertexOrder};
use hugepilot_reports::graph::{AllocOrder, GraphReport, Phases};

fn run(source: SourceVertex, order: Option<VertexOrder>) -> GraphReport {
    done(source, order, None).report
}

fn done(source: SourceVertex, order: Option<VertexOrder>, output: Option<Output>) -> JobResult {
    // Two stars of equal size, around 17 and 40, joined by a chain, and many isolated vertices.
    let star = |hub: u64, first: u64| (first..first + 20).map(move |v| (hub, v));
    let edges = star(17, 100).chain(star(40, 130)).chain([(119, 50), (50, 51), (51, 149)]);
    let job = Job {
        input: String::new(),
        directed: false,
        pages: PagePlan::default(),
        pages_text: String::new(),
        alloc_order: AllocOrder::Natural,
        pool: ThreadPool::new(1),
        reorder: order.map(|order| (order, DegreeKind::Out)),
        kernel: Some(Kernel::Bfs(Direction::TopDown)),
        trials: 6,
        source,
        verify: true,
        output,
    };
    let graph = job.build_options().graph::<u32>(&EdgeList::new(200, edges)).unwrap();
    job.prepare(graph, Phases::default(), None).unwrap().run(&job, |_| {}).unwrap()
}

#[test]
fn source_vertices_do_not_depend_on_the_vertex_order() {
    let orders = [
        VertexOrder::Dbg,
        VertexOrder::HubSort,
        VertexOrder::HubCluster,
        VertexOrder::Sort,
        VertexOrder::Random(3),
        VertexOrder::Rcm,
    ];
    for source in [
        SourceVertex::MaxDegree,
        SourceVertex::Random(1),
        SourceVertex::Random(2),
        SourceVertex::Id(51),
        SourceVertex::Id(199),
    ] {
        let plain = run(source, None);
        let sources: Vec<u64> = plain.trials.iter().map(|trial| trial.source.unwrap()).collect();
        match source {
            SourceVertex::MaxDegree => assert_eq!(sources, [17; 6]),
            SourceVertex::Id(vertex) => assert_eq!(sources, [vertex; 6]),
            SourceVertex::Random(_) => {
                let has_edges = |v: &u64| {
                    [17, 40, 50, 51].contains(v) || (100..120).contains(v) || (130..150).contains(v)
                };
                assert!(
                    sources.iter().all(has_edges) && sources.windows(2).any(|two| two[0] != two[1])
                );
            }
        }
        for order in orders {
            let reordered = run(source, Some(order));
            let others: Vec<u64> =
                reordered.trials.iter().map(|trial| trial.source.unwrap()).collect();
            assert_eq!(sources, others, "{order}");
            assert_eq!(
                (reordered.result, reordered.verified),
                (plain.result.clone(), Some(true)),
                "{order}"
            );
        }
    }
}

#[test]
fn a_failed_output_leaves_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    fs::write(&there, "mine").unwrap();
    let to = |path, replace| done(SourceVertex::Id(17), None, Some(Output { path, replace }));
    for lost in [to("/nowhere/at/all".into(), true), to(there.clone(), false)] {
        let GraphReport { trials, verified, output, .. } = lost.report;
        assert_eq!((trials.len(), verified, output), (6, Some(true), None));
        assert!(
            matches!(lost.output_error, Some(GraphError::Io { .. })),
            "{:?}",
            lost.output_error
        );
    }
    assert_eq!(fs::read(&there).unwrap(), b"mine");
    let JobResult { report, output_error } = to(there.clone(), true);
    assert!(output_error.is_none() && report.output.as_deref() == there.to_str());
    assert_eq!(fs::read_to_string(&there).unwrap().lines().nth(17), Some("17 0"));
}
