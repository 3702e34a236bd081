//! Table of the steps: durations and outcomes.

use std::time::Instant;

use anyhow::Result;

use super::skips::Skips;

/// Steps so far.
#[derive(Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    /// Skips of the tests that ran; `None` before the first.
    pub(super) skips: Option<Skips>,
    /// Failures of the steps, as `STEP: FAILURE`.
    pub(super) failures: Vec<String>,
}

/// Result of a step.
struct Row {
    step: &'static str,
    seconds: f64,
    outcome: String,
}

impl Report {
    /// Runs one step, records its duration and outcome, and returns whether it passed. Each line of
    /// its error is a failure of its own.
    pub(super) fn step(
        &mut self,
        step: &'static str,
        work: impl FnOnce() -> Result<String>,
    ) -> bool {
        println!("\n== {step}");
        let start = Instant::now();
        let result = work();
        let seconds = start.elapsed().as_secs_f64();
        self.record(step, seconds, result)
    }

    /// Records a step that has run.
    pub(super) fn record(&mut self, step: &'static str, seconds: f64, of: Result<String>) -> bool {
        let failed = of.as_ref().err().map(|error| format!("{error:#}"));
        let lines = failed.iter().flat_map(|text| text.lines());
        self.failures.extend(lines.map(|line| format!("{step}: {line}")));
        let outcome = of.unwrap_or_else(|_| "FAILED".to_owned());
        self.rows.push(Row { step, seconds, outcome });
        failed.is_none()
    }

    /// Records a step that did not run, and warns.
    pub(super) fn not_run(&mut self, step: &'static str, cause: &str) {
        eprintln!("\nwarning: {step} not run: {cause}");
        self.rows.push(Row { step, seconds: 0.0, outcome: format!("NOT RUN: {cause}") });
    }

    /// Adds the steps that ran beside.
    pub(super) fn extend(&mut self, beside: Self) {
        self.rows.extend(beside.rows);
        self.failures.extend(beside.failures);
    }

    pub(super) fn render(&self) -> String {
        let mut text = format!("{:<16} {:>8}  outcome\n", "step", "seconds");
        for Row { step, seconds, outcome } in &self.rows {
            text += &format!("{step:<16} {seconds:>8.1}  {outcome}\n");
        }
        text + &self.skips.as_ref().map_or("no test was run".to_owned(), Skips::to_string)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn the_table_shows_the_step_that_failed() {
        let mut report = Report::default();
        assert!(report.step("fmt", || Ok("passed".to_owned())));
        assert!(!report.step("clippy", || bail!("a lint\nanother")));
        assert_eq!(report.failures, ["clippy: a lint", "clippy: another"]);
        assert!(report.render().ends_with("FAILED\nno test was run"));
        report.skips = Some(Skips::read("a::b: not root\n"));
        for row in &mut report.rows {
            row.seconds = 1.25;
        }
        let table = "\
step              seconds  outcome
fmt                   1.2  passed
clippy                1.2  FAILED
skipped 1: not root (1)
  a::b: not root";
        assert_eq!(report.render(), table);
    }
}
