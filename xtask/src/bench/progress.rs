//! Progress of a program: operations over time, from the lines that it prints.

/// Seconds between two lines that suffice for a rate.
const SLOW: f64 = 1.0;

/// Form of the lines of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// `ready`, then `ops N` with the operations since the last line.
    Ops,
    /// `hot START-END` with `--announce`, `ready PID`, then `SECONDS OPS_PER_SECOND`, as
    /// `hugepilot lab workload` prints.
    Lab,
    /// Lines that start so count one operation each; the program is ready with the first.
    Starting(&'static str),
    /// Lines of two numbers count one operation each; the program is ready with the first.
    Steps,
}

/// Operations of a program. Times are seconds since its start.
#[derive(Debug)]
pub(super) struct Progress {
    lines: Lines,
    /// When its data structure was built.
    pub(super) ready: Option<f64>,
    /// Times of lines, and the operations until then.
    events: Vec<(f64, f64)>,
    /// Time of the last line by the program's own clock.
    clock: f64,
    /// Ranges of addresses that the program names as hot.
    pub(super) hot: Vec<String>,
    /// Last line.
    pub(super) last: String,
}

impl Progress {
    pub(super) fn new(lines: Lines) -> Self {
        let (events, hot) = (Vec::new(), Vec::new());
        Self { lines, ready: None, events, clock: 0.0, hot, last: String::new() }
    }

    /// Adds a line that arrived at `now`.
    pub(super) fn add(&mut self, now: f64, line: &str) {
        line.clone_into(&mut self.last);
        let ready = matches!(self.lines, Lines::Ops | Lines::Lab);
        if ready && line.split_whitespace().next() == Some("ready") {
            self.ready = Some(now);
        } else if let Some(range) = line.strip_prefix("hot ") {
            self.hot.push(range.to_owned());
        } else if let Some(ops) = self.operations(line) {
            self.ready.get_or_insert(now);
            self.events.push((now, self.total() + ops));
        }
    }

    /// Operations that a line reports.
    fn operations(&mut self, line: &str) -> Option<f64> {
        match self.lines {
            Lines::Ops => line.strip_prefix("ops ")?.parse().ok(),
            Lines::Starting(start) => line.starts_with(start).then_some(1.0),
            Lines::Steps => numbers(line).map(|_| 1.0),
            Lines::Lab => {
                let (clock, rate) = numbers(line)?;
                let passed = clock - std::mem::replace(&mut self.clock, clock);
                Some(rate * passed)
            }
        }
    }

    /// Operations until the last line.
    pub(super) fn total(&self) -> f64 {
        self.events.last().map_or(0.0, |&(_, total)| total)
    }

    /// Operations per second between the first and the last line in a window, if there are three,
    /// or two that are [`SLOW`] apart.
    pub(super) fn rate(&self, from: f64, to: f64) -> Option<f64> {
        let inside = |&&(at, _): &&(f64, f64)| (from..=to).contains(&at);
        let inside: Vec<_> = self.events.iter().filter(inside).collect();
        let [(begin, none), .., (end, all)] = inside[..] else { return None };
        let enough = inside.len() > 2 || end - begin >= SLOW;
        (enough && end > begin).then(|| (all - none) / (end - begin))
    }

    /// Operations per second from `start`, when an operation begins, to the first line after it, if
    /// they are [`SLOW`] apart.
    pub(super) fn rate_of_first(&self, start: f64, to: f64) -> Option<f64> {
        let first = self.events.iter().position(|&(at, _)| at > start)?;
        let (at, all) = self.events[first];
        let none = first.checked_sub(1).map_or(0.0, |before| self.events[before].1);
        (at <= to && at - start >= SLOW).then(|| (all - none) / (at - start))
    }
}

/// Reads a line of exactly two numbers.
fn numbers(line: &str) -> Option<(f64, f64)> {
    let mut words = line.split_whitespace();
    let pair = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(lines: Lines, texts: &[(f64, &str)]) -> Progress {
        let mut progress = Progress::new(lines);
        texts.iter().for_each(|&(at, line)| progress.add(at, line));
        progress
    }

    #[test]
    fn the_rate_counts_lines_inside_the_window() {
        let texts = [(3.0, "ready"), (4.0, "ops 7"), (5.0, "ops 10"), (6.0, "ops 20")];
        let mut seen = progress(Lines::Ops, &texts);
        assert_eq!(seen.ready, Some(3.0));
        assert_eq!(seen.rate(3.5, 6.5), Some(15.0));
        assert_eq!(seen.rate(4.5, 6.5), Some(20.0), "two lines that are far apart");
        assert_eq!(seen.rate(5.5, 6.5), None, "one line");
        seen.add(7.0, "ops 90");
        assert_eq!(seen.total(), 127.0);
        assert_eq!(seen.rate(3.5, 6.5), Some(15.0), "a line after the window does not count");
    }

    #[test]
    fn an_operation_of_seconds_counts_from_its_begin() {
        let texts = [(3.0, "ready"), (4.0, "ops 7"), (8.0, "ops 1")];
        let seen = progress(Lines::Ops, &texts);
        assert_eq!(seen.rate_of_first(6.0, 9.0), Some(0.5));
        assert_eq!(seen.rate_of_first(6.0, 7.0), None, "no line yet");
        assert_eq!(seen.rate_of_first(7.5, 9.0), None, "less than a second");
        assert_eq!(seen.rate_of_first(2.0, 9.0), Some(3.5), "the first line of all");
    }

    #[test]
    fn two_lines_close_together_have_no_rate() {
        let mut seen = progress(Lines::Ops, &[(1.0, "ready"), (1.1, "ops 5"), (1.2, "ops 5")]);
        assert_eq!(seen.rate(1.0, 2.0), None);
        seen.add(1.3, "ops 5");
        assert!((seen.rate(1.0, 2.0).unwrap() - 50.0).abs() < 1e-6);
    }

    #[test]
    fn trials_and_steps_count_one_each() {
        let texts = [(1.0, "Read Time: 0.5"), (2.0, "Trial Time: 0.1"), (4.0, "Trial Time: 0.1")];
        let mut trials = progress(Lines::Starting("Trial Time:"), &texts);
        trials.add(6.0, "Trial Time: 0.1");
        assert_eq!((trials.ready, trials.rate(0.0, 9.0)), (Some(2.0), Some(0.5)));
        let texts = [(1.0, "Graph has 4 nodes"), (2.0, "    0    0.25"), (3.0, "    1    0.125")];
        let mut steps = progress(Lines::Steps, &texts);
        steps.add(4.0, "    2    0.01");
        assert_eq!((steps.ready, steps.rate(0.0, 9.0)), (Some(2.0), Some(1.0)));
    }

    #[test]
    fn rates_of_lab_workloads_are_weighted_by_their_clock() {
        let texts = [(9.0, "ready 12"), (9.5, "0.5 100"), (10.0, "1.0 100"), (10.5, "1.5 300")];
        let lab = progress(Lines::Lab, &texts);
        assert_eq!((lab.ready, lab.rate(9.0, 11.0)), (Some(9.0), Some(200.0)));
    }
}
