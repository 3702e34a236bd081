//! Skipped tests, reported and counted.

use std::any::type_name_of_val;
use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use crate::Need;

/// Ends the test here and reports the skip if a need is not met.
///
/// Takes a [`Need`], or any `Result` whose error names what is missing.
///
/// ```
/// use hugepilot_testkit::{need, requires};
///
/// fn promotes_a_region() {
///     requires!(need::cap_sys_nice());
///     requires!(need::c_compiler());
///     // the test proper
/// }
/// ```
#[macro_export]
macro_rules! requires {
    ($need:expr $(,)?) => {
        if let $crate::Need::Err(why) = $crate::Need::from($need) {
            fn here() {}
            $crate::skip(&$crate::test_of(&here), &why);
            return;
        }
    };
}

/// Returns the path of the function that defines `here`, as the test runner prints it.
#[doc(hidden)]
pub fn test_of<T>(here: &T) -> String {
    let path = type_name_of_val(here);
    path.strip_suffix("::here").unwrap_or(path).replace("::{{closure}}", "")
}

/// Reports that `test` did not run.
///
/// # Panics
/// If the log in `HUGEPILOT_SKIP_LOG` cannot be written, since a skip must not be lost.
#[doc(hidden)]
pub fn skip(test: &str, why: &str) {
    let line = log_line(test, why);
    eprintln!("skipped: {line}");
    if let Some(log) = env::var_os("HUGEPILOT_SKIP_LOG") {
        append(Path::new(&log), &line).expect("HUGEPILOT_SKIP_LOG names a writable file");
    }
}

/// Formats `test: why` on one line.
///
/// A test's path holds no `: `, so the first one separates the two.
fn log_line(test: &str, why: &str) -> String {
    let why: Vec<&str> = why.split_whitespace().collect();
    format!("{test}: {}", why.join(" "))
}

/// Appends a line in a single write, so that lines of parallel tests do not mix.
fn append(log: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(log)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// Lets `requires!` take the result of a probe: `Ok` is met, an error is the reason.
impl<T, E: std::fmt::Display> From<Result<T, E>> for Need {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(|error| Self::Err(error.to_string()), |_| Self::Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process};

    use super::*;

    #[test]
    fn a_met_need_lets_the_test_go_on() {
        let mut reached = false;
        let mut test = || {
            requires!(Need::Ok);
            requires!(Ok::<u32, String>(7));
            reached = true;
        };
        test();
        assert!(reached);
    }

    /// Runs itself in another process, so that its skip goes to a separate log and is not counted.
    #[test]
    fn a_missing_need_ends_the_test_and_is_logged() {
        const INNER: &str = "HUGEPILOT_TEST_OF_SKIPPING";
        if env::var_os(INNER).is_some() {
            requires!(Err::<(), _>("nothing is missing,\nthis is a test"));
            unreachable!("a missing need ends the test");
        }
        let log = env::temp_dir().join(format!("hugepilot-skip-{}", process::id()));
        let mut inner = process::Command::new(env::current_exe().unwrap());
        inner.args(["--exact", "skip::tests::a_missing_need_ends_the_test_and_is_logged"]);
        let output = inner.env(INNER, "1").env("HUGEPILOT_SKIP_LOG", &log).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let test = "hugepilot_testkit::skip::tests::a_missing_need_ends_the_test_and_is_logged";
        assert_eq!(
            fs::read_to_string(&log).unwrap(),
            format!("{test}: nothing is missing, this is a test\n")
        );
        fs::remove_file(&log).unwrap();
    }

    #[test]
    fn a_skip_names_its_test() {
        fn here() {}
        assert_eq!(test_of(&here), "hugepilot_testkit::skip::tests::a_skip_names_its_test");
    }

    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(log_line("a::b", "no PMU\n(perf: ENOENT)"), "a::b: no PMU (perf: ENOENT)");
    }

    #[test]
    fn lines_are_appended() {
        let log = env::temp_dir().join(format!("hugepilot-skips-{}", process::id()));
        append(&log, "a: one").unwrap();
        append(&log, "b: two").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "a: one\nb: two\n");
        fs::remove_file(&log).unwrap();
    }
}
