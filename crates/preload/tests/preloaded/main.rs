//! Tests of unchanged programs with the preloaded `malloc`.

mod misuse;
mod programs;
mod rules;
mod stress;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use serde_json::Value;

/// Returns the library that cargo built for this test.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let beside = test.parent().unwrap().join("libhugepilot_preload.so");
    assert!(beside.exists(), "{} is built with this test", beside.display());
    beside
}

/// Program with the preloaded library, which writes its statistics to a file.
struct Preloaded {
    command: Command,
    report: PathBuf,
}

impl Preloaded {
    fn new(program: impl AsRef<Path>, args: &[&str]) -> Self {
        let name = program.as_ref().file_name().unwrap().to_string_lossy().into_owned();
        let report = env::temp_dir().join(format!(
            "hugepilot-preload-{}-{name}-{}",
            std::process::id(),
            args.len()
        ));
        let _ = fs::remove_file(&report);
        let mut command = Command::new(program.as_ref());
        command.args(args).env("LD_PRELOAD", library()).env("HUGEPILOT_STATS", &report);
        Self { command, report }
    }

    /// Runs the program.
    fn output(&mut self) -> Output {
        self.command.output().unwrap()
    }

    /// Runs the program, which must succeed. Returns its stdout and its statistics.
    fn run(&mut self) -> (String, Value) {
        let output = self.output();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {out}{err}", output.status);
        (out.into_owned(), self.report())
    }

    /// Returns the statistics of the last process to end.
    fn report(&self) -> Value {
        let text = fs::read_to_string(&self.report).expect("a report was written");
        let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(report["schema"], "hugepilot.preload/2");
        // The program used this heap.
        assert!(report["mapped_bytes"].as_u64().unwrap() > 0, "{report}");
        report
    }
}

impl Drop for Preloaded {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.report);
    }
}
