use super::*;

/// Else a curve has 0.0 % without a cause.
#[test]
fn a_budget_below_a_huge_page_has_a_note() {
    let noted = |budgets: &[f64], of, regions| {
        let points = budgets.iter().map(|&budget_ratio| UtilityPoint {
            budget_ratio,
            runs: vec![run("pcc", budget_ratio, 0.0)],
        });
        let report = SimUtilityReport {
            input: SimInput { regions, ..input_of() },
            budget_of_bytes: of,
            points: points.collect(),
            ..SimUtilityReport::default()
        };
        let text = printed(&report);
        let at = text.find("note: budget");
        at.map(|at| text[at..].lines().take(2).collect::<Vec<_>>().join("; "))
    };
    let of = Some(Bytes::mib(46));
    assert_eq!(noted(&[0.0, 0.0435, 1.0], of, 0), None);
    let one = "note: budget 4.34% of 46MiB is less than a huge page of 2MiB, so nothing is \
               promoted; help: allow a huge page: --budgets 4.35% or more";
    assert_eq!(noted(&[0.0, 0.0434, 1.0], of, 0).as_deref(), Some(one));
    let two = noted(&[0.01, 0.02, 0.04], None, 30).unwrap();
    assert!(two.starts_with("note: budgets 1%, 2% of 60MiB are less than "), "{two}");
    assert!(two.ends_with(" --budgets 3.34% or more"), "{two}");

    let report = SimPolicyReport {
        rounds: 9,
        run: run("pcc", 0.01, 0.0),
        budget_of_bytes: of,
        ..SimPolicyReport::default()
    };
    let text = printed(&report);
    assert!(text.contains("huge page: --budget 4.35% or more\n"), "{text}");
}
