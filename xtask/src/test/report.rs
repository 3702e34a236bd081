//! Table of the steps: durations and outcomes.

use std::time::Instant;

use anyhow::Result;

use super::skips::Skips;

/// Steps so far.
#[derive(Default)]
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
    /// Skips of the tests that ran; `None` before the first.
    pub(super) skips: Option<Skips>,
}

/// Result of a step.
pub(super) struct Row {
    pub(super) step: &'static str,
    pub(super) seconds: f64,
    pub(super) outcome: String,
}

impl Report {
    /// Runs one step and records its duration and outcome.
    pub(super) fn step(
        &mut self,
        step: &'static str,
        work: impl FnOnce() -> Result<String>,
    ) -> Result<()> {
        println!("\n== {step}");
        let start = Instant::now();
        let result = work();
        let seconds = start.elapsed().as_secs_f64();
        let outcome = result.as_ref().map_or_else(|_| "FAILED".to_owned(), String::clone);
        self.rows.push(Row { step, seconds, outcome });
        result.map(drop)
    }

    /// Records a step that did not run, and warns.
    pub(super) fn not_run(&mut self, step: &'static str, cause: &str) {
        eprintln!("\nwarning: {step} not run: {cause}");
        self.rows.push(Row { step, seconds: 0.0, outcome: format!("NOT RUN: {cause}") });
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
        report.step("fmt", || Ok("passed".to_owned())).unwrap();
        report.step("clippy", || bail!("a lint")).unwrap_err();
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
