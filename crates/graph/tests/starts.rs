//! Jobs: where kernels begin does not depend on the numbers that vertices get, and what they found is not lost with a file.

use std::fs;

use hugepilot_graph::kernel::Direction;
use hugepilot_graph::run::{Job, JobResult, Kernel, Output, SourceVertex};
use hugepilot_graph::{DegreeKind, EdgeList, GraphError, PagePlan, ThreadPool, VertexOrder};
use hugepilot_record::graph::{GraphReport, Phases};

fn run(start: SourceVertex, order: Option<VertexOrder>) -> GraphReport {
    done(start, order, None).report
}

fn done(start: SourceVertex, order: Option<VertexOrder>, output: Option<Output>) -> JobResult {
    // Two stars of equal size, around 17 and 40, a chain between, and many vertices alone.
    let star = |hub: u64, first: u64| (first..first + 20).map(move |v| (hub, v));
    let edges = star(17, 100).chain(star(40, 130)).chain([(119, 50), (50, 51), (51, 149)]);
    let job = Job {
        name: String::new(),
        directed: false,
        pages: PagePlan::default(),
        pages_text: String::new(),
        property_first: false,
        pool: ThreadPool::new(1),
        order: order.map(|order| (order, DegreeKind::Out)),
        kernel: Some(Kernel::Bfs(Direction::TopDown)),
        trials: 6,
        start,
        verify: true,
        output,
    };
    let graph = job.building().graph::<u32>(&EdgeList::new(200, edges)).unwrap();
    job.ready(graph, Phases::default(), None).unwrap().run(&job, |_| {}).unwrap()
}

#[test]
fn trials_begin_at_the_same_vertices_under_any_numbers() {
    let orders = [
        VertexOrder::Dbg,
        VertexOrder::HubSort,
        VertexOrder::HubCluster,
        VertexOrder::Sort,
        VertexOrder::Random(3),
        VertexOrder::Rcm,
    ];
    for start in [
        SourceVertex::MaxDegree,
        SourceVertex::Random(1),
        SourceVertex::Random(2),
        SourceVertex::Id(51),
        SourceVertex::Id(199),
    ] {
        let plain = run(start, None);
        let sources: Vec<u64> = plain.trials.iter().map(|trial| trial.source.unwrap()).collect();
        match start {
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
            let anew = run(start, Some(order));
            let others: Vec<u64> = anew.trials.iter().map(|trial| trial.source.unwrap()).collect();
            assert_eq!(sources, others, "{order}");
            assert_eq!((anew.result, anew.verified), (plain.result.clone(), Some(true)), "{order}");
        }
    }
}

#[test]
fn what_cannot_be_written_leaves_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    fs::write(&there, "mine").unwrap();
    let to = |path, replace| done(SourceVertex::Id(17), None, Some(Output { path, replace }));
    for lost in [to("/nowhere/at/all".into(), true), to(there.clone(), false)] {
        let GraphReport { trials, verified, output, .. } = lost.report;
        assert_eq!((trials.len(), verified, output), (6, Some(true), None));
        assert!(matches!(lost.unwritten, Some(GraphError::Io { .. })), "{:?}", lost.unwritten);
    }
    assert_eq!(fs::read(&there).unwrap(), b"mine");
    let JobResult { report, unwritten } = to(there.clone(), true);
    assert!(unwritten.is_none() && report.output.as_deref() == there.to_str());
    assert_eq!(fs::read_to_string(&there).unwrap().lines().nth(17), Some("17 0"));
}
